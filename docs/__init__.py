# SPDX-License-Identifier: Apache-2.0
"""The documentation: pages in Markdown, and the tools that make a site of them."""
