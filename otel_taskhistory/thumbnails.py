# SPDX-License-Identifier: Apache-2.0
"""Small pictures for looking at: made of one picture's bytes, or a placeholder; never an exception.

Whatever a page, a tool or a model made may be handed in. The header decides before a pixel is
decoded; of animations the first frame is taken; the result is a new picture without any metadata.
Pillow is imported when the first thumbnail is made, and none of its globals is touched.
"""

from __future__ import annotations

import io
import logging
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from otel_taskhistory.images import MAX_PIXELS, inspect

__all__ = ["DEFAULT_SIZE", "MAX_BYTES", "SIZES", "Thumbnail", "make_thumbnail", "placeholder"]

SIZES: Final = (160, 320, 640)
"""Widths in pixels that there are; few, so that nobody can have thousands of each picture made."""

DEFAULT_SIZE: Final = 320

MAX_BYTES: Final = 64 * 2**20
"""Files that are larger get a placeholder: they would have to be in memory as a whole."""

_TALL: Final = 2
"""A picture that is more than so many times as high as wide shows its top: scaled down as a whole,
a page of 500 x 70,000 would be a line."""
_WIDE: Final = 4
"""Likewise for its left part."""

_SMALL_PIXELS: Final = 8 * 2**20
"""More than these (a 4K screen has as many) are decoded one picture at a time: up to 256 MiB."""

_BAND_PIXELS: Final = 2**20
_QUALITY: Final = 80
_PAPER: Final = (255, 255, 255)
_FORMATS: Final = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
}
_ORIENTATION: Final = 0x0112
_TURNS: Final = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What EXIF's orientation means, as Pillow names it."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture, ready to be served."""

    data: bytes
    media_type: str
    """``image/jpeg``; ``image/png`` for a placeholder."""
    width: int
    height: int
    shows: bool
    """False when it is a placeholder."""


def make_thumbnail(data: bytes, width: int = DEFAULT_SIZE) -> Thumbnail:
    """A picture of at most `width` pixels' width and twice that height; never enlarged.

    Never raises for anything in `data`: what cannot be shown (broken, too large, no raster picture)
    is a `placeholder`. Memory: the file, and 256 MiB at most for all large pictures together.

    Raises:
        ValueError: `width` is none of `SIZES`.
    """
    if width not in SIZES:
        raise ValueError(f"width={width!r} is none of {', '.join(map(str, SIZES))}")
    info = inspect(data)
    if info.status != "ok" or len(data) > MAX_BYTES or info.media_type not in _FORMATS:
        return placeholder(width)
    assert info.width is not None  # an ok picture has a size
    assert info.height is not None
    make = _made if info.width * info.height <= _SMALL_PIXELS else _made_alone
    try:
        return make(data, _FORMATS[info.media_type], width)
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error, SystemError, …
        _logger.debug("otel-taskhistory: no thumbnail: %s", type(error).__name__)
        return placeholder(width)


@cache
def placeholder(width: int) -> Thumbnail:
    """A grey picture with a cross, for what cannot be shown; made without Pillow."""
    height = width * 5 // 8
    rows = bytearray()
    for y in range(height):
        row = bytearray(b"\xd8" * width)
        for x in (y * width // height, width - 1 - y * width // height):
            row[x : x + 2] = b"\xb0" * len(row[x : x + 2])
        rows += b"\0" + row
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return Thumbnail(data, "image/png", width, height, shows=False)


def _made_alone(data: bytes, kind: str, width: int) -> Thumbnail:
    """One after the other, all in the same thread.

    The C library keeps the memory that a thread has freed for that thread. (Six threads that took
    turns were seen to keep 490 MiB, for one picture of 64 MiB at a time.)
    """
    return _thread_for_large_ones(os.getpid()).submit(_made, data, kind, width).result()


@lru_cache(maxsize=1)
def _thread_for_large_ones(process: int) -> ThreadPoolExecutor:
    """Of this process: a forked child has none of its parent's threads."""
    return ThreadPoolExecutor(1, "taskhistory-large-picture")


def _made(data: bytes, kind: str, width: int) -> Thumbnail:
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=(kind,)) as image:
        # Pillow's own idea of the size counts as well: it is what will be allocated.
        if image.width * image.height > MAX_PIXELS or min(image.size) < 1:
            return placeholder(width)
        turn = _turn(image)
        sideways = turn is not None and turn >= 5
        target, shown = _target(*(image.size[::-1] if sideways else image.size), width)
        if sideways:
            target, shown = target[::-1], shown[::-1]
        part = _part(shown, turn, image.size)
        if kind == "JPEG":  # lets the decoder leave out detail: less memory, less time
            across, down = (
                2 * t * own // p for t, own, p in zip(target, image.size, shown, strict=True)
            )
            image.draft(None, (across, down))
        small = _scaled(image, part, target)
    if turn is not None:
        small = small.transpose(Image.Transpose[_TURNS[turn]])
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return Thumbnail(buffer.getvalue(), "image/jpeg", small.width, small.height, shows=True)


def _turn(image: Any) -> int | None:
    """EXIF's orientation, None when the picture is upright or does not say it soundly."""
    try:
        turn = image.getexif().get(_ORIENTATION)
    except Exception:  # whatever is wrong with it, the picture is another matter
        return None
    return turn if isinstance(turn, int) and turn in _TURNS else None


def _target(width: int, height: int, limit: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(size of the thumbnail, size of the part of the upright picture that it shows)."""
    part = (min(width, height * _WIDE), min(height, width * _TALL))
    scale = min(1.0, limit / part[0])
    return (max(1, round(part[0] * scale)), max(1, round(part[1] * scale))), part


def _part(
    shown: tuple[int, int], turn: int | None, whole: tuple[int, int]
) -> tuple[float, float, float, float]:
    """Where the upper left part of the upright picture lies in the stored one: fractions of it."""
    across, down = shown[0] / whole[0], shown[1] / whole[1]
    # Where the upper left corner of the upright picture is in the stored one.
    from_right = turn in (2, 3, 7, 8)
    from_bottom = turn in (3, 4, 6, 7)
    left = 1 - across if from_right else 0.0
    upper = 1 - down if from_bottom else 0.0
    return left, upper, left + across, upper + down


def _scaled(image: Any, part: tuple[float, float, float, float], target: tuple[int, int]) -> Any:
    """That part of a picture as a new RGB picture of the size `target`, band by band.

    A picture of many pixels is never held a second time in another mode.
    """
    from PIL import Image

    image.load()
    width, height = image.size
    left, upper = round(part[0] * width), round(part[1] * height)
    right, lower = max(left + 1, round(part[2] * width)), max(upper + 1, round(part[3] * height))
    factor = max(1, min((right - left) // target[0], (lower - upper) // target[1]) // 2)
    columns, rows = -(-(right - left) // factor), -(-(lower - upper) // factor)
    small = Image.new("RGB", (columns, rows))
    step = max(1, _BAND_PIXELS // ((right - left) * factor)) * factor
    stretch = _stretch(image)
    for top in range(upper, lower, step):
        band = image.crop((left, top, right, min(top + step, lower)))
        flat = _flat(band, image, stretch)
        small.paste(flat.reduce(factor) if factor > 1 else flat, (0, (top - upper) // factor))
    return small.resize(target, Image.Resampling.LANCZOS)


def _stretch(image: Any) -> tuple[float, float] | None:
    """(factor, offset) for modes whose values have no fixed range."""
    mode: str = image.mode
    if mode.startswith("I;16"):
        return 1 / 257, 0.0
    if mode not in ("I", "F"):
        return None
    low, high = image.getextrema()
    if mode == "I" and low >= 0 and high <= 65535:
        return 1 / 257, 0.0
    if mode == "F" and low >= 0 and 1 < high <= 255:
        return 1.0, 0.0
    factor = 255 / ((high - low) or 1)
    return factor, -low * factor


def _flat(band: Any, image: Any, stretch: tuple[float, float] | None) -> Any:
    """A band in RGB, what is transparent on white."""
    from PIL import Image

    if stretch is not None:
        factor, offset = stretch
        wide = band.convert("I") if band.mode.startswith("I;16") else band
        # Pillow runs the function once, on a symbol: it must stay of the form value * a + b.
        return wide.point(lambda value: value * factor + offset).convert("L").convert("RGB")
    see_through = "transparency" in image.info or band.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    if not see_through:
        return band.convert("RGB")
    if "transparency" in image.info:
        band.info["transparency"] = image.info["transparency"]
    clear = band.convert({"La": "LA", "RGBa": "RGBA"}.get(band.mode, band.mode)).convert("RGBA")
    paper = Image.new("RGBA", band.size, (*_PAPER, 255))
    return Image.alpha_composite(paper, clear).convert("RGB")
