# SPDX-License-Identifier: Apache-2.0
"""Thumbnails of whatever a page, a tool or a model made: small, upright, the colours right."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, PngImagePlugin

from otel_taskhistory import thumbnails
from otel_taskhistory.images import MAX_PIXELS
from otel_taskhistory.thumbnails import MAX_BYTES, SIZES, make_thumbnail, placeholder
from tests.recorded import PICTURES

ROOT = Path(__file__).parents[2]

SHOWN = {
    "gif_3frames.gif": (60, 40),
    "jpeg_cmyk.jpg": (160, 100),
    "jpeg_exif_rotated_6.jpg": (100, 160),
    "jpeg_gray.jpg": (160, 100),
    "jpeg_named.png": (160, 100),
    "png_16bit_gray_ramp.png": (256, 64),
    "png_1bit.png": (160, 100),
    "png_8k_palette.png": (320, 180),
    "png_bad_crc.png": (160, 100),
    "png_named.jpg": (160, 100),
    "png_ok.png": (160, 100),
    "png_palette_transparency_bytes.png": (160, 100),
    "png_rgba.png": (160, 100),
    "png_tall_500x70000.png": (320, 640),
    "png_text_chunk_secret.png": (160, 100),
    "png_trailing_html.png": (160, 100),
    "webp_3frames.webp": (60, 40),
}
"""Each picture that can be seen, and the size of its thumbnail of 320."""


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    """An image as a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def opened(data: bytes, width: int = 320) -> Any:
    """The thumbnail of these bytes as an image in RGB."""
    made = make_thumbnail(data, width)
    assert made.shows
    return Image.open(io.BytesIO(made.data)).convert("RGB")


def near(one: tuple[int, ...], other: tuple[int, ...], by: int = 12) -> bool:
    """Whether two colours are the same to the eye."""
    return all(abs(a - b) <= by for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_each_picture_is_seen_or_a_placeholder(path: Path) -> None:
    """In the size that was asked for at most; what cannot be decoded is grey, never an error."""
    for width in SIZES:
        made = make_thumbnail(path.read_bytes(), width)
        image = Image.open(io.BytesIO(made.data))
        image.load()
        assert image.size == (made.width, made.height)
        assert made.width <= width
        assert made.height <= 2 * width
        assert made.shows == (path.name in SHOWN)
        assert made.media_type == ("image/jpeg" if made.shows else "image/png")
        assert len(made.data) < 60_000
    made = make_thumbnail(path.read_bytes())
    assert (made.width, made.height) == SHOWN.get(path.name, (320, 200))


def test_a_placeholder_is_the_same_for_all() -> None:
    """It tells nothing of what it stands for, and is made without Pillow."""
    assert make_thumbnail(b"") == make_thumbnail(b"<svg/>") == placeholder(320)
    assert not placeholder(160).shows


def test_other_widths_are_refused() -> None:
    """Each would be another picture to make and to keep."""
    for width in (0, 1, 161, -320, 100_000):
        with pytest.raises(ValueError, match="none of 160, 320, 640"):
            make_thumbnail(b"", width)


def test_colours_are_right_in_every_kind_of_picture() -> None:
    """The picture of the test data has red to the right, whatever it is stored as."""
    reference = opened((PICTURES / "png_ok.png").read_bytes())
    for name in ("jpeg_cmyk.jpg", "jpeg_named.png", "png_rgba.png", "png_bad_crc.png"):
        image = opened((PICTURES / name).read_bytes())
        for place in ((16, 50), (80, 50), (144, 50)):
            assert near(image.getpixel(place), reference.getpixel(place)), (name, place)


def test_sixteen_bits_keep_their_greys() -> None:
    """A ramp of 16 bits is a ramp, not white."""
    image = opened((PICTURES / "png_16bit_gray_ramp.png").read_bytes())
    row = [image.getpixel((x, 32))[0] for x in range(0, 256, 16)]
    assert row == sorted(row)
    assert all(near((grey,), (x,)) for grey, x in zip(row, range(0, 256, 16), strict=True))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_large_picture_of_every_mode_is_scaled_band_by_band(mode: str) -> None:
    """Its four corners are where they were."""
    corners = Image.new("RGB", (3_000, 2_000))
    colours = {(0, 0): 0, (1_500, 0): 255, (0, 1_000): 255, (1_500, 1_000): 0}
    for (left, top), grey in colours.items():
        corners.paste((grey, grey, grey), (left, top, left + 1_500, top + 1_000))
    if mode == "I;16":
        image = corners.convert("L").convert("I").point(lambda value: value * 257).convert("I;16")
    else:
        image = corners.convert(mode)
    small = opened(encoded(image))
    assert small.size == (320, 213)
    for (left, top), grey in colours.items():
        place = (left * 320 // 3_000 + 80, top * 213 // 2_000 + 50)
        assert near(small.getpixel(place), (grey,) * 3), place


def test_what_is_transparent_is_white() -> None:
    """Whether it is an alpha channel, a palette entry or one colour."""
    clear = Image.new("RGBA", (40, 40), (255, 0, 0, 0))
    assert near(opened(encoded(clear)).getpixel((20, 20)), (255, 255, 255))
    palette = Image.new("P", (40, 40), 1)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    assert near(opened(encoded(palette, transparency=1)).getpixel((20, 20)), (255, 255, 255))
    coloured = Image.new("RGB", (40, 40), (9, 8, 7))
    keyed = encoded(coloured, transparency=(9, 8, 7))
    assert near(opened(keyed).getpixel((20, 20)), (255, 255, 255))


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("PNG", (300, 200)),
        ("WEBP", (300, 200)),
        ("JPEG", (300, 200)),
        ("JPEG", (1_200, 100)),
        ("JPEG", (100, 1_200)),
        ("JPEG", (1_500, 1_000)),
    ],
)
def test_orientation_is_honoured(turn: int, kind: str, size: tuple[int, int]) -> None:
    """The thumbnail is that of the picture turned upright, also when only a part is shown."""
    upright = Image.new("RGB", size, (0, 0, 0))
    width, height = size
    upright.paste((255, 0, 0), (0, 0, width // 2, height // 2))
    upright.paste((0, 255, 0), (width // 2, 0, width, height // 2))
    upright.paste((0, 0, 255), (0, height // 2, width // 2, height))
    ways = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # the inverse of what a viewer does
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(ways[turn]) if turn in ways else upright
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = turn
    options = {"quality": 95} if kind != "PNG" else {}
    turned = opened(encoded(stored, kind, exif=exif, **options), 160)
    straight = opened(encoded(upright, kind, **options), 160)
    assert turned.size == straight.size
    for x in (0.1, 0.9):
        for y in (0.1, 0.9):
            place = (int(turned.width * x), int(turned.height * y))
            assert near(turned.getpixel(place), straight.getpixel(place), 25), place


def test_a_tall_picture_shows_its_top_and_a_wide_one_its_left() -> None:
    """As a whole they would be lines."""
    tall = Image.new("RGB", (100, 10_000), (0, 0, 255))
    tall.paste((255, 0, 0), (0, 0, 100, 200))
    assert near(opened(encoded(tall)).getpixel((50, 199)), (255, 0, 0), 40)
    wide = tall.transpose(Image.Transpose.TRANSPOSE)
    small = opened(encoded(wide))
    assert small.size == (320, 80)
    assert near(small.getpixel((10, 40)), (255, 0, 0), 40)


def test_nothing_but_pixels_is_left() -> None:
    """No place, camera, comment, text or colour profile."""
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "secret camera"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[1] = "N"
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "secret text")
    image = Image.new("RGB", (400, 300), (1, 2, 3))
    for data in (
        encoded(image, "JPEG", exif=exif, comment=b"secret comment", icc_profile=b"secret icc"),
        encoded(image, "PNG", exif=exif, pnginfo=text),
        (PICTURES / "png_text_chunk_secret.png").read_bytes(),
        (PICTURES / "png_trailing_html.png").read_bytes(),
    ):
        made = make_thumbnail(data)
        assert made.shows
        small = Image.open(io.BytesIO(made.data))
        assert b"secret" not in made.data
        assert b"<script" not in made.data
        assert not small.getexif()
        assert set(small.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, about the EXIF
def test_a_bad_orientation_does_not_cost_the_picture() -> None:
    """EXIF that cannot be read is none."""
    for payload in (
        b"Exif\0\0garbage",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
    ):
        data = encoded(Image.new("RGB", (40, 30), (200, 0, 0)), "JPEG", exif=payload)
        assert opened(data).size == (40, 30)


def test_nothing_is_decoded_that_the_header_says_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by its pixels nor by its bytes: Pillow is not even asked."""
    monkeypatch.setattr(thumbnails, "_made", lambda *_: pytest.fail("it was decoded"))
    for name in ("png_bomb_20000x20000.png", "png_bomb_warn_10000x10000.png"):
        assert not make_thumbnail((PICTURES / name).read_bytes()).shows
    sound = (PICTURES / "png_ok.png").read_bytes()
    assert not make_thumbnail(sound + b"\0" * MAX_BYTES).shows


def test_large_pictures_are_in_memory_one_at_a_time() -> None:
    """However many are asked for at once; and those that are larger still are not decoded."""
    program = """
import io, resource, threading
from PIL import Image
from otel_taskhistory.thumbnails import make_thumbnail

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

buffer = io.BytesIO()
Image.new("RGBA", (4096, 4096), (1, 2, 3, 4)).save(buffer, "PNG", compress_level=1)
before, made = peak(), []
threads = [
    threading.Thread(target=lambda: made.append(make_thumbnail(buffer.getvalue(), 160)))
    for _ in range(6)
]
for thread in threads: thread.start()
for thread in threads: thread.join()
print([one.shows for one in made] == [True] * 6, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    shown, grown = done.stdout.split()
    assert shown == "True"
    # The image that was encoded had as many pixels: what one takes is there before.
    assert int(grown) < 2 * 64, "MiB: 6 at a time would be 6 times 64"
    assert MAX_PIXELS * 4 == 2**28


@settings(max_examples=60)
@given(st.sampled_from(sorted(SHOWN)), st.integers(0, 2**32), st.integers(1, 40))
def test_damaged_pictures_raise_nothing(name: str, seed: int, changes: int) -> None:
    """Whatever bytes are flipped, cut or added."""
    if name in ("png_8k_palette.png", "png_tall_500x70000.png"):
        return
    chance = random.Random(seed)
    data = bytearray((PICTURES / name).read_bytes())
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.randrange(256)
    cut = bytes(data[: chance.randrange(len(data)) + 1])
    for damaged in (bytes(data), cut, cut + cut):
        made = make_thumbnail(damaged, 160)
        assert made.width <= 160
        assert made.height <= 320


def test_a_text_bomb_in_a_sound_picture_is_a_placeholder() -> None:
    """A compressed text of many megabytes is not unpacked."""
    sound = (PICTURES / "png_ok.png").read_bytes()
    content = b"k\0\0" + zlib.compress(b"\0" * 100_000_000)
    chunk = b"zTXt" + content
    at = sound.index(b"IDAT") - 4
    bomb = (
        sound[:at]
        + len(content).to_bytes(4, "big")
        + chunk
        + zlib.crc32(chunk).to_bytes(4, "big")
        + sound[at:]
    )
    assert make_thumbnail(bomb) in (placeholder(320), make_thumbnail(sound))


def test_importing_it_loads_no_pillow() -> None:
    """Only the first thumbnail does."""
    program = "import sys, otel_taskhistory.thumbnails; print('PIL' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
