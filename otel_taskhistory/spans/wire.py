# SPDX-License-Identifier: Apache-2.0
"""What is left of an export request in protobuf that was cut: all records that are whole.

A message is a row of fields, each with its length before it. Where the file ends within a record,
the record is left away, and the lengths around it are made to fit.
"""

from __future__ import annotations

from typing import Final

RESOURCE: Final = b"\x0a"
"""With this byte each request begins: its field 1, a message."""

_INTO: Final = (1, 2)
"""Fields that lead to the records: the resource, and the scope that has them."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_NUMBER: Final = 10


def number(data: bytes, at: int) -> tuple[int | None, int]:
    """(the varint at a position, the position behind it); None when it is cut or none."""
    value = 0
    for place in range(_LONGEST_NUMBER):
        if at + place >= len(data):
            return None, at
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    return None, at


def whole_part(data: bytes, into: tuple[int, ...] = _INTO) -> bytes:
    """The message without the record in which it was cut, and without all behind that.

    Args:
        data: the beginning of a message.
        into: fields that are not left away when they are cut, but cut themselves.
    """
    at = 0
    while at < len(data):
        tag, inner = number(data, at)
        if tag is None:
            break
        end, start = _end(data, tag & 7, inner)
        if end is None or start is None:
            break
        if end > len(data):
            if tag & 7 == _BYTES and into and tag >> 3 == into[0]:
                part = whole_part(data[start:], into[1:])
                return data[:inner] + _varint(len(part)) + part
            break
        at = end
    return data[:at]


def _end(data: bytes, kind: int, at: int) -> tuple[int | None, int | None]:
    """(where the value of a field ends, where its content begins); None when that is not said."""
    if kind == _VARINT:
        value, end = number(data, at)
        return (None if value is None else end), at
    if kind == _BYTES:
        size, start = number(data, at)
        return (None if size is None else start + size), start
    if kind in (_FIXED64, _FIXED32):
        return at + (8 if kind == _FIXED64 else 4), at
    return None, None


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
