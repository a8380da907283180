# SPDX-License-Identifier: Apache-2.0
"""Files that may be compressed with gzip or zstd, read in flat memory whatever they expand to.

Several compressed parts behind each other are one file. Where it is cut or damaged, all that comes
before is read first.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final, Protocol, cast

from otel_taskhistory.errors import TaskHistoryError


class Damaged(EOFError):
    """Raised by reading where a compressed file is cut or damaged; what came before is good."""


GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"

_INPUT: Final = 1024
"""Bytes that are decompressed at a time: of zstd these make 32 MiB at most, of gzip 1 MiB."""


def opened(file: BinaryIO) -> io.BufferedReader:
    """The content of a file, decompressed if it is compressed; can be peeked into.

    Reading raises `Damaged`.

    Raises:
        TaskHistoryError: it is compressed with zstd, and the package for that is not installed.
    """
    around = buffered(file)
    start = around.peek(4)[:4]
    if start[:2] == GZIP:
        return io.BufferedReader(_Decompressed(around, _gzip, zlib.error))
    if start == ZSTD:
        return io.BufferedReader(_zstd(around))
    return around


def buffered(file: BinaryIO) -> io.BufferedReader:
    """The file, so that it can be peeked into."""
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(Any, file))


def read_whole(file: io.BufferedReader, size: int) -> tuple[bytes, bool]:
    """(`size` bytes, or those that are left; whether it is damaged behind them)."""
    found = bytearray()
    try:
        while len(found) < size and (piece := file.read1(size - len(found))):
            found += piece
    except Damaged:
        return bytes(found), True
    return bytes(found), False


def decompressed(data: bytes, most: int) -> bytes:
    """One value that is compressed with zstd.

    Raises:
        ValueError: it is cut or damaged, or larger than `most` bytes.
        TaskHistoryError: the package for zstd is not installed.
    """
    found, damaged = read_whole(opened(io.BytesIO(data)), most + 1)
    if damaged:
        raise ValueError("compressed data that is cut or damaged")
    if len(found) > most:
        raise ValueError(f"longer than {most} bytes")
    return found


class _Part(Protocol):
    """One compressed part of a file, as zlib and zstandard have them."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip() -> _Part:
    return cast(_Part, zlib.decompressobj(wbits=31))


def _zstd(file: BinaryIO | io.BytesIO) -> _Decompressed:
    try:
        import zstandard
    except ImportError as error:
        raise TaskHistoryError(
            "this file is compressed with zstd, which needs one more package:"
            " pip install 'otel-taskhistory[otlp]'"
        ) from error
    context = zstandard.ZstdDecompressor()
    return _Decompressed(file, lambda: cast(_Part, context.decompressobj()), zstandard.ZstdError)


class _Decompressed(io.RawIOBase):
    """Decompresses part after part; unlike the packages' own readers it loses nothing before a cut.

    Args:
        file: what is compressed.
        begin: begins a part.
        error: what a damaged one raises.
    """

    def __init__(
        self,
        file: BinaryIO | io.BytesIO,
        begin: Callable[[], _Part],
        error: type[Exception],
    ) -> None:
        self._file = file
        self._begin = begin
        self._error = error
        self._part: _Part | None = None
        self._any = False
        self._left = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        while not self._ready:
            given = self._left or self._file.read(_INPUT)
            self._left = b""
            if not given:
                if self._part is not None:
                    raise Damaged("a part is cut")
                return 0
            if self._part is None:
                given = given.lstrip(b"\0") if self._any else given  # files are filled up with it
                if not given:
                    continue
                self._part, self._any = self._begin(), True
            try:
                self._ready = memoryview(self._part.decompress(given))
            except self._error as error:
                raise Damaged("a part is damaged") from error
            if self._part.eof:
                self._left = self._part.unused_data
                self._part = None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size
