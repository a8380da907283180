# SPDX-License-Identifier: Apache-2.0
"""Values with the pictures taken out of them: data URLs, base64 of a picture, bytes of one.

In its place stands what it was: ``[image/png, 5120 bytes, sha256 …]``. The digest is that of the
artifact in the local history. Whether something is a picture its first bytes tell, not its label.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from otel_taskhistory.images import inspect
from otel_taskhistory.spans.record import Attributes

_DEEPEST: Final = 200
_SHORTEST: Final = 24
_HEAD: Final = 512  # characters of base64 that are read to tell what it is

_DATA_URL: Final = re.compile(
    r"data:(image\\{0,8}+/[A-Za-z0-9.+-]{1,40}+)(?:;[A-Za-z0-9=_.+-]{1,60}+){0,4}(?:,|%2C)"
    r"([^\s\"'`\\]*+(?:\\{1,8}+(?:/|[rn]|u00[23][0-9A-Fa-f])[^\s\"'`\\]*+)*+)",
    re.IGNORECASE,
)
"""A picture as a URL, whatever the encoding of its data, also within JSON within JSON."""
_LETTERS: Final = r"(?:[A-Za-z0-9+/_-]++|\\{1,8}+/)"
_NEXT_LINE: Final = r"(?:\\{1,8}+[rn]|[\r\n]){1,4}[ \t]{0,8}"
_RUN: Final = re.compile(
    rf"(?<![A-Za-z0-9+/_-])(?=(?:[A-Za-z0-9+/_-]|\\{{1,8}}+/){{20}}){_LETTERS}++"
    rf"(?:{_NEXT_LINE}(?=[A-Za-z0-9+/_-]{{16}}){_LETTERS}++)*+"
    rf"(?:{_NEXT_LINE}[A-Za-z0-9+/_-]{{1,15}}+(?==|\Z))?(?:=|%3D){{0,2}}+"
)
"""Base64 of either alphabet, also broken into lines, also with its slashes escaped."""
_BEGINNING: Final = re.compile(r"iVBORw0KGgo|/9j/[24]|R0lGOD[dl]|UklGR")
"""How the base64 of PNG, JPEG, GIF and WebP begins."""
_NOT_BASE64: Final = re.compile(r"\\{1,8}+[rn]|[^A-Za-z0-9+/]+")
_URL_SAFE: Final = str.maketrans("-_", "+/")
_HEIF: Final = (b"heic", b"heix", b"mif1", b"msf1", b"hevc")


def without_pictures(attributes: Attributes) -> Attributes:
    """Attributes without the pictures in their values; the same object when there are none."""
    changed: Attributes = _value(attributes, 0)
    return changed


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return text_without_pictures(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        kind = _kind(data[:_HEAD])
        return value if kind is None else _told(kind, data).encode()
    if depth >= _DEEPEST:
        return None  # what cannot be looked through does not pass
    if isinstance(value, Mapping):
        items = {key: _value(item, depth + 1) for key, item in value.items()}
        return value if all(new is value[key] for key, new in items.items()) else items
    if isinstance(value, list | tuple):
        seen = [_value(item, depth + 1) for item in value]
        if all(new is old for new, old in zip(seen, value, strict=True)):
            return value
        return tuple(seen) if isinstance(value, tuple) else seen
    return value


def text_without_pictures(text: str) -> str:
    """A text, also JSON, with the pictures in it taken out; JSON stays JSON."""
    if len(text) < _SHORTEST:
        return text
    changed = _DATA_URL.sub(_told_of_url, text) if "data:" in text.lower() else text
    changed = _RUN.sub(_told_of_run, changed)
    return text if changed == text else changed


def _told_of_url(found: re.Match[str]) -> str:
    media_type = found[1].replace("\\", "").lower()
    data = _decoded(found[2])
    return _told(media_type, found[2].encode("utf-8", "replace") if data is None else data)


def _told_of_run(found: re.Match[str]) -> str:
    run = found[0]
    begins = 0
    kind = _kind_of_run(run)
    if kind is None and (inside := _BEGINNING.search(run)) is not None:
        # What stands before it may look like base64 too: a word, a path.
        begins = inside.start()
        kind = _kind_of_run(run[begins:])
    return run if kind is None else run[:begins] + _told(kind, _decoded(run[begins:]) or b"")


def _kind_of_run(run: str) -> str | None:
    head = _decoded(run[:_HEAD])
    return None if head is None else _kind(head)


def _decoded(run: str) -> bytes | None:
    plain = _NOT_BASE64.sub("", run.replace("%3D", "").translate(_URL_SAFE))
    plain = plain[: len(plain) // 4 * 4 + (0, 0, 2, 3)[len(plain) % 4]]
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _kind(head: bytes) -> str | None:
    """The media type of a picture that begins so; None when none does."""
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF:
        return "image/heic"
    media_type = inspect(head).media_type
    return media_type if media_type.startswith("image/") else None


def _told(media_type: str, data: bytes) -> str:
    return f"[{media_type}, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}]"
