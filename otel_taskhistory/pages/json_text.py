# SPDX-License-Identifier: Apache-2.0
"""JSON as people read it: indented and coloured, every number and key exactly as it was written.

It is not parsed and written again, which would change numbers: its pieces are only set apart.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from otel_taskhistory.pages.html import Html, el, join, text

_MOST: Final = 200_000
"""Characters up to which it is done; what is longer is shown as it is."""
_SHORT: Final = 60
"""An object or list that fits into so many characters stays on one line."""
_DEEP: Final = 100

_TOKEN: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<word>[a-zA-Z]+)'
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<comma>,)|(?P<colon>:)"
)


def looks_like_json(value: str) -> bool:
    """Whether a text is a JSON object or list, or a string with one inside."""
    return value.lstrip()[:1] in ("{", "[", '"') and _parsed(value)


def unwrapped(value: str) -> str:
    """The text within a JSON string, where that is an object or list itself; else `value`."""
    if value.lstrip().startswith('"'):
        inner = json.loads(value)
        if isinstance(inner, str) and inner.lstrip()[:1] in ("{", "[") and _parsed(inner):
            return inner
    return value


def _parsed(value: str) -> bool:
    if len(value) > _MOST:
        return False
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def indented(value: str) -> str:
    """Valid JSON on several lines, where it is not short."""
    return "".join(piece for _, piece in _pieces(value))


def coloured(value: str) -> Html:
    """The same with its kinds of values set apart."""
    return join(
        [
            el("span", _string(piece) if kind in ("k", "s") else piece, class_=f"j{kind}")
            if kind
            else text(piece)
            for kind, piece in _pieces(value)
        ]
    )


def _string(piece: str) -> list[Html | str]:
    """A string; a long one of several lines is broken where they end."""
    if len(piece) < _SHORT or "\\n" not in piece:
        return [piece]
    return [piece.replace("\\n", "\\n\n")] if "\\\\n" not in piece else [piece]


def _pieces(value: str) -> list[tuple[str, str]]:
    """(kind, text): k for a key, s string, n number, w true, false and null; empty for the rest."""
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(value)]
    ends = _ends(tokens)
    pieces: list[tuple[str, str]] = []
    depth = flat_until = 0
    for position, (kind, token) in enumerate(tokens):
        flat = position < flat_until
        if kind == "open":
            pieces.append(("", token))
            end, size = ends.get(position, (0, _SHORT + 1))
            if not flat and (size <= _SHORT or end == position + 1):
                flat_until, flat = end + 1, True
            if not flat:
                depth += 1
                pieces.append(("", _line(depth)))
        elif kind == "close":
            if not flat:
                depth -= 1
                pieces.append(("", _line(depth)))
            pieces.append(("", token))
        elif kind == "comma":
            pieces.append(("", ", " if flat else f",{_line(depth)}"))
        elif kind == "colon":
            pieces.append(("", ": "))
        elif kind == "string":
            is_key = position + 1 < len(tokens) and tokens[position + 1][0] == "colon"
            pieces.append(("k" if is_key else "s", _readable(token)))
        else:
            pieces.append(("n" if kind == "number" else "w", token))
    return pieces


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEEP)


def _ends(tokens: list[tuple[str, str]]) -> dict[int, tuple[int, int]]:
    """For each opening bracket (where it is closed, how many characters there are up to there)."""
    ends: dict[int, tuple[int, int]] = {}
    opened: list[tuple[int, int]] = []
    written = 0
    for position, (kind, token) in enumerate(tokens):
        written += len(token) + (kind in ("comma", "colon"))
        if kind == "open":
            opened.append((position, written))
        elif kind == "close" and opened:
            start, before = opened.pop()
            ends[start] = (position, written - before + 1)
    return ends


def _readable(token: str) -> str:
    """A string with its escapes of plain characters undone: the same string."""
    if "\\u" not in token:
        return token
    try:
        return json.dumps(json.loads(token), ensure_ascii=False)
    except ValueError:
        return token
