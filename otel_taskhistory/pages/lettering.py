# SPDX-License-Identifier: Apache-2.0
r"""Text drawn into a picture: every character is either drawn or written out, never an empty box.

Pillow's own font has Latin letters. For others a font of this machine is taken, if one of the usual
ones is there; what none of them has is written out, as Python does: ``\u65e5``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from otel_taskhistory.text import ELLIPSIS, escaped

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

FONTS: Final = (
    # Linux distributions
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "NotoSansCJKjp-Regular.otf",
    "wqy-zenhei.ttc",
    "wqy-microhei.ttc",
    "DroidSansFallbackFull.ttf",
    "NotoSansArabic-Regular.ttf",
    "NotoSansHebrew-Regular.ttf",
    "NotoSansDevanagari-Regular.ttf",
    "NotoSansThai-Regular.ttf",
    "FreeSans.ttf",
    "unifont.otf",
    "unifont.ttf",
    # macOS
    "Arial Unicode.ttf",
    "Hiragino Sans GB.ttc",
    "AppleSDGothicNeo.ttc",
    # Windows
    "segoeui.ttf",
    "msyh.ttc",
    "msgothic.ttc",
    "malgun.ttf",
    "seguisym.ttf",
)
"""Files that are looked for where the system keeps fonts, in this order."""

_NO_CHARACTER: Final = "\uffff"
"""No font has it: what is drawn for it is what stands for any that is missing."""
_UNSEEN: Final = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""They change how their neighbours look, which is not done here."""


class Lettering:
    """Draws texts of one size.

    Args:
        size: of the letters, in pixels.
        names: font files to look for, beside Pillow's own.
    """

    def __init__(self, size: int, names: tuple[str, ...] = FONTS) -> None:
        self._size = size
        self._names = names
        self._chosen: dict[str, Font | None] = {}

    def width(self, text: str) -> float:
        """How many pixels a text on one line takes."""
        return float(sum(font.getlength(run) for font, run in self._runs(text)))

    def fitting(self, text: str, room: float) -> str:
        """As much of a text as has room, in pixels; an ellipsis where it was cut."""
        if self.width(text) <= room:
            return text
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if self.width(text[:middle].rstrip() + ELLIPSIS) <= room:
                low = middle
            else:
                high = middle - 1
        return text[:low].rstrip() + ELLIPSIS if low else ""

    def draw(self, draw: ImageDraw, place: tuple[float, float], text: str, colour: str) -> None:
        """Draw a text on one line; `place` is where its left upper corner is."""
        x, y = place
        baseline = y + self._size  # the same for all fonts
        for font, run in self._runs(text):
            draw.text((x, baseline), run, font=font, fill=colour, anchor="ls")
            x += font.getlength(run)

    def _runs(self, text: str) -> Iterator[tuple[Font, str]]:
        """Pieces of a text that one font has."""
        own = _font(None, self._size)
        assert own is not None
        pieces: list[tuple[Font, str]] = []
        for character in text:
            if character in _UNSEEN:
                continue
            font = self._font_of(character)
            pieces.append((own, escaped(character)) if font is None else (font, character))
        for _, group in groupby(pieces, key=lambda piece: id(piece[0])):
            found = list(group)
            yield found[0][0], "".join(run for _, run in found)

    def _font_of(self, character: str) -> Font | None:
        if character not in self._chosen:
            fonts = (_font(name, self._size) for name in (None, *self._names))
            self._chosen[character] = next(
                (font for font in fonts if font is not None and _has(font, character)), None
            )
        return self._chosen[character]


@cache
def _font(name: str | None, size: int) -> Font | None:
    """A font of this machine, None when it is not there; without a name Pillow's own."""
    from PIL import ImageFont

    if name is None:
        return ImageFont.load_default(size)
    try:
        return ImageFont.truetype(name, size)
    except OSError:  # not there, or no font
        return None


def _has(font: Font, character: str) -> bool:
    if character.isascii() or character.isspace():
        return True
    try:
        return _drawn(font, character) != _drawn(font, _NO_CHARACTER)
    except (OSError, ValueError, UnicodeError):  # a font without scalable letters, a surrogate
        return False


def _drawn(font: Font, character: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)
