# SPDX-License-Identifier: Apache-2.0
"""The body of a request, out of the network and out of its compression, within limits.

A body that is too large is given up on when that is known: by its announced length, else as soon
as more has come than is allowed. What it holds after decompression is measured first, piece by
piece, and only kept when it is not too much: a bomb costs a buffer and some processor time.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from otel_taskhistory.transport.receiver.answers import Refused
from otel_taskhistory.transport.receiver.room import Part
from otel_taskhistory.units import format_size

ENCODINGS: Final = ("identity", "gzip", "deflate")

SLOWEST: Final = 64 * 2**10
"""Bytes a second that a sender must manage, once its time for the beginning is over."""

_PIECE: Final = 64 * 2**10
_MOST_MEMBERS: Final = 1000
"""A gzip body may be of several parts, which may be empty: each costs time for nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sender may ask for."""

    body: int = 32 * 2**20
    """Bytes of a body as it was sent, at most."""
    decompressed: int = 64 * 2**20
    """Bytes that a body may hold when it is decompressed."""
    seconds: float = 20.0
    """How long a body may take; large ones get a second more for each `SLOWEST` bytes."""
    room: int = 128 * 2**20
    """Bytes of all bodies that are in memory at the same time; at least what one may take."""

    @property
    def total(self) -> int:
        """The room that there really is."""
        return max(self.room, self.body + self.decompressed)


def encoding_of(request: Request) -> str:
    """How the body is compressed.

    Raises:
        Refused: in a way that is not known here.
    """
    said = request.headers.get("content-encoding", "").strip().lower() or "identity"
    if said not in ENCODINGS:
        raise Refused(
            415,
            "this Content-Encoding is not understood here: use gzip, deflate or none",
            {"accept-encoding": "gzip, deflate"},
        )
    return said


def check_length(request: Request, limits: Limits) -> None:
    """See to it that the body is not announced as too large.

    Raises:
        Refused: it is.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:20]) > _most(encoding_of(request), limits):
        raise _too_large(request, limits)


async def read(
    request: Request, part: Part, limits: Limits, clocks: set[asyncio.Timeout]
) -> bytearray:
    """The body as it was sent.

    Args:
        request: its body was not touched yet.
        part: grows with it.
        limits: how large it may be, and how long it may take.
        clocks: holds, while it is read, what can be set to an earlier end.

    Raises:
        Refused: it is too large, or takes too long.
        starlette.requests.ClientDisconnect: the sender has gone.
        Full: there is no room for it now.
    """
    most = _most(encoding_of(request), limits)
    body = bytearray()
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began + limits.seconds) as clock:
            clocks.add(clock)
            try:
                async for piece in _pieces(request):
                    if len(body) + len(piece) > most:
                        raise _too_large(request, limits)
                    part.grow(len(piece))
                    body += piece
                    due = clock.when()
                    if due is not None:
                        clock.reschedule(due + len(piece) / SLOWEST)
            finally:
                clocks.discard(clock)
    except TimeoutError:
        raise Refused(408, "the body did not come in time") from None
    request.state.is_read = True
    return body


def is_read(request: Request) -> bool:
    """Whether nothing of the body is still to come."""
    return getattr(request.state, "is_read", False)


def decompressed(
    body: bytes | bytearray, encoding: str, part: Part, limits: Limits
) -> bytes | bytearray:
    """What a body holds.

    Raises:
        Refused: too much, or it is cut or damaged.
        Full: there is no room for it now.
    """
    if encoding == "identity":
        return body
    size = 0
    for piece in _inflated(body, encoding):
        size += len(piece)
        if size > limits.decompressed:
            raise Refused(
                413,
                f"the body holds more than {format_size(limits.decompressed)} when it is"
                " decompressed: send smaller batches, or receive with a larger --max-decompressed",
            )
    part.grow(size)
    found = bytearray()
    for piece in _inflated(body, encoding):
        found += piece
    return found


def _inflated(body: bytes | bytearray, encoding: str) -> Iterator[bytes]:
    """The content of a body, in small pieces.

    Raises:
        Refused: it is cut or damaged.
    """
    view, at, members = memoryview(body), 0, 0
    try:
        while at < len(body):
            members += 1
            if members > (_MOST_MEMBERS if encoding == "gzip" else 1):
                raise Refused(400, "the compressed body is damaged, or of too many parts")
            inflater = zlib.decompressobj(_window(body, encoding))
            while not inflater.eof:
                given = view[at : at + _PIECE]
                piece = inflater.decompress(given, _PIECE)
                at += len(given) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
                if not given and not piece and not inflater.eof:
                    raise Refused(400, "the compressed body is cut")
                yield piece
    except zlib.error:
        raise Refused(400, "the body is not what its Content-Encoding says, or damaged") from None


def _window(body: bytes | bytearray, encoding: str) -> int:
    """How zlib is to read it: HTTP's "deflate" has zlib's frame, but some senders leave it out."""
    if encoding == "gzip":
        return zlib.MAX_WBITS | 16
    framed = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return zlib.MAX_WBITS if framed else -zlib.MAX_WBITS


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        if piece:
            yield piece


def _most(encoding: str, limits: Limits) -> int:
    return min(limits.body, limits.decompressed) if encoding == "identity" else limits.body


def _too_large(request: Request, limits: Limits) -> Refused:
    most = _most(encoding_of(request), limits)
    option = "--max-body" if most == limits.body else "--max-decompressed"
    return Refused(
        413,
        f"the body is larger than {format_size(most)}: send smaller batches"
        f" (OTEL_BSP_MAX_EXPORT_BATCH_SIZE), or receive with a larger {option}",
    )
