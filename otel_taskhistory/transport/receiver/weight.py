# SPDX-License-Identifier: Apache-2.0
"""How many values a body holds, found out before it is parsed.

A value of two bytes becomes an object of a hundred: what is parsed must be limited by their number
too. Real spans have about a value for each twenty bytes, and long texts.
"""

from __future__ import annotations

import re
from typing import Final

from otel_taskhistory.transport.receiver.answers import LOGS, SPANS, Refused, Signal

MOST_VALUES: Final = 2_000_000
"""About 20,000 spans with as many attributes as they usually have; some hundred MB when parsed."""

SMALL: Final = 512 * 2**10
"""A body of so many bytes can do no harm, whatever it holds."""

# A string that does not end goes to the end: nothing is looked at twice.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BEGINS_VALUE: Final = (b"{", b"[", b",")

_LAST: Final = 0x7F
"""A byte of a number up to this is the last one."""
_LONGEST_NUMBER: Final = 70
_FIXED: Final = {1: 8, 5: 4}
"""Bytes of the kinds that always have so many."""
_DEEPEST: Final = 200
"""The parser goes half as deep, and refuses what is deeper."""

_Fields = dict[int, "_Fields"]

# Fields of OTLP's messages that are messages which may hold more: only those are looked into.
_VALUE: Final[_Fields] = {}
_PAIR: Final[_Fields] = {2: _VALUE}
_VALUE[5] = {1: _VALUE}  # an array
_VALUE[6] = {1: _PAIR}  # a list of pairs
_RESOURCE: Final[_Fields] = {1: _PAIR}
_SCOPE: Final[_Fields] = {3: _PAIR}
_SPAN: Final[_Fields] = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}}
_LOG: Final[_Fields] = {5: _VALUE, 6: _PAIR}
_REQUESTS: Final[dict[Signal, _Fields]] = {
    SPANS: {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: _SPAN}}},
    LOGS: {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: _LOG}}},
}


def check_json(body: bytes | bytearray) -> None:
    """See to it that JSON does not hold too many values.

    Raises:
        Refused: it does.
    """
    if len(body) <= SMALL or _begun(body) <= MOST_VALUES:
        return
    if _begun(_STRING.sub(b"", body)) > MOST_VALUES:  # those in texts do not count
        raise _too_many()


def check_protobuf(body: bytes | bytearray, signal: Signal) -> None:
    """See to it that a request in protobuf does not hold too many values.

    What is no protobuf is left to the parser.

    Raises:
        Refused: it does.
    """
    if len(body) <= SMALL:
        return
    try:
        count = _fields_in(body, _REQUESTS[signal])
    except IndexError:
        return  # it is cut
    if count > MOST_VALUES:
        raise _too_many()


def _fields_in(body: bytes | bytearray, fields: _Fields) -> int:
    """How many fields a message has, with those of the messages within; counted to the limit.

    Raises:
        IndexError: it is cut.
    """
    around: list[tuple[int, int, _Fields]] = []
    at, end, count = 0, len(body), 0
    while True:
        if at >= end:
            if not around:
                return count
            at, end, fields = around.pop()
            continue
        count += 1
        if count > MOST_VALUES or len(around) > _DEEPEST:
            return count
        tag = body[at]
        at += 1
        if tag > _LAST:
            tag, at = _rest(body, at, tag)
        kind = tag & 7
        if kind == 2:
            length = body[at]
            at += 1
            if length > _LAST:
                length, at = _rest(body, at, length)
            inside = fields.get(tag >> 3)
            if length and inside is not None:
                around.append((at + length, end, fields))
                end, fields = min(at + length, end), inside
            else:
                at += length
        elif kind == 0:
            while body[at] > _LAST:
                at += 1
            at += 1
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            return count  # no protobuf of today


def _rest(body: bytes | bytearray, at: int, first: int) -> tuple[int, int]:
    """A number whose first byte says that it goes on, and where it ends."""
    found, shift = first & _LAST, 7
    while shift < _LONGEST_NUMBER:
        byte = body[at]
        at += 1
        found |= (byte & _LAST) << shift
        if byte <= _LAST:
            break
        shift += 7
    return found, at


def _begun(body: bytes | bytearray) -> int:
    return sum(body.count(sign) for sign in _BEGINS_VALUE)


def _too_many() -> Refused:
    return Refused(
        413,
        f"the body holds more than {MOST_VALUES:,} values: send smaller batches"
        " (OTEL_BSP_MAX_EXPORT_BATCH_SIZE)",
    )
