# SPDX-License-Identifier: Apache-2.0
"""Compressed files: part after part, in flat memory, and up to the byte where they are cut."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
from collections.abc import Callable

import pytest
import zstandard

from otel_taskhistory.spans.compressed import Damaged, decompressed, opened, read_whole


def zstd(data: bytes) -> bytes:
    """Compressed, in a frame."""
    return bytes(zstandard.ZstdCompressor().compress(data))


BOTH = pytest.mark.parametrize("compress", [gzip.compress, zstd])
NOISE = random.Random(7).randbytes(50_000)


@BOTH
def test_several_parts_are_one_file(compress: Callable[[bytes], bytes]) -> None:
    """Also an empty one, and with what files are filled up with behind them."""
    parts = [b"one ", b"", NOISE, b" end"]
    data = b"".join(map(compress, parts))
    assert opened(io.BytesIO(data)).read() == b"".join(parts)
    assert opened(io.BytesIO(data + b"\0" * 5_000)).read() == b"".join(parts)


@BOTH
def test_a_file_may_be_cut_anywhere(compress: Callable[[bytes], bytes]) -> None:
    """What can be read before that is read, and then it is told."""
    data = compress(NOISE)
    before = 0
    for size in (*range(3_000, len(data), 4_999), len(data) - 1):
        found, damaged = read_whole(opened(io.BytesIO(data[:size])), len(NOISE) + 1)
        assert damaged
        assert NOISE.startswith(found)
        assert len(found) >= before
        before = len(found)
    with pytest.raises(Damaged):
        opened(io.BytesIO(data[:-1])).read()


@BOTH
def test_damage_is_told(compress: Callable[[bytes], bytes]) -> None:
    """Within a part and behind it."""
    data = bytearray(compress(b"a" * 100))
    with pytest.raises(Damaged):
        opened(io.BytesIO(bytes(data) + b"garbage")).read()
    data[len(data) // 2] ^= 0xFF
    data[-3] ^= 0xFF
    with pytest.raises(Damaged):
        opened(io.BytesIO(bytes(data))).read()


@BOTH
def test_a_bomb_takes_no_memory(compress: Callable[[bytes], bytes]) -> None:
    """It is read piece by piece, whatever it expands to."""
    bomb = compress(b"\0" * 300 * 2**20)
    tracemalloc.start()
    try:
        content, size = opened(io.BytesIO(bomb)), 0
        while piece := content.read(2**16):
            size += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 300 * 2**20
    assert peak < 100 * 2**20


def test_one_value_is_bounded() -> None:
    """More than was allowed is refused before it is there."""
    assert decompressed(zstd(b"x" * 1_000), 1_000) == b"x" * 1_000
    with pytest.raises(ValueError, match="longer than 1000"):
        decompressed(zstd(b"x" * 2**28), 1_000)
    with pytest.raises(ValueError, match="cut or damaged"):
        decompressed(zstd(NOISE)[:-10], 10**6)
