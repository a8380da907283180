# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation as a site that is read from its folder: ``python -m docs.site``.

The pages are Markdown files that can be read where they lie too. `stage` copies them, with links
that lead out of ``docs/`` turned to pages of the site, `reference` writes the pages that follow
from the code, Sphinx makes HTML, and `check` looks through that: every link must lead somewhere,
and nothing may be loaded from elsewhere. Any warning fails the build.
"""
