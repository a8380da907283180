# SPDX-License-Identifier: Apache-2.0
"""Pictures made smaller: right in colour and orientation, without metadata, never a danger."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from otel_taskhistory.pages.pictures import opened, shrunk
from tests.recorded import PICTURES


def picture(name: str) -> bytes:
    """A file of the test data."""
    return (PICTURES / name).read_bytes()


NAMES = sorted(path.name for path in PICTURES.iterdir() if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_no_picture_of_the_test_data_does_harm(name: str) -> None:
    """It is either made smaller, as a WebP without metadata, or refused."""
    made = shrunk(picture(name), 64, 64)
    if made is not None:
        with Image.open(io.BytesIO(made[0])) as image:
            assert image.format == "WEBP"
            assert max(image.size) <= 64
            assert not image.getexif()
            assert "icc_profile" not in image.info


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 50])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    """Nothing is decoded that does not look like a picture."""
    assert opened(data, 10, 10) is None


def test_a_16_bit_grey_keeps_its_range() -> None:
    """Half of 65,535 is a middle grey, not white."""
    buffer = io.BytesIO()
    Image.new("I;16", (8, 8), 32768).save(buffer, "PNG")
    image = opened(buffer.getvalue(), 8, 8)
    assert image is not None
    assert abs(image.getpixel((4, 4))[0] - 128) <= 1  # type: ignore[index]


def test_a_rotated_photo_is_upright() -> None:
    """The orientation that EXIF says is applied before it goes."""
    buffer = io.BytesIO()
    image = Image.new("RGB", (40, 20), "red")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(buffer, "JPEG", exif=exif)
    turned = opened(buffer.getvalue(), 100, 100)
    assert turned is not None
    assert turned.size == (20, 40)


def test_transparency_is_kept(tmp_path: Path) -> None:
    """A see-through picture stays so."""
    buffer = io.BytesIO()
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(buffer, "PNG")
    made = opened(buffer.getvalue(), 8, 8)
    assert made is not None
    assert made.mode == "RGBA"


def test_of_a_very_tall_picture_the_top_is_taken() -> None:
    """As a whole it would be a line; one that is three times as high as wide stays whole."""
    image = Image.new("RGB", (50, 3_000), "blue")
    image.paste("yellow", (0, 0, 50, 100))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    made = opened(buffer.getvalue(), 1_280, 1_280)
    assert made is not None
    assert made.size == (50, 200)
    assert made.getpixel((25, 99)) == (255, 255, 0)
    buffer = io.BytesIO()
    Image.new("RGB", (50, 150)).save(buffer, "PNG")
    made = opened(buffer.getvalue(), 1_280, 1_280)
    assert made is not None
    assert made.size == (50, 150)
