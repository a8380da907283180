# SPDX-License-Identifier: Apache-2.0
r"""Attribute values as JSON text, losslessly, for every value there is.

Plain values look like plain JSON, so that SQL's ``json_extract`` finds them. What JSON has no form
for is a small tagged object, reversible by `decode`:

========================  =======================================================
``{"$bytes": B64}``       bytes
``{"$int": "DEC"}``       a whole number beyond 64 bit
``{"$float": "NaN"}``     ``NaN``, ``Infinity`` or ``-Infinity``
``{"$escaped": TEXT}``    text with lone surrogates: backslashes doubled, each written ``\udXXX``
``{"$map": {...}}``       a mapping whose only key begins with ``$``
``{"$pairs": [[K, V]]}``  a mapping of which several keys are the same when written as text
``{"$reduced": WHY}``     had no representation: ``cycle``, ``depth``, ``object``, ``unreadable``
========================  =======================================================

Long strings may be left as holes for the store to fill by reference: see `encode`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_DEPTH: Final = 200
"""Deeper nesting is marked, not kept: Python's json gives up near 1,000 and SQLite's at 2,000."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_LONE: Final = re.compile("[\ud800-\udfff]")
_quote = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Hole:
    """A string of the value that is kept elsewhere; it stands where its JSON string would."""

    key: str
    """The name of the attribute it belongs to."""
    text: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """JSON text in pieces: literal text and, between, the holes."""

    pieces: tuple[str | Hole, ...]
    reduced: bool
    """Whether something had to be escaped or marked."""

    @property
    def text(self) -> str:
        """The whole text, holes filled in place."""
        return "".join(p if isinstance(p, str) else _quote(p.text) for p in self.pieces)


def quote(text: str) -> str:
    """`text` as a JSON string, non-ASCII characters as they are."""
    return _quote(text)


def has_lone_surrogate(text: str) -> bool:
    """Whether `text` cannot be written as UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def escape_surrogates(text: str) -> str:
    """`text` with its lone surrogates written out; text without any comes back as it is."""
    if not has_lone_surrogate(text):
        return text
    doubled = text.replace("\\", "\\\\")
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", doubled)


def unescape_surrogates(text: str) -> str:
    """The inverse of `escape_surrogates` for a text that it changed."""
    return re.sub(
        r"\\\\|\\u(d[89a-f][0-9a-f]{2})",
        lambda found: chr(int(found[1], 16)) if found[1] else "\\",
        text,
    )


def escape_surrogates_in_json(text: str) -> str:
    """JSON text whose lone surrogates, raw or as JSON escapes, are written out as text.

    SQLite's JSON functions turn such an escape into bytes that are not UTF-8, which then hide the
    whole row from a reader.
    """
    if "\\ud" not in text and "\\uD" not in text and not has_lone_surrogate(text):
        return text
    text = _JSON_ESCAPE.sub(_without_lone_escape, text)
    return _LONE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


_JSON_ESCAPE: Final = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    r"|u([dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def _without_lone_escape(found: re.Match[str]) -> str:
    high, low, lone = found.groups()
    return f"\\\\u{(high or lone).lower()}" if lone or (high and not low) else found[0]


def encode(value: Any, *, hole_from: int | None = None, named_to: int = 1) -> Encoded:
    """Encode one value or a mapping of attributes; never raises.

    Args:
        value: anything.
        hole_from: strings of at least this many characters become holes. None: no holes.
        named_to: down to which level of nesting the keys are names of attributes; a hole is known
            by the innermost of them.
    """
    writer = _Writer(hole_from, named_to)
    writer.write(value, 0, "")
    return Encoded(writer.finish(), writer.reduced)


def decode(text: str) -> Any:
    """The value that `encode` was given (sequences come back as lists); inverse of `encode`.

    Raises:
        ValueError: `text` is no JSON.
    """
    return _restore(json.loads(text))


class _Writer:
    def __init__(self, hole_from: int | None, named_to: int) -> None:
        self.hole_from = hole_from
        self.named_to = named_to
        self.reduced = False
        self._run: list[str | Hole] = []
        self._open: set[int] = set()

    def finish(self) -> tuple[str | Hole, ...]:
        pieces: list[str | Hole] = []
        literal: list[str] = []
        for piece in self._run:
            if isinstance(piece, str):
                literal.append(piece)
                continue
            pieces += ("".join(literal), piece)
            literal = []
        pieces.append("".join(literal))
        return tuple(piece for piece in pieces if piece != "")

    def write(self, value: Any, depth: int, key: str) -> None:
        kind = type(value)
        if kind is str:
            self._write_text(value, key)
        elif value is None or kind is bool:
            self._run.append("null" if value is None else "true" if value else "false")
        elif kind is int:
            self._write_int(value)
        elif kind is float:
            self._write_float(value)
        else:
            start = len(self._run)
            try:
                if isinstance(value, Mapping):
                    self._nest(value, depth, key, self._write_map)
                elif isinstance(value, list | tuple):
                    self._nest(value, depth, key, self._write_list)
                else:
                    self._write_other(value, key)
            except Exception as error:  # whatever foreign code raises, it is one bad value
                del self._run[start:]
                self._mark("unreadable", type(error).__name__)

    def _write_text(self, value: str, key: str) -> None:
        if has_lone_surrogate(value):
            self.reduced = True
            self._run.append('{"$escaped":' + _quote(escape_surrogates(value)) + "}")
        elif self.hole_from is not None and len(value) >= self.hole_from:
            self._run.append(Hole(key, value))
        else:
            self._run.append(_quote(value))

    def _write_int(self, value: int) -> None:
        if _INT_MIN <= value <= _INT_MAX:
            self._run.append(int.__repr__(value))
            return
        self._run.append('{"$int":"' + _decimal(value) + '"}')

    def _write_float(self, value: float) -> None:
        if math.isfinite(value):
            self._run.append(float.__repr__(value))
        else:
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            self._run.append('{"$float":"' + name + '"}')

    def _write_bytes(self, value: bytes, key: str) -> None:
        self._run.append('{"$bytes":')
        self._write_text(base64.b64encode(value).decode("ascii"), key)
        self._run.append("}")

    def _nest(self, value: Any, depth: int, key: str, write: Any) -> None:
        if id(value) in self._open:
            self._mark("cycle")
        elif depth >= MAX_DEPTH:
            self._mark("depth")
        else:
            self._open.add(id(value))
            try:
                write(value, depth + 1, key)
            finally:
                self._open.discard(id(value))

    def _write_map(self, value: Mapping[Any, Any], depth: int, key: str) -> None:
        items = list(value.items())
        names = [self._name(name) for name, _ in items]
        if len(set(names)) < len(names):
            self._write_pairs(items, depth, key)
            return
        wrap = len(items) == 1 and names[0].startswith("$")
        self._run.append('{"$map":{' if wrap else "{")
        for position, (name, (_, item)) in enumerate(zip(names, items, strict=True)):
            self._run.append(("," if position else "") + _quote(name) + ":")
            self.write(item, depth, name if depth <= self.named_to or not key else key)
        self._run.append("}}" if wrap else "}")

    def _name(self, key: Any) -> str:
        if type(key) is str and not has_lone_surrogate(key):
            return key
        self.reduced = True
        return escape_surrogates(str.__str__(key) if isinstance(key, str) else _shown(key))

    def _write_pairs(self, items: list[tuple[Any, Any]], depth: int, key: str) -> None:
        self._run.append('{"$pairs":[')
        for position, (name, item) in enumerate(items):
            self._run.append(",[" if position else "[")
            self.write(name, depth, key)
            self._run.append(",")
            self.write(item, depth, key)
            self._run.append("]")
        self._run.append("]}")

    def _write_list(self, value: list[Any] | tuple[Any, ...], depth: int, key: str) -> None:
        self._run.append("[")
        for position, item in enumerate(value):
            if position:
                self._run.append(",")
            self.write(item, depth, key)
        self._run.append("]")

    def _write_other(self, value: Any, key: str) -> None:
        # Subclasses of the plain types (enums, numpy scalars) are written as what they are; the
        # methods of the plain types are used, for theirs may do anything.
        if isinstance(value, bytes | bytearray | memoryview):
            self._write_bytes(bytes(value), key)
        elif isinstance(value, str):
            self._write_text(str.__str__(value), key)
        elif isinstance(value, int):
            self._write_int(int.__int__(value))
        elif isinstance(value, float):
            self._write_float(float.__float__(value))
        else:
            self._mark("object", _shown(value))

    def _mark(self, why: str, shown: str | None = None) -> None:
        self.reduced = True
        tail = "" if shown is None else ',"text":' + _quote(escape_surrogates(shown))
        self._run.append('{"$reduced":"' + why + '"' + tail + "}")


def _decimal(value: int) -> str:
    # str() of a huge int is refused by Python (int_max_str_digits); hex has no such limit.
    try:
        return str(value)
    except ValueError:
        return hex(value)


def _shown(value: Any) -> str:
    try:
        text = str(value)
    except Exception as error:  # whatever a foreign __str__ does, the span is kept
        return f"<{type(value).__name__}: {type(error).__name__}>"
    return text if isinstance(text, str) else f"<{type(value).__name__}>"


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, item),) = value.items()
        match tag:
            case "$bytes":
                return base64.b64decode(item)
            case "$int":
                return int(item, 0)
            case "$float":
                return float(item)
            case "$escaped":
                return unescape_surrogates(item)
            case "$pairs":
                return {_as_key(_restore(name)): _restore(held) for name, held in item}
            case "$map":
                value = item
    return {key: _restore(item) for key, item in value.items()}


def _as_key(value: Any) -> Any:
    """`value` as a key of a dict: a sequence was a tuple then; a mapping stays as JSON text."""
    if isinstance(value, list):
        return tuple(_as_key(item) for item in value)
    return json.dumps(value) if isinstance(value, dict) else value
