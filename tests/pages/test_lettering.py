# SPDX-License-Identifier: Apache-2.0
"""Text in pictures: drawn, or written out; never an empty box."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw

from otel_taskhistory.pages.lettering import FONTS, Lettering, _font, _has


def drawn(lettering: Lettering, text: str) -> bytes:
    """The picture of a text."""
    image = Image.new("RGB", (900, 40))
    lettering.draw(ImageDraw.Draw(image), (4, 4), text, "#ffffff")
    return image.tobytes()


def test_letters_that_no_font_has_are_written_out() -> None:
    """With Pillow's own font alone: as Python writes them, among those that it has."""
    alone = Lettering(15, ())
    assert drawn(alone, "a \u65e5 b") == drawn(alone, r"a \u65e5 b")
    assert drawn(alone, "\U0001f600") == drawn(alone, r"\U0001f600")
    assert alone.width("\u65e5") == alone.width(r"\u65e5")


def test_a_font_of_this_machine_is_taken_for_what_it_has() -> None:
    """Cyrillic is drawn as such where a usual font with it is there."""
    fonts = [_font(name, 15) for name in FONTS]
    if not any(font is not None and _has(font, "\u0416") for font in fonts):
        pytest.skip("no font with Cyrillic is on this machine")
    lettering, alone = Lettering(15), Lettering(15, ())
    assert drawn(lettering, "\u0416") != drawn(lettering, r"\u0416")
    assert drawn(lettering, "\u0416") != drawn(alone, "\u0416")


@pytest.mark.parametrize(
    "text", ["a" * 500, "\u65e5" * 500, "\ud83e" * 30, "x", "", "e\u0301\ufe0f"]
)
def test_a_line_fits(text: str) -> None:
    """It is cut where there is no room, and says so; any text can be drawn."""
    lettering = Lettering(12)
    for room in (0, 5, 100, 300):
        line = lettering.fitting(text, room)
        assert lettering.width(line) <= room or not line
        assert line == text or line.endswith("…") or not line
        drawn(lettering, line)
