# SPDX-License-Identifier: Apache-2.0
"""OTLP in protobuf as it is found on disks: recognised by itself, cut or not, in flat memory."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from otel_taskhistory.spans.otlp import Given, Rejected
from otel_taskhistory.spans.otlp_file import read_file
from otel_taskhistory.spans.otlp_protobuf import spans_to_protobuf
from otel_taskhistory.spans.otlp_write import spans_document
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from otel_taskhistory.spans.wire import whole_part
from tests.store.deliveries import span


def read(data: bytes | BinaryIO, **limits: Any) -> tuple[list[str], list[str]]:
    """(names of the spans, where and why something was rejected)."""
    names, wrong = [], []
    for placed in read_file(io.BytesIO(data) if isinstance(data, bytes) else data, **limits):
        if isinstance(placed.item, Rejected):
            wrong.append(f"{placed.line}: {placed.item.why}")
        elif isinstance(placed.item, Given):
            names.append(getattr(placed.item.record, "name", "log"))
    return names, wrong


def body(*spans: SpanRecord) -> bytes:
    """A request of these spans."""
    return spans_to_protobuf(spans_document(spans))


def of_resource(number: int, text: str = "") -> SpanRecord:
    """A span with a resource of its own."""
    said = {"n": number, "t": text} if text else {"n": number}
    return span(number, resource=OriginRecord(attributes=said))


@pytest.mark.parametrize("framed", [False, True])
def test_requests_of_every_size_are_recognised(framed: bool) -> None:
    """Whatever the bytes of the sizes look like: text, JSON, or the size of a message."""
    for size in (*range(1, 300), 16_200, 16_400, 70_000, 2_200_000):
        data = body(of_resource(1, "x" * size))
        if framed:
            data = struct.pack(">I", len(data)) + data
        assert read(data) == (["span 1"], []), size


def test_text_that_begins_like_a_request_is_text() -> None:
    """A newline is the byte with which requests begin, and a bracket a size."""
    document = spans_document([span(1)])
    for indent in (None, 1, 2, "\t"):
        for before in ("\n", "\n\n", "\n\n\n\n", "\n \n", "\n\r\n", "\n" + " " * 100):
            for said in (document, [document]):
                text = before + json.dumps(said, indent=indent)
                assert read(text.encode()) == (["span 1"], []), text[:20]
                assert read(text.replace("\n", "\r\n").encode()) == (["span 1"], [])
    for nothing in (b"\n", b"\n\n\n", b"\n \r\n" * 50):
        assert read(nothing) == ([], [])


def test_a_request_may_be_cut_anywhere() -> None:
    """All spans before that are kept, none is kept in part, and it is told once."""
    resource = OriginRecord(attributes={"who": "me"})
    spans = [span(number, resource=resource, attributes={"k": "v" * 9}) for number in range(1, 5)]
    whole = body(*spans, of_resource(5))
    ends = []
    for size in range(2, len(whole)):  # one byte is a blank line
        names, wrong = read(whole[:size])
        assert names == [f"span {number}" for number in range(1, len(names) + 1)]
        at_an_end = size == len(body(*spans))
        assert len(wrong) == (0 if at_an_end else 1), size
        ends.append(len(names))
    assert ends == sorted(ends)
    assert set(ends) == {0, 1, 2, 3, 4}


def test_a_message_with_its_size_may_be_cut_anywhere() -> None:
    """Likewise, and with the number of the message."""
    first, second = body(span(1)), body(span(2), span(3))
    whole = struct.pack(">I", len(first)) + first + struct.pack(">I", len(second)) + second
    start = len(first) + 4
    for size in range(start + 1, len(whole)):
        names, wrong = read(whole[:size])
        assert names in (["span 1"], ["span 1", "span 2"])
        assert [told[:2] for told in wrong] == ["2:"]


def test_what_is_no_request_is_told() -> None:
    """In one sentence, and nothing is read."""
    for data in (b"\x0a\x05hello", b"\x0a\xff\xff\xff\xff\xff\xff", b"\x0aplain text here"):
        names, wrong = read(data)
        assert names == []
        assert len(wrong) == 1


def test_the_whole_part_of_any_bytes() -> None:
    """Never raises, and what is whole stays as it is."""
    whole = body(span(1), of_resource(2))
    assert whole_part(whole) == whole
    for size in range(len(whole)):
        part = whole_part(whole[:size])
        assert whole_part(part) == part
    for odd in (b"", b"\x0a", b"\xff" * 20, b"\x0a\xff\x01\x12\xff", b"\x0b\x0c\x0d\x0e"):
        assert whole_part(whole_part(odd)) == whole_part(odd)


class _Endless(io.RawIOBase):
    """Requests of 20 MB each, one after the other, made as they are read."""

    def __init__(self, number: int) -> None:
        self._pieces = self._made(number)
        self._left = b""

    def _made(self, number: int) -> Iterator[bytes]:
        one = body(of_resource(1, "x" * 1_000_000))
        for _ in range(number):
            yield one

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._pieces, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def test_memory_is_flat() -> None:
    """A request is read resource by resource, whatever its size."""
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_file(io.BufferedReader(_Endless(3)))) == 3
        few = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert sum(1 for _ in read_file(io.BufferedReader(_Endless(60)))) == 60
        many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert many < 1.5 * few


def test_a_resource_that_is_too_large_costs_no_other() -> None:
    """It is told, and what is behind it is read."""
    data = body(of_resource(1), of_resource(2, "x" * 5_000), of_resource(3))
    names, wrong = read(data, longest=1_000)
    assert names == ["span 1", "span 3"]
    assert wrong == ["2: spans of one resource longer than 1000 bytes"]
