# SPDX-License-Identifier: Apache-2.0
"""Files of OTLP that are not lines: one export request in protobuf, or many with their sizes.

The latter is what the Collector's file exporter writes as ``format: proto``, and with
``compression: zstd``: each message, protobuf or JSON, behind its size as four bytes, the first the
highest; compressed by itself or not.

Protobuf does not say of which signal a request is. It is read as traces, else as logs, else as
metrics, whichever makes sense of its records.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, Final

from otel_taskhistory.spans.compressed import DAMAGED, ZSTD, decompressed
from otel_taskhistory.spans.otlp import Given, Item, PassedOver, Rejected, items_in
from otel_taskhistory.spans.otlp_protobuf import (
    is_metrics,
    logs_from_protobuf,
    spans_from_protobuf,
)

_SIZE: Final = 4
_RESOURCE: Final = b"\x0a"
"""With this byte each request in protobuf begins: its field 1, a message."""

_CUT: Final = "the file is cut or damaged from here on"


def is_framed(start: bytes, longest: int) -> bool:
    """Whether a file that begins so holds messages behind their sizes.

    Args:
        start: 8 bytes or more.
    """
    size = int.from_bytes(start[:_SIZE], "big")
    message = start[_SIZE : _SIZE + 4]
    return 0 < size <= longest and (message[:1] in (_RESOURCE, b"{") or message == ZSTD)


def is_protobuf(start: bytes) -> bool:
    """Whether a file that begins so may be one request in protobuf, and no JSON."""
    if start[:1] != _RESOURCE:
        return False
    text = start.lstrip(b" \t\r\n")
    # A newline is the same byte, and "{" a size of 123.
    return not (text[:1] in (b"{", b"[") and text[1:2] in (b'"', b"{", b"}", b"]", b" ", b"\n"))


def read_framed(file: io.BufferedReader, longest: int) -> Iterator[tuple[int, Item]]:
    """(number of the message, what it holds)."""
    number = 0
    while True:
        number += 1
        try:
            head = file.read(_SIZE)
            if not head:
                return
            size = int.from_bytes(head, "big")
            if len(head) < _SIZE or not size:
                yield number, Rejected(_CUT)
                return
            if size > longest:
                yield number, Rejected(f"longer than {longest} bytes")
                if not _skip(file, size):
                    return
                continue
            message = file.read(size)
        except DAMAGED:
            yield number, Rejected(_CUT)
            return
        if len(message) < size:
            yield number, Rejected("the last message is cut")
            return
        for item in _message(message, longest):
            yield number, item


def read_protobuf(file: io.BufferedReader, longest: int) -> Iterator[tuple[int, Item]]:
    """(1, what the request holds) of a file that is one."""
    try:
        body = file.read(longest + 1)
    except DAMAGED:
        yield 1, Rejected(_CUT)
        return
    if len(body) > longest:
        yield 1, Rejected(f"longer than {longest} bytes: send it in several requests")
        return
    for item in items_of(body):
        yield 1, item


def items_of(body: bytes) -> Iterator[Item]:
    """What a request in protobuf holds, of whatever signal it is."""
    why = "no OTLP in protobuf: neither spans nor log records in it"
    readable = False
    for read in (spans_from_protobuf, logs_from_protobuf):
        try:
            found = list(items_in(read(body)))
        except ValueError as error:  # of another signal, or cut
            why = str(error)
            continue
        readable = True
        if any(_makes_sense(item) for item in found):
            yield from found
            return
    metrics = is_metrics(body)
    if metrics:
        yield PassedOver("metrics", metrics)
    elif body or not readable:
        yield Rejected(why)


def _makes_sense(item: Item) -> bool:
    return isinstance(item, Given) or (isinstance(item, PassedOver) and item.has_times)


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


def _skip(file: io.BufferedReader, size: int) -> bool:
    while size > 0:
        read = len(file.read(min(size, 2**20)))
        if not read:
            return False
        size -= read
    return True
