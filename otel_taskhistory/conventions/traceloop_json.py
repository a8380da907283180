# SPDX-License-Identifier: Apache-2.0
"""JSON inside attributes, whole or cut, and Python literals inside strings; nothing raises."""

from __future__ import annotations

import ast
from typing import Any, Final

from otel_taskhistory.conventions import genai_cut
from otel_taskhistory.conventions.content import parsed

_LONGEST: Final = 20_000
_DEEPEST: Final = 20
"""Of a literal, in characters and in brackets: Python's parser takes much for little."""


def readable(value: Any) -> tuple[Any, bool]:
    """What JSON text says, as far as it can be read, and whether that is all of it.

    A value that is no text is its own meaning. Text that is no JSON object or list, not even the
    beginning of one, is None.
    """
    whole = parsed(value)
    if whole is not None or not isinstance(value, str):
        return whole, True
    if value[:50].lstrip()[:1] not in ("{", "["):
        return None, True
    return genai_cut.parse_cut(value), False


def is_empty(value: Any) -> bool:
    """Whether nothing is said: None, or a text, list or mapping without anything in it."""
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def literal(text: str) -> Any:
    """The dict or list (a tuple becomes one) whose `repr` is `text`; None when it is none."""
    text = text.strip()
    if len(text) > _LONGEST or text[:1] not in ("{", "[", "(") or _depth(text) > _DEEPEST:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, dict | list) else None


def _depth(text: str) -> int:
    """At least how deep the brackets nest: those within strings count as well."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest
