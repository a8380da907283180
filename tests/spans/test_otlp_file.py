# SPDX-License-Identifier: Apache-2.0
"""Files of OTLP/JSON as they are found on disks: each line that is good is read."""

from __future__ import annotations

import gzip
import io
import json
import math
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from otel_taskhistory.spans.otlp import Given, PassedOver, Rejected
from otel_taskhistory.spans.otlp_file import read_file
from tests.otlp import bottomless
from tests.spans.test_otlp import SPAN, TRACE, request

OTLP = Path(__file__).parents[1] / "data" / "otlp"


def read(data: bytes, **limits: Any) -> tuple[list[str], list[tuple[int, str]]]:
    """(names of the spans, line and reason of what was rejected)."""
    names, wrong = [], []
    for placed in read_file(io.BytesIO(data), **limits):
        if isinstance(placed.item, Rejected):
            wrong.append((placed.line, placed.item.why))
        elif isinstance(placed.item, Given):
            names.append(getattr(placed.item.record, "name", "log"))
    return names, wrong


def line(name: str, **said: Any) -> bytes:
    """A line with one span."""
    return json.dumps(request(name=name, **said)).encode()


def test_a_request_a_line() -> None:
    """With and without a newline at the end."""
    assert read(line("a") + b"\n" + line("b")) == (["a", "b"], [])
    assert read(line("a") + b"\n" + line("b") + b"\n") == (["a", "b"], [])
    assert read(b"") == ([], [])


def test_marks_blanks_and_foreign_line_ends() -> None:
    """A byte order mark, CRLF, blank lines; lines are counted as an editor counts them."""
    data = b"\xef\xbb\xbf" + line("a") + b"\r\n\r\n \t\n" + line("b") + b"\r\n{\r\n"
    names, ((number, _),) = read(data)
    assert names == ["a", "b"]
    assert number == 5


def test_holes_of_nul_bytes() -> None:
    """What a crash leaves at the beginning or between lines."""
    nuls = b"\0" * 4096
    assert read(nuls + line("a") + b"\n" + nuls + b"\n" + nuls + line("b") + nuls) == (
        ["a", "b"],
        [],
    )


def test_a_line_that_was_cut() -> None:
    """Is told by its number, wherever it is; the lines after it are read."""
    whole = line("b", attributes=[{"key": "k", "value": {"stringValue": "x, {[ y"}}])
    for length in range(1, len(whole)):
        names, wrong = read(line("a") + b"\n" + whole[:length] + b"\n" + line("c") + b"\n")
        assert names == ["a", "c"]
        assert [number for number, _ in wrong] == [2]
        names, wrong = read(line("a") + b"\n" + whole[:length])
        assert names == ["a"]
        assert [number for number, _ in wrong] == [2]


def test_one_document_over_many_lines() -> None:
    """Pretty-printed in whatever way, several one after the other, and lines in between."""
    documents = [request(name=name) for name in ("a", "b")]
    for indent in (0, 1, 4, "\t"):
        pretty = "\n".join(json.dumps(one, indent=indent) for one in documents)
        assert read(pretty.encode() + b"\n" + line("c")) == (["a", "b", "c"], [])
    listed = json.dumps(documents, indent=2).encode()
    assert read(listed) == (["a", "b"], [])
    text = json.dumps(request(name='}] { "'), indent=2).encode()
    assert read(text) == (['}] { "'], [])


def test_a_pretty_document_that_was_cut() -> None:
    """Costs only itself, and is told by the number of its first line."""
    pretty = json.dumps(request(name="b"), indent=2).encode().splitlines()
    for length in range(1, len(pretty)):
        names, wrong = read(b"\n".join([line("a"), *pretty[:length], line("c")]))
        assert names == ["a", "c"]
        assert {number for number, _ in wrong} == {2}


def test_gzip_and_gzip_that_was_cut() -> None:
    """Read without being told; what came before the cut is good."""
    data = gzip.compress(line("a") + b"\n" + line("b") + b"\n")
    assert read(data) == (["a", "b"], [])
    many = b"".join(line(f"n{number}" * 50) + b"\n" for number in range(400))
    compressed = gzip.compress(many)
    names, wrong = read(compressed[: len(compressed) // 2])
    assert 0 < len(names) < 400
    assert "cut or damaged" in wrong[-1][1]
    damaged = bytearray(compressed)
    damaged[len(damaged) // 2] ^= 0xFF
    names, wrong = read(bytes(damaged))
    assert wrong


def test_bytes_that_are_no_utf_8() -> None:
    """Are kept, reversibly; UTF-16 is told in words."""
    names, wrong = read(line("café").replace(b"caf\\u00e9", b"caf\xe9"))
    assert (names, wrong) == (["caf\udce9"], [])
    names, wrong = read(line("a").decode().encode("utf-16"))
    assert names == []
    assert "UTF-16" in wrong[0][1]


def test_a_line_that_is_too_long() -> None:
    """Is passed by without being held in memory, and told."""
    data = line("a") + b"\n" + line("b" * 5000) + b"\n" + line("c") + b"\n"
    names, wrong = read(data, longest=2000)
    assert names == ["a", "c"]
    assert wrong == [(2, "longer than 2000 bytes")]
    pretty = json.dumps(request(name="b" * 900, other=["x" * 900] * 5), indent=1).encode()
    names, wrong = read(pretty + b"\n" + line("c"), longest=2000)
    assert names == ["c"]
    assert (1, "longer than 2000 bytes") in wrong


def test_numbers_without_end() -> None:
    """That Python refuses to read cost their line."""
    data = b'{"resourceSpans": ' + b"9" * 5000 + b"}\n" + line("b")
    names, ((number, _),) = read(data)
    assert (names, number) == (["b"], 1)


class Endless(io.RawIOBase):
    """So many lines, made while they are read."""

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while len(self.rest) < len(buffer) and self.left:
            self.left -= 1
            self.rest += line("n", attributes={"k": {"stringValue": "x" * 2000}}) + b"\n"
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def test_memory_is_flat() -> None:
    """However long the file is."""

    def peak(lines: int) -> int:
        tracemalloc.start()
        try:
            file: BinaryIO = Endless(lines)  # type: ignore[assignment]
            assert sum(1 for _ in read_file(file)) == lines
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    assert peak(4000) < peak(400) + 2**20


@pytest.mark.parametrize(
    ("name", "spans", "rejected"),
    [
        ("ok.jsonl", 2, []),
        ("truncated_last_line.jsonl", 1, [2]),
        ("pretty_multiline.json", 1, []),
        ("mixed_signals.jsonl", 1, []),
        ("invalid_utf8.jsonl", 2, []),
        ("lone_surrogate.jsonl", 1, []),
        ("nul.jsonl", 1, []),
        ("bare_nan.jsonl", 1, []),
        ("nested.jsonl", 1, []),
        ("unsampled.jsonl", 2, []),
    ],
)
def test_files_of_known_trouble(name: str, spans: int, rejected: list[int]) -> None:
    """Each of these has upset some importer."""
    with (OTLP / name).open("rb") as file:
        names, wrong = read(file.read())
    assert len(names) == spans
    assert [number for number, _ in wrong] == rejected


def test_a_line_may_be_nested_deeply() -> None:
    """As deep as this Python reads JSON it is read, else rejected; the next line is read anyway."""
    names, wrong = read((OTLP / "deep_1500.jsonl").read_bytes())
    assert names in (["task", "after"], ["after"])
    assert len(names) + len(wrong) == 2
    names, wrong = read(bottomless() + (OTLP / "ok.jsonl").read_bytes())
    assert len(names) == 2
    assert [number for number, _ in wrong] == [1]


def test_values_of_known_trouble() -> None:
    """Numbers beyond 64 bit, NaN, bytes of any alphabet."""
    found: dict[str, Any] = {}
    marks: set[str] = set()
    for name in ("numbers.jsonl", "bytes.jsonl"):
        with (OTLP / name).open("rb") as file:
            for placed in read_file(file):
                assert isinstance(placed.item, Given)
                found |= placed.item.record.attributes
                marks |= placed.item.marks
    assert found["over"] == 2**63
    assert found["huge"] == 10**60
    assert found["numbig"] == 2**53 + 1
    assert (found["float_in_int"], found["exp"]) == ("1.5", 1000)
    assert (found["bool"], found["boolstr"], found["one"]) == (True, True, 1)
    assert math.isnan(found["nan"])
    assert found["raw"] == bytes(range(256))
    assert found["badb64"] == "!!!notbase64"
    assert found["urlsafe"] == b"\xff\xef"
    assert marks == {"attributes"}


def test_signals_of_others_are_counted() -> None:
    """And where they stand."""
    with (OTLP / "mixed_signals.jsonl").open("rb") as file:
        passed = [one.item for one in read_file(file) if isinstance(one.item, PassedOver)]
    assert {one.what for one in passed} == {"metrics", "log record outside of a span"}
    assert (len(TRACE), len(SPAN)) == (32, 16)
