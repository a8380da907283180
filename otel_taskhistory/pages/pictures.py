# SPDX-License-Identifier: Apache-2.0
"""Recorded pictures made smaller, to be shown or sent on; Pillow is loaded when one is made.

A picture is decoded only when its header is sound and within the pixel limit, and only as one of
the raster types we know. What comes out has no metadata.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from otel_taskhistory.images import inspect

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")

TALL: Final = 4
"""Of a picture that is more than so many times as high as wide its top is taken."""


def opened(data: bytes, width: int, height: int) -> Image | None:
    """A picture as RGB or RGBA, upright, and made smaller to fit into `width` by `height`.

    Returns:
        None when it is no picture that can be shown, or is damaged.
    """
    from PIL import Image, ImageOps

    if inspect(data).status != "ok":
        return None
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            image.draft("RGB", (width, height))  # JPEG: decodes no more than is needed
            image.load()
            upright = _plain(ImageOps.exif_transpose(image))
    # What Pillow raises on damaged files: OSError, SyntaxError, struct.error, EOFError, ...
    except Exception:
        return None
    if upright.height > TALL * upright.width:  # as a whole it would be a line
        upright = upright.crop((0, 0, upright.width, TALL * upright.width))
    if upright.width > width or upright.height > height:
        upright.thumbnail((width, height), Image.Resampling.LANCZOS, reducing_gap=3.0)
    return upright


def shrunk(data: bytes, width: int, height: int, *, quality: int = 80) -> tuple[bytes, str] | None:
    """(a WebP that fits into `width` by `height`, its media type), or None: see `opened`."""
    image = opened(data, width, height)
    if image is None:
        return None
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return buffer.getvalue(), "image/webp"


def _plain(image: Image) -> Image:
    """The picture in 8 bits of red, green and blue, and alpha where it has some."""
    if image.mode.startswith("I;16") or image.mode == "I":
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.mode in ("LA", "La", "PA", "RGBa", "RGBA") or "transparency" in image.info:
        return image.convert("RGBA")
    return image.convert("RGB")
