# SPDX-License-Identifier: Apache-2.0
"""Files that may be compressed with gzip or zstd, read in flat memory whatever they expand to."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO, Final, cast

from otel_taskhistory.errors import TaskHistoryError

DAMAGED: Final = (EOFError, gzip.BadGzipFile, zlib.error)
"""Raised by reading where a compressed file is cut or damaged; what came before is good."""

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"

_INPUT: Final = 2048
"""Bytes that are decompressed at a time: of zstd these make 64 MiB at most."""


def opened(file: BinaryIO) -> io.BufferedReader:
    """The content of a file, decompressed if it is compressed; can be peeked into.

    Raises:
        TaskHistoryError: it is compressed with zstd, and the package for that is not installed.
    """
    around = buffered(file)
    start = around.peek(4)[:4]
    if start[:2] == GZIP:
        return buffered(cast(BinaryIO, gzip.GzipFile(fileobj=around)))
    if start == ZSTD:
        return io.BufferedReader(_Zstd(around))
    return around


def buffered(file: BinaryIO) -> io.BufferedReader:
    """The file, so that it can be peeked into."""
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(Any, file))


def decompressed(data: bytes, most: int) -> bytes:
    """One value that is compressed with zstd.

    Raises:
        ValueError: it is cut or damaged, or larger than `most` bytes.
        TaskHistoryError: the package for zstd is not installed.
    """
    with io.BufferedReader(_Zstd(io.BytesIO(data))) as reader:
        try:
            found = reader.read(most + 1)
        except DAMAGED:
            raise ValueError("compressed data that is cut or damaged") from None
    if len(found) > most:
        raise ValueError(f"longer than {most} bytes")
    return found


class _Zstd(io.RawIOBase):
    """Decompresses frame after frame; unlike the package's own reader it tells of a cut one."""

    def __init__(self, file: BinaryIO | io.BytesIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise TaskHistoryError(
                "this file is compressed with zstd, which needs one more package:"
                " pip install 'otel-taskhistory[otlp]'"
            ) from error
        self._file = file
        self._error = zstandard.ZstdError
        self._context = zstandard.ZstdDecompressor()
        self._frame: Any = None
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
                if self._frame is not None:
                    raise EOFError("a frame is cut")
                return 0
            if self._frame is None:
                self._frame = self._context.decompressobj()
            try:
                self._ready = memoryview(self._frame.decompress(given))
            except self._error as error:
                raise EOFError("a frame is damaged") from error
            if self._frame.eof:
                self._left = self._frame.unused_data
                self._frame = None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size
