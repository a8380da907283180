# SPDX-License-Identifier: Apache-2.0
"""Pictures hidden in texts as base64: found, taken out, and put back exactly.

A picture stands in a text as a run of base64, in a ``data:`` URL or by itself, possibly within
JSON within JSON. Only a run whose bytes are a raster picture and whose encoding is canonical
(encoding the bytes again gives the same run) is taken out; in its place stays a reference of
fixed length, ``artifact:sha256:<64 hex digits>``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Final

REFERENCE: Final = "artifact:sha256:"
REFERENCE_LENGTH: Final = len(REFERENCE) + 64

# How base64 of a PNG, JPEG, GIF and RIFF (WebP) begins, where a run can begin; and what must not
# follow it, for then it is only a part of something that is not canonical: the URL-safe alphabet,
# escapes of URLs, escaped slashes and signs in JSON text.
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:iVBORw0KGgo|/9j/|R0lGOD[dl]h?|UklGR)[A-Za-z0-9+/]{16,}+={0,2}+"
    r"(?![A-Za-z0-9+/=_%-]|\\+(?:/|u00))"
)
_NEXT_LINE: Final = re.compile(r"(?:\\+[rn]|[\r\n])+[ \t]*([A-Za-z0-9+/]+)")
_LINE: Final = 76
"""Base64 that is broken into lines has lines of at most this length."""
_UNLIKE_WORDS: Final = 16
"""So many characters of the alphabet in a row are more base64 rather than a word after it."""
_BEGINNINGS: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")


@dataclass(frozen=True, slots=True)
class Found:
    """A picture and where its reference stands in the text that remains."""

    position: int
    sha256: str
    data: bytes


def might_hold_pictures(text: str) -> bool:
    """A quick no for the many texts without any picture."""
    png, jpeg, gif, webp = _BEGINNINGS
    return png in text or jpeg in text or gif in text or webp in text


def take_out(text: str) -> tuple[str, list[Found]]:
    """Replace each picture in `text` by its reference; also return what was found, in order."""
    if not might_hold_pictures(text):
        return text, []
    pieces: list[str] = []
    found: list[Found] = []
    copied = length = 0
    for run in _RUN.finditer(text):
        data = None if _is_first_line(text, run) else _decode(run[0])
        if data is None:
            continue
        before = text[copied : run.start()]
        digest = hashlib.sha256(data).hexdigest()
        found.append(Found(length + len(before), digest, data))
        pieces += (before, REFERENCE + digest)
        length += len(before) + REFERENCE_LENGTH
        copied = run.end()
    pieces.append(text[copied:])
    return "".join(pieces), found


def put_back(text: str, pictures: Iterable[tuple[int, bytes]]) -> str:
    """The inverse of `take_out`: `pictures` are (position, bytes) in order of position."""
    pieces: list[str] = []
    copied = 0
    for position, data in pictures:
        pieces += (text[copied:position], base64.b64encode(data).decode("ascii"))
        copied = position + REFERENCE_LENGTH
    pieces.append(text[copied:])
    return "".join(pieces)


def put_some_back(
    text: str, found: Iterable[Found], out: Container[int]
) -> tuple[str, list[Found]]:
    """Undo `take_out` but for the pictures whose position is in `out`; the rest, moved on."""
    pieces: list[str] = []
    rest: list[Found] = []
    copied = shift = 0
    for picture in found:
        if picture.position in out:
            rest.append(replace(picture, position=picture.position + shift))
            continue
        run = base64.b64encode(picture.data).decode("ascii")
        pieces += (text[copied : picture.position], run)
        copied = picture.position + REFERENCE_LENGTH
        shift += len(run) - REFERENCE_LENGTH
    pieces.append(text[copied:])
    return "".join(pieces), rest


def _is_first_line(text: str, run: re.Match[str]) -> bool:
    """Whether the base64 goes on in the next line."""
    if run[0].endswith("="):
        return False
    following = _NEXT_LINE.match(text, run.end())
    return following is not None and (len(run[0]) <= _LINE or len(following[1]) >= _UNLIKE_WORDS)


def _decode(run: str) -> bytes | None:
    if len(run) % 4:
        return None
    try:
        data = base64.b64decode(run, validate=True)
    except binascii.Error:  # not a picture but text that begins like one: it stays as it is
        return None
    return data if base64.b64encode(data).decode("ascii") == run else None
