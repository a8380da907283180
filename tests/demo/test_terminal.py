# SPDX-License-Identifier: Apache-2.0
"""The agent's screen: what it shows, and that it is a sound picture."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from otel_taskhistory.demo.host_agent import screen
from otel_taskhistory.demo.host_agent.screen import BACKGROUND, BAR
from otel_taskhistory.demo.host_agent.terminal import (
    COLUMNS,
    OUTPUT_LINES,
    ROWS,
    Terminal,
    as_lines,
    wrapped,
)


def opened(png: bytes) -> Image.Image:
    """The picture, decoded."""
    image = Image.open(io.BytesIO(png))
    assert image.format == "PNG"
    return image.convert("RGB")


@pytest.mark.parametrize("bundled", [False, True])
def test_text_is_drawn(bundled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a font of the machine or with Pillow's own, another text is another picture."""
    if bundled:
        monkeypatch.setattr(screen, "_pen", screen.bundled_pen)
    terminal = Terminal("Find it.")
    empty = opened(terminal.screenshot(1))
    terminal.output("something with a letter from elsewhere: \u00e9 \u4e2d")
    written = opened(terminal.screenshot(1))
    assert empty.size == written.size
    assert empty.tobytes() != written.tobytes()
    assert len(empty.getcolors() or ()) > 3
    width, height = empty.size
    assert empty.getpixel((width - 3, height - 3)) == _close_to(BACKGROUND)
    assert empty.getpixel((width - 3, 3)) == _close_to(BAR)


def _close_to(colour: str) -> Any:
    """The RGB of ``#rrggbb``, give or take what a palette of few colours does to it."""
    return pytest.approx([int(colour[i : i + 2], 16) for i in (1, 3, 5)], abs=8)


def test_nothing_is_drawn_outside() -> None:
    """A full screen of full lines leaves the margins free: no line is cut."""
    terminal = Terminal("goal " * 60)
    terminal.answer("\n".join(["W" * COLUMNS] * ROWS))
    image = opened(terminal.screenshot(12))
    width, height = image.size
    right = {image.getpixel((width - 1, y)) for y in range(height)}
    bottom = {image.getpixel((x, height - 1)) for x in range(width)}
    assert len(right) <= 2
    assert len(bottom) == 1


def test_long_lines_go_on_in_the_next() -> None:
    """Every letter is on the screen, at most so many columns wide."""
    words = [f"word{n}" for n in range(60)]
    lines = wrapped(" ".join(words))
    assert " ".join(line.strip() for line in lines).split() == words
    assert max(map(len, lines)) <= COLUMNS
    assert "".join(line.strip() for line in wrapped("x" * 350)) == "x" * 350


def test_what_a_terminal_would_obey_is_replaced() -> None:
    """Escape sequences and direction marks of a tool's result stay harmless."""
    assert wrapped("a\x1b[2Jb\u202ec\td") == ["a?[2Jb?c    d"]


def test_a_long_result_says_how_much_is_left() -> None:
    """The screen keeps the beginning, and the number of lines that follow."""
    terminal = Terminal("")
    terminal.output("\n".join(map(str, range(100))))
    assert len(terminal.lines) == OUTPUT_LINES
    assert terminal.lines[-1].text == f"[{100 - OUTPUT_LINES + 1} more lines]"


def test_values_are_shown_for_people() -> None:
    """Small objects on a line, lists of objects as tables, texts as they are."""
    assert as_lines({"path": "a.py", "lines": 3}) == ["path: a.py  lines: 3"]
    table = {"total": 2, "files": [{"path": "a", "bytes": 10}, {"path": "long", "bytes": 5}]}
    assert as_lines(table) == [
        *("total: 2", "files:", "  path  bytes", "  a        10", "  long      5"),
    ]
    assert as_lines({"text": "one\n  two"}) == ["text:", "  one", "    two"]
    assert as_lines({"imports": []}) == ["imports: (none)"]
    assert as_lines("one\ntwo") == ["one", "two"]
    assert as_lines(None) == ["null"]
