# SPDX-License-Identifier: Apache-2.0
"""Draws a terminal window as a PNG: the agent's screen, as a picture one can look at later."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont

FONT_SIZE = 17
LINE_HEIGHT = 23
MARGIN = 22
BACKGROUND = "#12161d"
BAR = "#232a36"
TITLE = "#e6eaf0"
CORNER = "#8fa1b8"
BUTTONS = ("#e0625a", "#dfb04a", "#62b566")
COLOURS = {
    "said": "#8fa1b8",
    "command": "#7fd08a",
    "output": "#d3d9e2",
    "error": "#f08a80",
    "answer": "#ffd479",
}
MONOSPACED = ("DejaVuSansMono.ttf", "Menlo.ttc", "consola.ttf", "LiberationMono-Regular.ttf")
"""Fonts of Linux, macOS and Windows, looked for in this order."""


def draw(
    *, title: Sequence[str], corner: str, lines: Sequence[tuple[str, str]], columns: int, rows: int
) -> bytes:
    """Return the window as an encoded PNG.

    Args:
        title: lines of the title bar.
        corner: short text at the right of the title bar.
        lines: (text, style) of each line, at most `rows`; a style is a key of `COLOURS`.
        columns: width in characters.
        rows: height in lines.
    """
    pen = _pen()
    bar = len(title) * LINE_HEIGHT + 22
    width = columns * pen.cell + 2 * MARGIN
    image = Image.new("RGB", (width, bar + rows * LINE_HEIGHT + 2 * MARGIN), BACKGROUND)
    canvas = ImageDraw.Draw(image)
    canvas.rectangle((0, 0, width, bar), fill=BAR)
    for number, colour in enumerate(BUTTONS):
        left, top = MARGIN + 22 * number, 11 + LINE_HEIGHT // 2 - 7
        canvas.ellipse((left, top, left + 13, top + 13), fill=colour)
    for number, text in enumerate(title):
        pen.write(canvas, MARGIN + 80, 11 + number * LINE_HEIGHT, text, TITLE)
    pen.write(canvas, width - MARGIN - len(corner) * pen.cell, 11, corner, CORNER)
    for number, (text, style) in enumerate(lines):
        pen.write(canvas, MARGIN, bar + MARGIN + number * LINE_HEIGHT, text, COLOURS[style])
    out = io.BytesIO()
    # Few colours are on the screen; with a palette the file is a third of the size.
    image.quantize(64, method=Image.Quantize.FASTOCTREE).save(out, "PNG")
    return out.getvalue()


class _Pen:
    """Writes text in cells of one width, whether or not the font is monospaced."""

    def __init__(self, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, bundled: bool) -> None:
        self._font = font
        self._bundled = bundled
        self.cell = round(font.getlength("0"))

    def write(self, canvas: ImageDraw.ImageDraw, x: float, y: float, text: str, fill: str) -> None:
        if self._bundled:  # knows little more than ASCII
            text = text.encode("ascii", "replace").decode()
        for number, char in enumerate(text):
            if char != " ":
                centre = x + (number + 0.5) * self.cell
                canvas.text((centre, y), char, font=self._font, fill=fill, anchor="ma")


@cache
def _pen() -> _Pen:
    for name in MONOSPACED:
        try:
            return _Pen(ImageFont.truetype(name, FONT_SIZE), bundled=False)
        except OSError:
            continue
    return bundled_pen()


def bundled_pen() -> _Pen:
    """The pen for a machine without any of those: Pillow's own font, which is always there."""
    return _Pen(ImageFont.load_default(FONT_SIZE), bundled=True)
