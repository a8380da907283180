# SPDX-License-Identifier: Apache-2.0
r"""Write plain JSON values as text that every UTF-8 reader and SQLite's JSON functions accept.

A string with lone surrogates (half an emoji) has no UTF-8 form. In that string, and in no other,
backslashes are doubled and each lone surrogate is written as the six characters ``\udXXX``. A
message says which of its strings were escaped, so that `unescape_message` can undo it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from otel_taskhistory.recording.keys import ESCAPED, UNREADABLE
from otel_taskhistory.recording.plain import MAX_DEPTH, is_plain, is_text, to_plain

DEPTHS: Final = (MAX_DEPTH, 24, 4)
"""Nesting that is tried in turn when the agent's own stack leaves little room."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(\\|u(d[89a-f][0-9a-f]{2}))")


# Made once: `json.dumps` makes a new one for each call with options.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def dumps(value: Any) -> str:
    """Return plain `value` as JSON text; ValueError for NaN."""
    return _encode(value)


def is_encodable(text: str) -> bool:
    """Whether `text` has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escape(text: str) -> str:
    """Return `text` with backslashes doubled and lone surrogates written out."""
    doubled = text.replace("\\", "\\\\")
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", doubled)


def unescape(text: str) -> str:
    """Return the string that `escape` was given."""
    return _ESCAPE.sub(lambda found: chr(int(found[2], 16)) if found[2] else "\\", text)


def dump_value(value: Any) -> tuple[str, bool]:
    """Return any value as text, and whether it had no exact representation; never raises.

    A str stays itself (escaped, and reported, when it has lone surrogates); anything else is JSON.
    """
    if is_text(value):
        text = str.__str__(value)
        return (text, False) if is_encodable(text) else (escape(text), True)
    return dump_json(value)


def dump_json(value: Any) -> tuple[str, bool]:
    """Return any value as JSON text, and whether it had no exact representation; never raises."""
    try:
        if is_plain(value) and is_encodable(text := dumps(value)):
            return text, False
    except (ValueError, RuntimeError):
        pass  # NaN, an endless integer, a deep stack, a change while reading: the careful way
    for depth in DEPTHS:
        try:
            plain, reduced = to_plain(value, depth)
            if is_encodable(text := dumps(plain)):
                return text, reduced
            return dumps(_escaped(plain, "", [])), True
        except RecursionError:
            continue
    return dumps({UNREADABLE: "nested too deep"}), True


def escape_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return `message` with its lone surrogates escaped and listed under `ESCAPED`."""
    where: list[str] = []
    escaped: dict[str, Any] = _escaped(message, "", where)
    return {**escaped, ESCAPED: where} if where else message


def unescape_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message that `escape_message` was given."""
    where = message.get(ESCAPED)
    if not isinstance(where, list):
        return message
    rest = {key: value for key, value in message.items() if key != ESCAPED}
    restored: dict[str, Any] = _unescaped(rest, "", frozenset(where))
    return restored


def _pointer(at: str, key: str | int) -> str:
    return f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _escaped(value: Any, at: str, where: list[str]) -> Any:
    if isinstance(value, str):
        if is_encodable(value):
            return value
        where.append(at)
        return escape(value)
    if isinstance(value, list):
        return [_escaped(item, _pointer(at, n), where) for n, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    # All keys of the object or none, so that no two of them become the same.
    escaping = not all(map(is_encodable, value))
    for key, item in value.items():
        name = escape(key) if escaping else key
        child = _pointer(at, name)
        if name != key:
            where.append(f"key:{child}")
        result[name] = _escaped(item, child, where)
    return result


def _unescaped(value: Any, at: str, where: frozenset[str]) -> Any:
    if isinstance(value, str):
        return unescape(value) if at in where else value
    if isinstance(value, list):
        return [_unescaped(item, _pointer(at, n), where) for n, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, item in value.items():
        child = _pointer(at, key)
        name = unescape(key) if f"key:{child}" in where else key
        result[name] = _unescaped(item, child, where)
    return result
