# SPDX-License-Identifier: Apache-2.0
"""What a picture is, told from its header without decoding a pixel.

`inspect` runs on the agent's way: it reads a few dozen bytes (a few more where a format wants
walking) and never raises. Names and declared media types are not asked: both lie. Pillow is
imported only by `encode_pil`, which turns a PIL image into a PNG.
"""

from __future__ import annotations

import codecs
import io
import re
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

MAX_PIXELS: Final = 64 * 2**20
"""Pictures with more pixels are ``too_large``: 256 MiB once decoded to RGBA.

An 8K screen has 33 million, a full-page shot of 500 x 70,000 has 35 million, one of a 2,880 pixels
wide screen may be 23,000 pixels long. It lies below the size at which Pillow warns (89 million), so
that a later decode of an ``ok`` picture does not. Pillow's own limit is a global of the agent's
process: we neither set it nor rely on it.
"""

_COMPRESS_LEVEL: Final = 2
# Measured on 1920 x 1080 RGB against Pillow's default (level 6): a user interface 0.74 x the time
# and 1.25 x the size, a photo 0.37 x and 1.03 x. Level 1 gains no more time, level 3 costs the
# photo 1.3 x for 1 % of its size; Z_RLE, Z_HUFFMAN_ONLY and Z_FIXED are no faster and up to 8 x
# larger.

_MAX_SEGMENTS: Final = 20_000
# How far a file is walked. Real ones have some hundreds of segments (a PNG of 100 MB in chunks of
# 8 KiB has 12,800); a hostile one of zero-length segments must not hold up the agent.

_WINDOW: Final = 1024
# How much is looked at to tell kinds of text apart; browsers take 1,445 bytes at most.


@dataclass(frozen=True, slots=True)
class PictureInfo:
    """What the bytes say of themselves."""

    media_type: str
    """From the bytes; ``application/octet-stream`` when they match nothing we know."""
    width: int | None
    """In pixels as stored (EXIF rotation not applied); None when not known or not sound."""
    height: int | None
    """In pixels as stored; see `width`."""
    status: str
    """``ok`` (png, jpeg, gif or webp with a sound header and within `MAX_PIXELS`), ``too_large``,
    ``broken`` (one of these, but cut or unsound), ``empty``, or ``unsupported`` (all else)."""
    extension: str
    """For a file name, without the dot. ``bin`` for whatever a program could run or render as a
    document (svg, html, pdf): a name must not make a stored file active."""


_EXTENSIONS: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/bmp": "bmp",
    "image/tiff": "tif",
    "image/avif": "avif",
    "text/plain": "txt",
}


def inspect(data: bytes | bytearray | memoryview) -> PictureInfo:
    """Tell what `data` is. Never raises; copies nothing but the header.

    ``ok`` is what the header and a look at the structure tell; a picture whose pixels are damaged
    shows it only when it is decoded. A PNG, JPEG or WebP that was cut is ``broken``, one with
    something after its end is not; of a GIF only the part before its first frame is looked at.
    """
    view = _flat(data)
    if view is None:
        return PictureInfo("application/octet-stream", None, None, "unsupported", "bin")
    if not view:
        return PictureInfo("application/octet-stream", None, None, "empty", "bin")
    media_type = _media_type(bytes(view[:_WINDOW]), complete=len(view) <= _WINDOW)
    extension = _EXTENSIONS.get(media_type, "bin")
    reader = _READERS.get(media_type)
    if reader is None:
        return PictureInfo(media_type, None, None, "unsupported", extension)
    try:
        width, height, whole = reader(view)
    except (_UnsoundError, struct.error, IndexError):  # the latter two: it ends within its header
        return PictureInfo(media_type, None, None, "broken", extension)
    if width < 1 or height < 1:
        return PictureInfo(media_type, None, None, "broken", extension)
    if width * height > MAX_PIXELS:
        return PictureInfo(media_type, width, height, "too_large", extension)
    status = "ok" if whole else "broken"
    return PictureInfo(media_type, width, height, status, extension)


def is_pil_image(value: Any) -> bool:
    """True when `value` is a PIL image; does not import Pillow to find out."""
    # Without PIL.Image loaded there can be no such object. Its class may be missing while another
    # thread is importing it. type() and not isinstance(): that one runs the value's own code.
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def encode_pil(image: Any) -> bytes:
    """A PIL image as PNG: every pixel kept where PNG can hold the mode, fast before small.

    The first frame shown is taken. Of the metadata a colour profile stays, when the mode does.
    CMYK, YCbCr, HSV and LAB become RGB, premultiplied alpha becomes plain; I (32 bit) and F, whose
    range has no upper end, are kept when they fit and stretched over the grey scale when not.

    Raises:
        ValueError: Pillow cannot load or write it (a lazily opened file that is cut, no pixels at
            all), or it has more than `MAX_PIXELS`, which would hold up the agent for seconds.
    """
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ValueError(f"a picture of {width} x {height} pixels is too large to be encoded")
    buffer = io.BytesIO()
    options: dict[str, Any] = {"compress_level": _COMPRESS_LEVEL}
    try:
        if image.mode not in _PNG_MODES:
            image = _converted(image)
            options["icc_profile"] = None  # it was for the colour space that is gone
        image.save(buffer, "PNG", **options)
    except Exception as error:  # Pillow raises OSError, SyntaxError, struct.error, SystemError, …
        raise ValueError(f"cannot be written as PNG: {type(error).__name__}: {error}") from error
    return buffer.getvalue()


# --- PIL modes ---------------------------------------------------------------------------------

_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I;16B"})
_CONVERSIONS: Final = {"La": "LA", "RGBa": "RGBA", "PA": "RGBA"}


def _converted(image: Any) -> Any:
    """The image in a mode that PNG has."""
    mode: str = image.mode
    if mode.startswith("I;16"):
        return image.convert("I").convert("I;16")
    if mode not in ("I", "F"):
        return image.convert(_CONVERSIONS.get(mode, "RGB"))
    low, high = image.getextrema()
    if mode == "I":
        if low < 0 or high > 65535:
            image = _stretched(image, low, high, 65535)
        return image.convert("I;16")
    # Floats come as 0 to 255 (Pillow's own way) or in a range of the maker's choice, like 0 to 1.
    if not (low >= 0 and 1 < high <= 255):
        image = _stretched(image, low, high, 255)
    return image.convert("L")


def _stretched(image: Any, low: float, high: float, top: int) -> Any:
    factor = top / ((high - low) or 1)
    # Pillow runs the function once, on a symbol: it must stay of the form value * a + b.
    return image.point(lambda value: value * factor - low * factor)


# --- headers -----------------------------------------------------------------------------------


class _UnsoundError(Exception):
    """The header contradicts its format."""


def _flat(data: Any) -> memoryview | None:
    """The bytes of any buffer, without a copy where the buffer is in one piece."""
    try:
        view = memoryview(data)
        if view.nbytes == 0:
            return memoryview(b"")
        return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    except (TypeError, ValueError, BufferError):  # not a buffer, or one that was released
        return None


def _png(view: memoryview) -> tuple[int, int, bool]:
    kind, width, height = struct.unpack_from(">8s2I", view, 8)
    (checksum,) = struct.unpack_from(">I", view, 29)
    if kind != b"\0\0\0\rIHDR" or zlib.crc32(view[12:29]) != checksum:
        raise _UnsoundError
    return width, height, _png_is_whole(view)


_PNG_END: Final = b"\0\0\0\0IEND\xaeB`\x82"


def _png_is_whole(view: memoryview) -> bool:
    """True when the chunks lead to IEND; what follows it does not matter."""
    if bytes(view[-len(_PNG_END) :]) == _PNG_END:
        return True
    position = 8
    for _ in range(_MAX_SEGMENTS):
        if position + 12 > len(view):
            return False
        if bytes(view[position + 4 : position + 8]) == b"IEND":
            return True
        position += 12 + int.from_bytes(view[position : position + 4], "big")
    return True  # not walked to its end: nothing speaks against it


_JPEG_SIZES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # SOF0 … SOF15
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_JPEG_END: Final = re.compile(rb"\xff\xd9")


def _jpeg(view: memoryview) -> tuple[int, int, bool]:
    position = 2
    for _ in range(_MAX_SEGMENTS):
        if view[position] != 0xFF:
            raise _UnsoundError
        marker = view[position + 1]
        if marker == 0xFF:  # any number of fill bytes may stand before a marker
            position += 1
        elif marker in _JPEG_BARE:
            position += 2
        elif marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", view, position + 5)
            # Within the coded picture FF is never followed by D9, and a thumbnail with an end of
            # its own lies in a segment before this one.
            whole = bytes(view[-2:]) == b"\xff\xd9" or _JPEG_END.search(view, position) is not None
            return width, height, whole
        elif marker in (0xD9, 0xDA):  # end, or the picture itself, and no size so far
            raise _UnsoundError
        else:
            (length,) = struct.unpack_from(">H", view, position + 2)
            position += 2 + length
    raise _UnsoundError


def _gif(view: memoryview) -> tuple[int, int, bool]:
    """The logical screen, or the first frame where that is larger: decoders enlarge the canvas."""
    width, height, flags = struct.unpack_from("<2HB", view, 6)
    position = 13 + (6 << (flags & 7) if flags & 0x80 else 0)
    in_extension = False
    for _ in range(_MAX_SEGMENTS):
        byte = view[position]
        if in_extension:  # a row of blocks, each with its length before it; length 0 ends it
            position += 1 + byte
            in_extension = byte != 0
        elif byte == 0x21:
            position += 2
            in_extension = True
        elif byte == 0x2C:
            left, top, columns, rows = struct.unpack_from("<4H", view, position + 1)
            return max(width, left + columns), max(height, top + rows), True
        elif byte == 0x3B:  # ends before it has begun
            raise _UnsoundError
        else:
            position += 1  # stray bytes, skipped by decoders as well
    return width, height, True


def _webp(view: memoryview) -> tuple[int, int, bool]:
    size, kind = struct.unpack_from("<I4x4s", view, 4)
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", view, 24)
        width, height = 1 + low_w + (high_w << 16), 1 + low_h + (high_h << 16)
    elif kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", view, 20)
        if signature != 0x2F:
            raise _UnsoundError
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        start, width, height = struct.unpack_from("<3s2H", view, 23)
        if start != b"\x9d\x01\x2a" or view[20] & 1:  # not a key frame
            raise _UnsoundError
        width, height = width & 0x3FFF, height & 0x3FFF  # the upper bits ask for scaling
    else:
        raise _UnsoundError
    return width, height, size + 8 <= len(view)


_READERS: Final[dict[str, Callable[[memoryview], tuple[int, int, bool]]]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}


# --- kinds -------------------------------------------------------------------------------------

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0", "image/tiff"),
    (b"MM\0+", "image/tiff"),
    (b"%PDF-", "application/pdf"),
)
_BMP_HEADER_SIZES: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})


def _media_type(head: bytes, *, complete: bool) -> str:
    for signature, media_type in _SIGNATURES:
        if head.startswith(signature):
            return media_type
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "image/bmp"
    if head[4:8] == b"ftyp":
        brands = head[8 : int.from_bytes(head[:4], "big")]
        if any(brands[at : at + 4] in (b"avif", b"avis") for at in range(0, len(brands), 4)):
            return "image/avif"
    text = _text(head, complete=complete)
    return "application/octet-stream" if text is None else _text_type(text)


_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_PROLOGUE: Final = re.compile(r"(?:\s*(?:<\?.*?\?>|<!--.*?-->))*\s*", re.DOTALL)
_SVG: Final = re.compile(r"<(?:!doctype\s+)?svg[\s/>:]", re.IGNORECASE)
_HTML: Final = re.compile(  # what browsers take for the beginning of a page
    r"<(?:!doctype\s+html|html|head|body|script|iframe|style|title|meta|link|table|div|h1|font|img"
    r"|br|p|a|b)[\s/>]",
    re.IGNORECASE,
)


def _text(head: bytes, *, complete: bool) -> str | None:
    """The beginning as text, or None when it is not text (UTF-8, or UTF-16 with a mark)."""
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        # Incremental: the window may end within a character.
        text = codecs.getincrementaldecoder(encoding)().decode(head, complete)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def _text_type(text: str) -> str:
    prologue = _PROLOGUE.match(text)
    start = prologue.end() if prologue else 0
    if _SVG.match(text, start):
        return "image/svg+xml"
    return "text/html" if _HTML.match(text, start) else "text/plain"
