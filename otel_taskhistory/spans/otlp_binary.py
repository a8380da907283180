# SPDX-License-Identifier: Apache-2.0
"""Files of OTLP that are not lines: one export request in protobuf, or many with their sizes.

The latter is what the Collector's file exporter writes as ``format: proto``, and with
``compression: zstd``: each message, protobuf or JSON, behind its size as four bytes, the first the
highest; compressed by itself or not.

Protobuf does not say of which signal a request is. It is read as traces, else as logs, else as
metrics, whichever makes sense of its records. A request is read resource by resource, so its size
does not matter; where it is cut, the records before that are kept.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from otel_taskhistory.spans.compressed import ZSTD, decompressed, read_whole
from otel_taskhistory.spans.otlp import Given, Item, PassedOver, Rejected, items_in
from otel_taskhistory.spans.otlp_protobuf import (
    is_metrics,
    logs_from_protobuf,
    spans_from_protobuf,
)
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.spans.wire import RESOURCE, number, whole_part

_SIZE: Final = 4
_LARGEST_FIRST: Final = 0x08FFFFFF
"""Of the first message: larger sizes begin like text does, or like a request in protobuf."""

_CUT: Final = "the file is cut or damaged from here on"
_NOTHING: Final = "no OTLP in protobuf: neither spans nor log records in it"

# A newline is the byte with which requests begin, and "{" a size of 123.
_JSON: Final = re.compile(rb"\s*(?:\{\s*(?:\"[A-Za-z_]|\})|\[\s*[\[{\]])")


def is_framed(start: bytes, longest: int) -> bool:
    """Whether a file that begins so holds messages behind their sizes.

    Args:
        start: 8 bytes or more.
    """
    size = int.from_bytes(start[:_SIZE], "big")
    message = start[_SIZE : _SIZE + 4]
    known = message[:1] in (RESOURCE, b"{") or message == ZSTD
    return 0 < size <= min(longest, _LARGEST_FIRST) and known


def is_protobuf(start: bytes) -> bool:
    """Whether a file that begins so may be one request in protobuf, and no text."""
    return start[:1] == RESOURCE and not _JSON.match(start) and not start.isspace()


def read_framed(file: io.BufferedReader, longest: int) -> Iterator[tuple[int, Item]]:
    """(number of the message, what it holds)."""
    at = 0
    while True:
        at += 1
        head, damaged = read_whole(file, _SIZE)
        if not head and not damaged:
            return
        size = int.from_bytes(head, "big")
        if len(head) < _SIZE or not size:
            yield at, Rejected(_CUT)
            return
        if size > longest:
            yield at, Rejected(f"longer than {longest} bytes")
            if not _skip(file, size):
                yield at, Rejected(_CUT)
                return
            continue
        message, _ = read_whole(file, size)
        if len(message) < size:
            for item in _rest(message):
                yield at, item
            yield at, Rejected("the message is cut, and with it the file")
            return
        for item in _message(message, longest):
            yield at, item


def read_protobuf(file: io.BufferedReader, longest: int) -> Iterator[tuple[int, Item]]:
    """(number of the resource, what is of it) of a file that is one request."""
    at, any_found = 0, False
    while True:
        at += 1
        head, size, damaged = _head(file)
        if not head and not damaged:
            break
        if size is None:
            yield at, Rejected(_CUT if any_found else "no OTLP in protobuf, or cut off")
            return
        if size > longest:
            yield at, Rejected(f"spans of one resource longer than {longest} bytes")
            if not _skip(file, size):
                yield at, Rejected(_CUT)
                return
            any_found = True
            continue
        body, _ = read_whole(file, size)
        cut = len(body) < size
        try:
            found = _found(whole_part(head + body) if cut else head + body)
        except ValueError as error:
            yield at, Rejected(str(error))
            return
        any_found |= bool(found)
        for item in found:
            yield at, item
        if cut:
            yield at, Rejected(_CUT if found else "no OTLP in protobuf, or cut off")
            return
    if not any_found:
        yield 1, Rejected(_NOTHING)


def items_of(body: bytes) -> Iterator[Item]:
    """What a request in protobuf holds, of whatever signal it is."""
    try:
        found = _found(body)
    except ValueError as error:
        yield Rejected(str(error))
        return
    yield from found
    if not found:
        yield Rejected(_NOTHING)


def _found(body: bytes) -> list[Item]:
    """What a request holds; nothing when it makes no sense.

    Raises:
        ValueError: it is no protobuf.
    """
    why: ValueError | None = None
    for read in (spans_from_protobuf, logs_from_protobuf):
        try:
            found = list(items_in(read(body)))
        except ValueError as error:  # of another signal, or damaged
            why = error
            continue
        if any(_makes_sense(item) for item in found):
            return found
    metrics = is_metrics(body)
    if metrics:
        return [PassedOver("metrics", metrics)]
    if why is not None:
        raise why
    return []


def _rest(message: bytes) -> list[Item]:
    """What is whole of a message that was cut, if it is of protobuf and not compressed."""
    try:
        return _found(whole_part(message)) if message[:1] == RESOURCE else []
    except ValueError:
        return []


def _makes_sense(item: Item) -> bool:
    if isinstance(item, Given):
        record = item.record
        return not isinstance(record, SpanRecord) or bool(record.start_ns or record.end_ns)
    return isinstance(item, PassedOver) and item.has_times


def _message(message: bytes, longest: int) -> Iterator[Item]:
    try:
        if message[:4] == ZSTD:
            message = decompressed(message, longest)
        if message[:1] != b"{":
            yield from items_of(message)
            return
        document: Any = json.loads(message.decode("utf-8", "surrogateescape"), strict=False)
    except json.JSONDecodeError as error:
        yield Rejected(f"no JSON: {error.msg} (character {error.pos + 1})")
    except RecursionError:
        yield Rejected("nested too deeply")
    except ValueError as error:
        yield Rejected(str(error))
    else:
        yield from items_in(document)


def _head(file: io.BufferedReader) -> tuple[bytes, int | None, bool]:
    """(what stands before the next resource, its size, whether the file is damaged here).

    The size is None when there is none: at the end, or where something else is.
    """
    tag, damaged = read_whole(file, 1)
    if tag != RESOURCE:
        return tag, None, damaged
    said = b""
    while len(said) < 5 and not (said and said[-1] < 0x80):
        byte, _ = read_whole(file, 1)
        if not byte:
            return tag + said, None, True
        said += byte
    size, _ = number(said, 0)
    return tag + said, size, False


def _skip(file: io.BufferedReader, size: int) -> bool:
    """Whether that much was there to be passed by."""
    while size > 0:
        piece, damaged = read_whole(file, min(size, 2**20))
        size -= len(piece)
        if damaged or not piece:
            return False
    return True
