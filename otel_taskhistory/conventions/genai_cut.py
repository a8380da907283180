# SPDX-License-Identifier: Apache-2.0
"""JSON that a limit of the SDK has cut: what stands before the cut is read, and nothing raises.

``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`` ends a value in the middle of a word. `parse` reads such text
in one pass, without recursion; a string that was cut is a `CutText`, so that a reader can show the
beginning of a message but take no half id for a whole one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

DEEPEST: Final = 200
"""Nesting beyond is read as if the text had been cut there."""

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")


class CutText(str):
    """A string of which the end is missing."""

    __slots__ = ()


def parse(text: str) -> Any:
    """The value of JSON text, or of what is left of it; None when that is nothing."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parse_cut(text)


def parse_cut(text: str) -> Any:
    """The value of the beginning of some JSON text; None when there is none.

    A member whose value is missing is left out, and so is a number or word at the very end, for it
    may go on.
    """
    top: list[Any] = []
    open_: list[list[Any] | dict[str, Any]] = [top]
    keys: list[str | None] = [None]
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ",:":
            continue
        if token in "]}":
            if len(open_) > 1:
                open_.pop()
                keys.pop()
            continue
        ends = found.end() == len(text)
        value: Any
        if token == "[":
            value = []
        elif token == "{":
            value = {}
        elif token[0] == '"':
            value = _string(token)
        else:
            value = None if ends else _word(token)
            if ends:
                break
        holder, key = open_[-1], keys[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif key is not None:
            holder[key] = value
            keys[-1] = None
        elif type(value) is str:
            keys[-1] = value
            continue
        if isinstance(value, list | dict):
            if len(open_) > DEEPEST:
                break
            open_.append(value)
            keys.append(None)
    return top[0] if top else None


def _string(token: str) -> str:
    whole = len(token) > 1 and token.endswith('"') and not _is_escaped(token)
    if whole:
        try:
            return str(json.loads(token, strict=False))
        except ValueError:  # an escape that there is not
            return token[1:-1]
    # The cut may have gone through an escape.
    for missing in range(_LONGEST_ESCAPE):
        try:
            return CutText(json.loads(token[: len(token) - missing] + '"', strict=False))
        except ValueError:
            continue
    return CutText(token[1:])


def _is_escaped(token: str) -> bool:
    """Whether the quotation mark at the end belongs to the string."""
    before = token[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _word(token: str) -> Any:
    try:
        return json.loads(token)
    except (ValueError, RecursionError):  # no JSON, or an endless number
        return None
