# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import itertools
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, features

from otel_taskhistory.images import (
    MAX_PIXELS,
    PictureInfo,
    encode_pil,
    inspect,
    is_pil_image,
)

PICTURES = Path(__file__).parent / "data" / "pictures"

EXPECTED = {
    "gif_3frames.gif": PictureInfo("image/gif", 60, 40, "ok", "gif"),
    "html_named.png": PictureInfo("text/html", None, None, "unsupported", "bin"),
    "jpeg_cmyk.jpg": PictureInfo("image/jpeg", 160, 100, "ok", "jpg"),
    "jpeg_exif_rotated_6.jpg": PictureInfo("image/jpeg", 160, 100, "ok", "jpg"),
    "jpeg_gray.jpg": PictureInfo("image/jpeg", 160, 100, "ok", "jpg"),
    "jpeg_named.png": PictureInfo("image/jpeg", 160, 100, "ok", "jpg"),
    "jpeg_truncated.jpg": PictureInfo("image/jpeg", 160, 100, "broken", "jpg"),
    "png_16bit_gray_ramp.png": PictureInfo("image/png", 256, 64, "ok", "png"),
    "png_1bit.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_8k_palette.png": PictureInfo("image/png", 7680, 4320, "ok", "png"),
    "png_bad_crc.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_bomb_20000x20000.png": PictureInfo("image/png", 20000, 20000, "too_large", "png"),
    "png_bomb_warn_10000x10000.png": PictureInfo("image/png", 10000, 10000, "too_large", "png"),
    "png_cut_in_header.png": PictureInfo("image/png", None, None, "broken", "png"),
    "png_named.jpg": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_ok.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_palette_transparency_bytes.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_rgba.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_tall_500x70000.png": PictureInfo("image/png", 500, 70000, "ok", "png"),
    "png_text_chunk_secret.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_trailing_html.png": PictureInfo("image/png", 160, 100, "ok", "png"),
    "png_truncated.png": PictureInfo("image/png", 160, 100, "broken", "png"),
    "png_zero_width.png": PictureInfo("image/png", None, None, "broken", "png"),
    "svg_script.svg": PictureInfo("image/svg+xml", None, None, "unsupported", "bin"),
    "text_named.jpg": PictureInfo("text/plain", None, None, "unsupported", "txt"),
    "webp_3frames.webp": PictureInfo("image/webp", 60, 40, "ok", "webp"),
    "zero_byte.png": PictureInfo("application/octet-stream", None, None, "empty", "bin"),
}
REAL = [(PICTURES / name).read_bytes() for name in EXPECTED if "8k" not in name]
STATUSES = {"ok", "broken", "empty", "too_large", "unsupported"}


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _decoded(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def test_table_has_every_picture() -> None:
    """No file in the data folder goes untested."""
    assert {path.name for path in PICTURES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_pictures(name: str) -> None:
    """What a file is comes from its bytes, whatever its name says."""
    assert inspect((PICTURES / name).read_bytes()) == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name, info in EXPECTED.items() if info.status == "ok"])
def test_ok_means_that_pillow_agrees(name: str) -> None:
    """An ok picture decodes, without a warning, to the size and type we told."""
    data = (PICTURES / name).read_bytes()
    info = inspect(data)
    with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
        warnings.simplefilter("error")
        assert image.size == (info.width, info.height)
        assert Image.MIME[str(image.format)] == info.media_type
        if name != "png_bad_crc.png":  # Pillow's choice to refuse it differs between versions
            image.load()


@pytest.mark.parametrize(
    "name", ["jpeg_truncated.jpg", "png_truncated.png", "png_cut_in_header.png"]
)
def test_broken_means_that_pillow_agrees(name: str) -> None:
    """The files we call broken cannot be decoded."""
    with pytest.raises(OSError, match=r"(?i)truncated"):
        _decoded((PICTURES / name).read_bytes())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 50}),
        ("WEBP", {"quality": 50, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0", "comment": b"\xff\xd9\xff\xc0"}),
        ("GIF", {"comment": b"x" * 700}),
        ("PNG", {"compress_level": 0}),
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (3, 7), (301, 257)])
def test_sizes_of_every_kind_of_header(
    kind: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    """Width and height are right for each variant of each format (VP8, VP8L, VP8X, SOF2, …)."""
    data = _encoded(Image.linear_gradient("L").resize(size).convert("RGB"), kind, **options)
    info = inspect(data)
    assert (info.media_type, info.status) == (Image.MIME[kind], "ok")
    assert (info.width, info.height) == size


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {}), ("JPEG", {}), ("PNG", {})])
def test_a_picture_cut_anywhere_is_never_ok(kind: str, options: dict[str, Any]) -> None:
    """Half a PNG, JPEG or WebP is told from a whole one; something after its end is no fault."""
    data = _encoded(Image.linear_gradient("L").convert("RGB"), kind, **options)
    assert inspect(data).status == "ok"
    assert inspect(data + b"<html>").status == "ok"
    cut = {inspect(data[:length]).status for length in range(16, len(data))}
    assert cut == {"broken"}


def test_end_of_a_thumbnail_is_not_the_end_of_a_jpeg() -> None:
    """A JPEG whose EXIF thumbnail is whole but whose own picture is cut is broken."""
    thumbnail = _encoded(Image.new("L", (8, 8)), "JPEG")
    data = _encoded(Image.linear_gradient("L"), "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    data = data[:2] + segment + data[2:]
    assert inspect(data) == PictureInfo("image/jpeg", 256, 256, "ok", "jpg")
    assert inspect(data[:-40]).status == "broken"


def test_markers_without_a_length() -> None:
    """Fill bytes and bare markers before a JPEG's size are stepped over, not misread."""
    data = _encoded(Image.linear_gradient("L"), "JPEG")
    data = data[:2] + b"\xff\x01\xff\xff\xff\xd0" + data[2:]
    assert inspect(data) == PictureInfo("image/jpeg", 256, 256, "ok", "jpg")


def _png_header(width: int, height: int, *, checksum: int | None = None) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    checksum = zlib.crc32(body) if checksum is None else checksum
    end = b"\0\0\0\0IEND\xaeB`\x82"
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + body + struct.pack(">I", checksum) + end


def test_pixel_limit_is_exact() -> None:
    """The limit counts pixels, not bytes; a cut picture beyond it is too large first."""
    assert inspect(_png_header(8192, MAX_PIXELS // 8192)).status == "ok"
    beyond = inspect(_png_header(8192, MAX_PIXELS // 8192 + 1))
    assert (beyond.status, beyond.width) == ("too_large", 8192)
    assert inspect(_png_header(2**31, 2**31)[:40]).status == "too_large"


@pytest.mark.parametrize(
    "data",
    [
        _png_header(5, 0),
        _png_header(5, 5, checksum=0),
        _png_header(5, 5).replace(b"IHDR", b"CgBI", 1),
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff\xda\0\x02",
        b"\xff\xd8\xff\xe0\0\x02junk",
        b"\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\x05\x01\x01\x11\0\xff\xd9",
        b"\xff\xd8" + b"\xff" * 100_000,
        b"GIF89a\x05\0\x05\0\0\0\0;",
        b"GIF89a\x05\0\x05\0\x80\0\0",
        b"RIFF\x20\0\0\0WEBPVP9 " + bytes(24),
        b"RIFF\x20\0\0\0WEBPVP8L" + bytes(24),
        b"RIFF\x20\0\0\0WEBPVP8 " + bytes(24),
        b"RIFF\x20\0\0\0WEBPVP8 \x14\0\0\0\x01\0\0\x9d\x01\x2a\5\0\5\0" + bytes(10),
        b"RIFF\x20\0\0\0WEBPVP8X",
    ],
)
def test_unsound_headers(data: bytes) -> None:
    """A picture of a known type whose header makes no sense is broken and has no size."""
    info = inspect(data)
    assert (info.status, info.width, info.height) == ("broken", None, None)
    assert info.media_type in ("image/png", "image/jpeg", "image/gif", "image/webp")


def test_gif_frame_larger_than_its_screen() -> None:
    """A GIF that hides a huge first frame behind a small screen has the size of the frame."""
    comment = b"\x21\xfe\x03abc\0"
    frame = b"\x2c" + struct.pack("<4H", 10, 0, 65000, 65000)
    data = b"GIF89a\x05\0\x05\0\0\0\0" + comment + b"\0" + frame
    assert inspect(data) == PictureInfo("image/gif", 65010, 65000, "too_large", "gif")


def test_walks_are_bounded() -> None:
    """A file made of nothing but tiny segments is given up on, not walked to its end."""
    png = _png_header(5, 5)[:-12] + (b"\0\0\0\0teXt" + bytes(4)) * 30_000
    assert inspect(png).status == "ok"
    gif = b"GIF89a\x05\0\x05\0\0\0\0\x21\xfe" + b"\x01x" * 30_000
    assert inspect(gif) == PictureInfo("image/gif", 5, 5, "ok", "gif")


@pytest.mark.parametrize(
    ("data", "media_type", "extension"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "application/pdf", "bin"),
        (b"BM" + bytes(12) + b"\x28\0\0\0" + bytes(40), "image/bmp", "bmp"),
        (b"BMW is a car maker, not a bitmap", "text/plain", "txt"),
        (b"II*\0\x08\0\0\0", "image/tiff", "tif"),
        (b"MM\0*\0\0\0\x08", "image/tiff", "tif"),
        (b"\0\0\0\x1cftypavif\0\0\0\0mif1miaf", "image/avif", "avif"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "image/avif", "avif"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heicavif", "application/octet-stream", "bin"),
        (b"RIFF\x20\0\0\0WAVEfmt ", "application/octet-stream", "bin"),
        (b"\x89PNG\r\n", "application/octet-stream", "bin"),
        (b"\x00\x01\x02", "application/octet-stream", "bin"),
        (b"caf\xe9", "application/octet-stream", "bin"),
        ("caf\u00e9".encode(), "text/plain", "txt"),
        (b"\xef\xbb\xbf  <!-- a --><!DOCTYPE HTML><p>", "text/html", "bin"),
        (b"<?xml version='1.0'?>\n<!-- a -->\n<svg>", "image/svg+xml", "bin"),
        (b"<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN'>", "image/svg+xml", "bin"),
        (b"<svgx>", "text/plain", "txt"),
        (b"<?xml version='1.0'?><html xmlns='x'>", "text/html", "bin"),
        (b"<?xml version='1.0'?><feed>", "text/plain", "txt"),
        ("<html >".encode("utf-16"), "text/html", "bin"),
        (b"\xff\xfe\x00\xd8", "application/octet-stream", "bin"),
        (("ü" * 600).encode(), "text/plain", "txt"),
        (("a" + "ü" * 600).encode(), "text/plain", "txt"),
    ],
)
def test_other_kinds(data: bytes, media_type: str, extension: str) -> None:
    """What is no raster picture is named by its content and gets no active extension."""
    assert inspect(data) == PictureInfo(media_type, None, None, "unsupported", extension)


def test_bmp_tiff_and_avif_of_pillow() -> None:
    """Other raster types that Pillow writes are recognised, though unsupported."""
    for kind in ("BMP", "TIFF", *(["AVIF"] if features.check("avif") else [])):
        info = inspect(_encoded(Image.new("RGB", (4, 4)), kind))
        assert (info.media_type, info.status) == (Image.MIME[kind], "unsupported")


@pytest.mark.parametrize("name", ["png_ok.png", "jpeg_truncated.jpg", "webp_3frames.webp"])
def test_any_buffer(name: str) -> None:
    """Bytes, bytearray and any memoryview of the same content give the same answer."""
    data = (PICTURES / name).read_bytes()
    doubled = bytes(itertools.chain.from_iterable(zip(data, data, strict=True)))
    for buffer in (bytearray(data), memoryview(data), memoryview(doubled)[::2]):
        assert inspect(buffer) == EXPECTED[name]
    even = data + b"\0" * (len(data) % 2)
    assert inspect(memoryview(even).cast("H")) == EXPECTED[name]


def test_what_is_no_buffer() -> None:
    """Even what has no bytes at all is an answer, not an exception."""
    released = memoryview(b"x")
    released.release()
    none: Any = None
    for value in (none, released):
        assert inspect(value).status == "unsupported"
    assert inspect(memoryview(b"")).status == "empty"


def _check_total(data: bytes) -> None:
    info = inspect(data)
    assert info.status in STATUSES
    assert 1 <= len(info.extension) <= 8
    assert info.extension.isalnum()
    if info.status in ("ok", "too_large"):
        assert info.width is not None
        assert info.height is not None
        assert (info.width * info.height > MAX_PIXELS) == (info.status == "too_large")


SIGNATURES = [b"", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff", b"GIF89a", b"BM", b"<"]
SIGNATURES += [b"RIFF\0\0\0\0WEBP" + kind for kind in (b"VP8 ", b"VP8L", b"VP8X")]
SIGNATURES += [b"\0\0\0\x20ftyp", b"\xff\xfe", b"\xef\xbb\xbf"]


@given(st.sampled_from(SIGNATURES), st.binary(max_size=200))
@example(b"", b"")
def test_inspect_is_total_on_arbitrary_bytes(signature: bytes, rest: bytes) -> None:
    """No bytes, with or without a known beginning, make inspect raise or contradict itself."""
    _check_total(signature + rest)


@given(st.sampled_from(REAL), st.data())
def test_inspect_is_total_on_damaged_pictures(real: bytes, data: st.DataObject) -> None:
    """Real files with bytes changed near their beginning, and cut anywhere, are still answered."""
    damaged = bytearray(real[: data.draw(st.integers(0, len(real)), label="length")])
    if damaged:
        places = st.integers(0, min(len(damaged), 200) - 1)
        changes = st.dictionaries(places, st.integers(0, 255), max_size=6)
        for place, value in data.draw(changes, label="changes").items():
            damaged[place] = value
    _check_total(bytes(damaged))


# --- PIL images --------------------------------------------------------------------------------

GRADIENT = Image.linear_gradient("L").resize((64, 48))
COLOURS = Image.merge("RGB", (GRADIENT, GRADIENT.rotate(180), GRADIENT.rotate(90)))
ALPHA = Image.merge("RGBA", (*COLOURS.split(), GRADIENT.rotate(45)))
DEEP = GRADIENT.convert("I").point(lambda value: value * 257)


def _same(left: Image.Image, right: Image.Image) -> bool:
    return (left.mode, left.size, left.tobytes()) == (right.mode, right.size, right.tobytes())


@pytest.mark.parametrize(
    "image",
    [
        GRADIENT.convert("1"),
        GRADIENT,
        Image.merge("LA", (GRADIENT, GRADIENT.rotate(90))),
        COLOURS,
        ALPHA,
        DEEP.convert("I;16"),
    ],
    ids=lambda image: image.mode,
)
def test_modes_of_png_are_kept(image: Image.Image) -> None:
    """An image in a mode that PNG has comes back with the same mode and pixels."""
    data = encode_pil(image)
    assert _same(_decoded(data), image)
    assert inspect(data) == PictureInfo("image/png", 64, 48, "ok", "png")


@pytest.mark.parametrize("colours", [2, 4, 16, 17, 256])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_palettes_are_kept(mode: str, colours: int) -> None:
    """A palette image stays one, with each pixel's colour and transparency."""
    image = (COLOURS if mode == "RGB" else ALPHA).quantize(colours, Image.Quantize.FASTOCTREE)
    back = _decoded(encode_pil(image))
    assert back.mode == "P"
    assert _same(back.convert("RGBA"), image.convert("RGBA"))


def test_transparent_colour_is_kept() -> None:
    """The one transparent entry of a GIF's palette stays transparent."""
    image = GRADIENT.quantize(8)
    image.info["transparency"] = 3
    back = _decoded(encode_pil(image))
    assert _same(back.convert("RGBA"), image.convert("RGBA"))
    assert back.convert("RGBA").getextrema()[3] == (0, 255)


@pytest.mark.parametrize(
    ("image", "mode"),
    [
        (COLOURS.convert("CMYK"), "RGB"),
        (COLOURS.convert("YCbCr"), "RGB"),
        (COLOURS.convert("HSV"), "RGB"),
        (COLOURS.convert("RGBX"), "RGB"),
        (Image.frombytes("LAB", COLOURS.size, COLOURS.tobytes()), "RGB"),
        (ALPHA.convert("RGBa"), "RGBA"),
        (Image.merge("LA", (GRADIENT, GRADIENT.rotate(90))).convert("La"), "LA"),
        (ALPHA.quantize(64, Image.Quantize.FASTOCTREE).convert("PA"), "RGBA"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.mode,
)
def test_other_modes_keep_what_they_show(image: Image.Image, mode: str) -> None:
    """A mode that PNG lacks is converted as Pillow does it, and to nothing poorer."""
    back = _decoded(encode_pil(image))
    assert _same(back, image.convert(mode))


@pytest.mark.parametrize("mode", ["I;16L", "I;16B", "I;16N"])
def test_sixteen_bits_in_any_byte_order(mode: str) -> None:
    """Each of the 16-bit modes keeps its 16 bits."""
    image = Image.new(mode, (3, 1))
    for x, value in enumerate((0, 258, 65535)):
        image.putpixel((x, 0), value)
    back = _decoded(encode_pil(image)).convert("I")
    assert [back.getpixel((x, 0)) for x in range(3)] == [0, 258, 65535]


def test_wide_integers_and_floats_that_fit_are_kept() -> None:
    """32-bit integers up to 65,535, and floats from 0 to 255, lose nothing."""
    assert _same(_decoded(encode_pil(DEEP)), DEEP.convert("I;16"))
    assert _same(_decoded(encode_pil(GRADIENT.convert("F"))), GRADIENT)


def _row(mode: str, values: list[float]) -> Image.Image:
    image = Image.new(mode, (len(values), 1))
    for x, value in enumerate(values):
        image.putpixel((x, 0), value)
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (_row("F", [0.0, 0.5, 1.0]), [0, 127, 255]),
        (_row("F", [-1000.0, 0.0, 1000.0]), [0, 127, 255]),
        (_row("F", [0.0, 0.0, 0.0]), [0, 0, 0]),
        (_row("I", [0, 100_000, 200_000]), [0, 32767, 65535]),
        (_row("I", [-2, -1, 0]), [0, 32767, 65535]),
        (_row("I", [-7, -7, -7]), [0, 0, 0]),
        (_row("I", [-(2**31), 0, 2**31 - 1]), [0, 32767, 65535]),
    ],
)
def test_values_beyond_the_grey_scale_are_stretched(
    image: Image.Image, expected: list[int]
) -> None:
    """Numbers without an agreed range stay tellable apart instead of all turning black or white."""
    back = _decoded(encode_pil(image)).convert("I")
    found = [back.getpixel((x, 0)) for x in range(3)]
    assert all(abs(a - b) <= 1 for a, b in zip(found, expected, strict=True)), found


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_floats_that_are_no_numbers(odd: float) -> None:
    """NaN and infinity in a float image give some picture of the right size."""
    assert _decoded(encode_pil(_row("F", [0.0, odd, 255.0]))).size == (3, 1)


def test_no_pillow_mode_is_missing() -> None:
    """Whatever mode Pillow has, an image of it can be encoded."""
    for mode in Image.MODES:
        assert inspect(encode_pil(Image.new(mode, (5, 4)))).status == "ok", mode


def test_metadata_stays_behind_but_the_colour_profile() -> None:
    """Text chunks and EXIF are not copied; a profile goes with the colours it belongs to."""
    image = _decoded((PICTURES / "png_text_chunk_secret.png").read_bytes())
    image.info["icc_profile"] = b"profile"
    back = _decoded(encode_pil(image))
    assert set(back.info) == {"icc_profile"}
    cmyk = COLOURS.convert("CMYK")
    cmyk.info["icc_profile"] = b"profile"
    assert not _decoded(encode_pil(cmyk)).info


def test_the_agents_image_is_not_changed() -> None:
    """Encoding leaves mode, pixels, info and attributes of the image alone."""
    image = COLOURS.convert("CMYK")
    before, info = image.copy(), dict(image.info)
    encode_pil(image)
    assert _same(image, before)
    assert image.info == info


def test_first_frame_of_an_opened_file() -> None:
    """An image opened from a file and not yet loaded gives the frame it stands at."""
    with Image.open(PICTURES / "gif_3frames.gif") as image:
        data = encode_pil(image)
    with Image.open(PICTURES / "gif_3frames.gif") as image:
        assert _same(_decoded(data).convert("RGB"), image.convert("RGB"))


def test_what_cannot_be_encoded() -> None:
    """Every way in which Pillow fails is a ValueError, and a huge image is not even tried."""
    with pytest.raises(ValueError, match="cannot be written as PNG: ValueError"):
        encode_pil(Image.new("RGB", (0, 5)))
    with (
        Image.open(PICTURES / "jpeg_truncated.jpg") as image,
        pytest.raises(ValueError, match="cannot be written as PNG: OSError"),
    ):
        encode_pil(image)

    class Huge:
        size = (8192, MAX_PIXELS // 8192 + 1)

    with pytest.raises(ValueError, match="too large"):
        encode_pil(Huge())


def test_is_pil_image() -> None:
    """Images and subclasses are recognised, look-alikes are not, and their code is not run."""

    class Nasty:
        @property
        def __class__(self) -> Any:
            raise RuntimeError

    with Image.open(PICTURES / "png_ok.png") as opened:
        assert is_pil_image(opened)
    assert is_pil_image(COLOURS)
    assert not any(map(is_pil_image, (None, b"", Image, Image.Image, Nasty())))


def test_pillow_is_not_imported_to_look_at_pictures() -> None:
    """Neither the module nor what runs per screenshot loads Pillow."""
    program = (
        "import sys; from otel_taskhistory import images as i;"
        "i.inspect(b'GIF89a'); print(i.is_pil_image(i), 'PIL' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["False", "False"]
