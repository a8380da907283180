# SPDX-License-Identifier: Apache-2.0
"""JSON text whose strings are changed one by one; all else stays as it was written.

So numbers keep their digits, objects their order and even their repeated keys, and what was JSON
is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json import decoder
from typing import Final

from otel_taskhistory.redaction.patterns import MASK
from otel_taskhistory.redaction.secret_names import Kind, hides, kind_of, names_a_secret
from otel_taskhistory.spans.encode import has_lone_surrogate

_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_COLON: Final = re.compile(r"\s*+:")
_NUMBER: Final = re.compile(r"-?[0-9][0-9.eE+-]*+")
_BEGINS: Final = ("{", "[", '"')
_TYPES: Final = frozenset(
    ("string", "number", "integer", "boolean", "array", "object", "null", "text", "password")
)
"""Of a JSON schema: what a parameter that is called ``password`` is."""

_scan: Final[Callable[[str, int, bool], tuple[str, int]]] = decoder.scanstring  # type: ignore[attr-defined]


def is_json(text: str) -> bool:
    """Whether a text is one JSON object, array or string."""
    if text.lstrip()[:1] not in _BEGINS:
        return False
    try:
        # Numbers are not needed, and too long ones refused.
        json.loads(text, strict=False, parse_int=len, parse_float=len, parse_constant=len)
    except (ValueError, RecursionError):
        return False
    return True


def change_strings(
    text: str,
    change: Callable[[str], str],
    number: Callable[[str], bool] | None = None,
) -> str:
    """JSON text with each string changed, and what stands under keys that look secret masked.

    Args:
        text: one that `is_json`.
        change: from string to string; keys too.
        number: whether a number (as written) is to be masked; None: none is.
    """
    return _Walk(text, change, number).result()


class _Walk:
    def __init__(
        self,
        text: str,
        change: Callable[[str], str],
        number: Callable[[str], bool] | None,
    ) -> None:
        self._text = text
        self._change = change
        self._number = number
        self._pieces: list[str] = []
        self._copied = 0

    def result(self) -> str:
        text = self._text
        secret: Kind | None = None  # what the innermost key, or one around it, says
        around: list[tuple[Kind | None, bool]] = []
        named = False  # whether an item of this object said that its value is a secret
        key = ""
        gap = 0
        while (token := _STRUCTURE.search(text, gap)) is not None:
            start = token.start()
            self._numbers(gap, start, secret)
            gap = token.end()
            if token[0] in "{[":
                around.append((secret, named))
                named = False
            elif token[0] in "}]":
                secret, named = around.pop()
            else:
                value, gap = _scan(text, gap, False)
                if (colon := _COLON.match(text, gap)) is not None:
                    key = value
                    secret = (around[-1][0] if around else None) or kind_of(key)
                    if named and secret is None and key in ("value", "values"):
                        secret = "secret"
                    self._put(start, gap, value, self._change(value))
                    gap = colon.end()
                elif hides(secret, value) and not (key == "type" and value in _TYPES):
                    self._put(start, gap, value, MASK)
                else:
                    named = named or names_a_secret(key, value)
                    self._put(start, gap, value, self._change(value))
        if not self._pieces:
            return text
        return "".join(self._pieces) + text[self._copied :]

    def _put(self, start: int, end: int, before: str, after: str) -> None:
        if after == before:
            return
        # A lone surrogate can only be written as an escape.
        ascii_only = self._text[start:end].isascii() or has_lone_surrogate(after)
        written = json.dumps(after, ensure_ascii=ascii_only)
        self._pieces += (self._text[self._copied : start], written)
        self._copied = end

    def _numbers(self, start: int, end: int, secret: Kind | None) -> None:
        if start == end or (secret != "secret" and self._number is None):
            return
        for found in _NUMBER.finditer(self._text, start, end):
            if secret == "secret" or (self._number is not None and self._number(found[0])):
                self._pieces += (self._text[self._copied : found.start()], json.dumps(MASK))
                self._copied = found.end()
