# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, and the code spans of docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown on one line."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def of_docstring(text: str) -> str:
    """A docstring's text on one line, its double backticks as Markdown has them."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
