# SPDX-License-Identifier: Apache-2.0
"""What Sphinx is told; used on the staged pages by ``python -m docs.site``, see there."""

from __future__ import annotations

from otel_taskhistory import __version__

project = "otel-taskhistory"
author = "the authors of otel-taskhistory"
release = version = __version__
html_title = f"otel-taskhistory {version}"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# Docstrings put code into single backticks, as Python's own do.
default_role = "code"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# Console blocks hold a shell's prompt and what was printed; parts of them are no console at all.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

# Furo brings its style and no fonts; nothing is loaded from elsewhere. The index for searching is
# a script beside the pages, so it works from a folder too.
html_theme = "furo"
html_theme_options = {"source_view_link": ""}
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
