# SPDX-License-Identifier: Apache-2.0
"""Files of OTLP in flat memory: JSON, a document a line or over many lines; or protobuf.

Plain or compressed with gzip or zstd; see `otel_taskhistory.spans.otlp_binary` for protobuf. What
happens to files of lines is seen to: they begin with a byte order mark, have lines of another
system, blank lines, runs of NUL bytes where a crash left a hole, bytes that are no UTF-8 (kept, as
lone surrogates), and a last line that was cut. Each line that cannot be read is told by its number
and costs no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from otel_taskhistory.spans.compressed import Damaged, opened
from otel_taskhistory.spans.otlp import Item, Rejected, items_in
from otel_taskhistory.spans.otlp_binary import (
    is_framed,
    is_protobuf,
    read_framed,
    read_protobuf,
)

LONGEST: Final = 256 * 2**20
"""Bytes of one document at most; lines of 80 MB are seen in practice."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LOOK: Final = 64
_BLANK: Final = b" \t\r\n\0"
_BETWEEN: Final = b"[], "
"""What stands around documents in a list."""

# A JSON string never goes over the end of a line, so that brackets can be counted line by line.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\]]')
_BEGINS: Final = re.compile(rb'\{\s*"resource_?(?:spans|logs|metrics|profiles)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Placed:
    """What was read, and the number of the line where its document begins, or of its message."""

    line: int
    item: Item


def read_file(file: BinaryIO, longest: int = LONGEST) -> Iterator[Placed]:
    """What a file holds, as it is read; never raises for what is in it.

    Args:
        file: of bytes, plain or compressed with gzip or zstd.
        longest: bytes of one document at most; a longer one is passed by and told.

    Raises:
        OSError: the file cannot be read.
        TaskHistoryError: it needs a package that is not installed.
    """
    content = opened(file)
    try:
        start = content.peek(_LOOK)[:_LOOK]
    except Damaged:
        start = b""
    if is_framed(start, longest) or is_protobuf(start):
        read = read_framed if is_framed(start, longest) else read_protobuf
        for number, item in read(content, longest):
            yield Placed(number, item)
        return
    for line, document in _documents(_Lines(content, longest)):
        if isinstance(document, Rejected):
            yield Placed(line, document)
            continue
        for item in items_in(document):
            yield Placed(line, item)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: bytes
    problem: str = ""


class _Lines:
    """The lines of a file that are not blank."""

    def __init__(self, file: BinaryIO, longest: int) -> None:
        self._file = file
        self.longest = longest

    def __iter__(self) -> Iterator[_Line]:
        number = 0
        while True:
            number += 1
            try:
                text = self._file.readline(self.longest + 1)
                if len(text) > self.longest:
                    while text and not text.endswith(b"\n"):
                        text = self._file.readline(2**20)
                    yield _Line(number, b"", f"longer than {self.longest} bytes")
                    continue
            except Damaged:
                # A file that was cut while it was written; what came before is good.
                yield _Line(number, b"", "the compressed file is cut or damaged from here on")
                return
            if not text:
                return
            if number == 1:
                text = text.removeprefix(_BYTE_ORDER_MARK)
                if text.startswith(_UTF_16):
                    yield _Line(1, b"", "the file is UTF-16: convert it to UTF-8")
                    return
            text = text.strip(_BLANK)
            if text:
                yield _Line(number, text)


def _documents(lines: _Lines) -> Iterator[tuple[int, Any]]:
    """(number of its first line, document); for what is none, why it is `Rejected`."""
    pending: _Pending | None = None
    for line in lines:
        if pending is not None:
            if line.problem:
                if not pending.given_up:
                    yield line.number, Rejected(line.problem)
                    pending.give_up()  # it goes on behind this line
                continue
            if not _BEGINS.match(line.text):
                yield from pending.goes_on(line.text, lines.longest)
                pending = pending if pending.depth > 0 else None
                continue
            if not pending.given_up:
                # No document goes on like this: the one before was cut.
                yield pending.first, Rejected(pending.why)
            pending = None
        if line.problem:
            yield line.number, Rejected(line.problem)
            continue
        document, why = _parsed(line.text)
        if why:
            # Documents in a list, each on lines of its own.
            text = line.text.strip(_BETWEEN)
            if not text:
                continue
            if text != line.text:
                document, why = _parsed(text)
        if not why:
            yield line.number, document
            continue
        pending = _Pending(line.number, why)
        pending.add(line.text.lstrip(_BETWEEN))
        if pending.depth <= 0:  # wrong, and not for want of more
            yield line.number, Rejected(why)
            pending = None
    if pending is not None and not pending.given_up:
        yield pending.first, Rejected(pending.why)


class _Pending:
    """A document that may go on over the next lines."""

    def __init__(self, first: int, why: str) -> None:
        self.first = first
        self.why = why
        self.depth = 0
        self.given_up = False
        self._text = bytearray()

    def add(self, line: bytes) -> None:
        """Another line of it."""
        if not self.given_up:
            self._text += line + b"\n"
        for token in _TOKEN.findall(line):
            self.depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))

    def give_up(self) -> None:
        """It cannot be read: only its end is looked for."""
        self.given_up = True
        self._text.clear()

    def goes_on(self, line: bytes, longest: int) -> Iterator[tuple[int, Any]]:
        """Take another line; the document, or why it is none, once that is known."""
        self.add(line)
        if self.given_up:
            return
        if len(self._text) > longest:
            yield self.first, Rejected(f"longer than {longest} bytes")
            self.give_up()
        elif self.depth <= 0:
            document, why = _parsed(bytes(self._text.strip(_BETWEEN + _BLANK)))
            yield self.first, Rejected(why) if why else document


def _parsed(text: bytes) -> tuple[Any, str]:
    """(the document, "") or (None, why it is none); the reason quotes nothing of it."""
    try:
        return json.loads(text.decode("utf-8", "surrogateescape"), strict=False), ""
    except json.JSONDecodeError as error:
        return None, f"no JSON, or cut: {error.msg} (character {error.pos + 1})"
    except RecursionError:
        return None, "nested too deeply"
    except ValueError as error:  # a number with too many digits
        return None, f"no JSON that can be read ({type(error).__name__})"
