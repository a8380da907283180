# SPDX-License-Identifier: Apache-2.0
"""What a screenshot event says when no history is there to store the picture: size and hash.

Never raises. Nothing is decoded: what the picture is and whether it is sound is found out where
pictures are stored.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Final

from otel_taskhistory.recording.sink import StoredPicture

MAX_BYTES: Final = 256 * 2**20
"""A larger file is not read; its size is said, and ``too_large``."""

_CHUNK: Final = 2**20
_NOTHING: Final = hashlib.sha256().hexdigest()
_UNKNOWN: Final = "application/octet-stream"
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)

EMPTY: Final = StoredPicture(_NOTHING, None, _UNKNOWN, None, None, 0, "empty")
"""There was no picture."""
UNRECORDED: Final = StoredPicture(_NOTHING, None, _UNKNOWN, None, None, 0, "not_stored")
"""Nobody looked at the picture, for nothing is recorded."""


def unstored(image: Any) -> StoredPicture:
    """Describe encoded bytes, a file by its path, or a PIL image, without storing it."""
    try:
        if image is None:
            return EMPTY
        if isinstance(image, (bytes, bytearray, memoryview)):
            return _of_bytes(bytes(image))
        if isinstance(image, (str, os.PathLike)):
            return _of_file(image)
        return _of_pixels(image)
    except Exception:
        # An unreadable file, or an object that is no picture at all; the event says so.
        kind = "broken" if isinstance(image, (str, os.PathLike)) else "unsupported"
        return StoredPicture(_NOTHING, None, _UNKNOWN, None, None, 0, kind)


def _of_bytes(data: bytes) -> StoredPicture:
    if not data:
        return EMPTY
    digest = hashlib.sha256(data).hexdigest()
    return StoredPicture(digest, None, _media_type(data), None, None, len(data), "not_stored")


def _of_file(path: str | os.PathLike[Any]) -> StoredPicture:
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):
        # Opening a pipe would wait for a writer.
        return StoredPicture(_NOTHING, None, _UNKNOWN, None, None, 0, "unsupported")
    if facts.st_size > MAX_BYTES:
        size = facts.st_size
        return StoredPicture(_NOTHING, None, _UNKNOWN, None, None, size, "too_large")
    digest, size, head = hashlib.sha256(), 0, b""
    with open(path, "rb") as file:
        # Bounded even when the file grows while it is read.
        while size < MAX_BYTES and (chunk := file.read(_CHUNK)):
            head = head or chunk[:16]
            digest.update(chunk)
            size += len(chunk)
    if not size:
        return EMPTY
    media_type = _media_type(head)
    return StoredPicture(digest.hexdigest(), None, media_type, None, None, size, "not_stored")


def _of_pixels(image: Any) -> StoredPicture:
    """A PIL image: it has no encoded bytes yet, so its raw pixels stand for it."""
    width, height = (int(side) for side in image.size)
    pixels = image.tobytes()
    digest = hashlib.sha256(pixels).hexdigest()
    return StoredPicture(digest, None, _UNKNOWN, width, height, len(pixels), "not_stored")


def _media_type(head: bytes) -> str:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if head.startswith(start)), _UNKNOWN)
