# SPDX-License-Identifier: Apache-2.0
"""The screen: lines within its width, coloured only where that is wanted, safe always.

Whatever is printed goes through `Screen`, which makes it printable; no caller has to remember to.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Final, TextIO

import click

from otel_taskhistory.text import clip, pad, printable, width, wrap

PIPED_COLUMNS: Final = 100
"""Width of text that goes to a file or another program."""

WHOLE_LINES: Final = 1_000_000
"""Width of what is one line for each thing, for other programs: nothing is cut or folded."""

NARROW: Final = 40
"""Columns of a screen on which a table of several columns says nothing any more."""

Piece = tuple[str, str]
"""A text and the name of its style."""

_STYLES: Final[dict[str, dict[str, object]]] = {
    "": {},
    "bold": {"bold": True},
    "dim": {"dim": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "alarm": {"fg": "red", "bold": True},
    "busy": {"fg": "yellow"},
    "name": {"fg": "cyan"},
    "title": {"fg": "cyan", "bold": True},
}

MARKS: Final = {
    "succeeded": ("✓", "good"),
    "failed": ("✗", "alarm"),
    "running": ("●", "busy"),
    "cancelled": ("■", "busy"),
    "interrupted": ("‼", "alarm"),
}
"""Mark and style of each status."""


def mark(status: str) -> Piece:
    """The mark of a status."""
    return MARKS.get(status, ("?", ""))


class Screen:
    """Where the output of a command goes.

    Args:
        file: by default standard output.
        columns: by default those of the terminal; where there is none those of the environment
            (``COLUMNS``), else `piped`.
        piped: for a file or another program.
        colour: by default on a terminal only, and not when ``NO_COLOR`` is set.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        *,
        columns: int | None = None,
        colour: bool | None = None,
        piped: int = PIPED_COLUMNS,
    ) -> None:
        self._file = file or sys.stdout
        if colour is None:
            colour = _is_terminal(self._file) and not os.environ.get("NO_COLOR")
            colour = colour and os.environ.get("TERM") != "dumb"
        size = shutil.get_terminal_size((piped, 24))
        self.columns = max(size.columns if columns is None else columns, 12)
        self.rows = max(size.lines - 4, 4)
        """Lines of a list that fits on the screen with its headings."""
        self.coloured = colour

    def line(self, *pieces: Piece, indent: int = 0, hang: int = 2) -> None:
        """Print pieces one after the other; what does not fit goes on below, indented by `hang`.

        A piece is not broken where it fits on a line of its own.
        """
        indent = min(indent, self.columns // 3)
        hang = indent + min(hang, self.columns // 4)
        line, used, empty = " " * indent, indent, True
        for text, style in pieces:
            text = printable(text)
            if not empty and used + width(text.rstrip()) > self.columns:
                self._put(line)
                line, used, empty = " " * hang, hang, True
            if empty and used > indent:
                text = text.lstrip(" ·")
            if used + width(text) > self.columns:
                *full, text = wrap(text, self.columns - used)
                for part in full:
                    self._put(line + self._styled(part, style))
                    line = " " * used
            line, used, empty = line + self._styled(text, style), used + width(text), False
        self._put(line)

    def flow(self, *pieces: Piece, indent: int = 0) -> None:
        """Print pieces that make one text; folded between words only, wherever pieces meet.

        A word that is longer than a line is broken where it must.
        """
        indent = min(indent, self.columns // 3)
        room = self.columns - indent
        styles: list[str] = []
        text = ""
        for piece, style in pieces:
            made = printable(piece).replace("\n", " ")
            text += made
            styles += [style] * len(made)
        spaces = len(text) - len(text.lstrip(" "))  # an indent would come again with each line
        text, styles = text[spaces:], styles[spaces:]
        at = 0
        for line in wrap(text, room):
            at = text.index(line, at)
            self._put(" " * indent + self._painted(line, styles[at : at + len(line)]))
            at += len(line)

    def block(
        self, text: str, style: str = "", *, indent: int = 0, label: Piece = ("", ""), room: int = 0
    ) -> None:
        """Print a text of any length, wrapped and indented; a label stands before its first line.

        Args:
            room: columns of the label; where the screen is too narrow for that it stands above.
        """
        indent, label = min(indent, self.columns // 3), (printable(label[0]), label[1])
        room = max(room, width(label[0]) + 1) if label[0] else room
        if room and self.columns - indent - room < 16:
            if label[0]:
                self._put(
                    " " * indent + self._styled(clip(label[0], self.columns - indent), label[1])
                )
            indent, room, label = min(indent + 2, self.columns // 3), 0, ("", "")
        head = " " * indent + self._styled(pad(label[0], room), label[1])
        for line in wrap(printable(text), self.columns - indent - room):
            self._put(head + self._styled(line, style))
            head = " " * (indent + room)

    def whole(self, text: str, style: str = "", *, label: Piece = ("", ""), room: int = 0) -> None:
        """Print a text on one line however long, as a path or a command that is to be copied."""
        text = printable(text).replace("\n", "\\n")
        head = self._styled(pad(printable(label[0]), room), label[1])
        self._put(head + self._styled(text, style))

    def rule(self, left: Sequence[Piece], right: Sequence[Piece]) -> None:
        """Print a heading across the screen: `left`, a line, `right`."""
        texts = [printable(text) for text, _ in (*left, *right)]
        gap = self.columns - sum(map(width, texts)) - 6
        if gap < 2:
            self.line(("─ ", "dim"), *left, ("  ", ""), *right)
            return
        self.line(("── ", "dim"), *left, (f" {'─' * gap} ", "dim"), *right)

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[Piece]], right: set[int]
    ) -> None:
        """Print aligned columns; the last one is clipped to what is left.

        Args:
            right: numbers of the columns that are aligned to the right.
        """
        cells = [[(printable(text), style) for text, style in row] for row in rows]
        widths = [
            max([width(header), *(width(row[n][0]) for row in cells)])
            for n, header in enumerate(headers[:-1])
        ]
        # The first column names the row: it is cut last.
        while widths and sum(widths) + 2 * (len(widths) - 1) > self.columns and max(widths) > 1:
            others = widths[1:] if max(widths[1:], default=0) > 1 else widths
            widths[widths.index(max(others), len(widths) - len(others))] -= 1
        left = self.columns - sum(widths) - 2 * len(widths)
        for row in ([(header, "dim") for header in headers], *cells):
            pieces = [
                self._styled(pad(clip(text, widths[n]), widths[n], right=n in right), style)
                for n, (text, style) in enumerate(row[:-1])
            ]
            last, style = row[-1]
            if left >= 4 or not pieces:
                pieces.append(self._styled(clip(last, max(left, 4)), style))
            self._put("  ".join(pieces))

    def _painted(self, text: str, styles: Sequence[str]) -> str:
        """A text with a style for each of its characters."""
        pieces, at = [], 0
        for style, run in groupby(styles):
            end = at + len(list(run))
            pieces.append(self._styled(text[at:end], style))
            at = end
        return "".join(pieces) + text[at:]

    def _styled(self, text: str, style: str) -> str:
        if not self.coloured or not style or not text:
            return text
        return click.style(text, **_STYLES[style])  # type: ignore[arg-type]

    def _put(self, line: str) -> None:
        print(line.rstrip(), file=self._file)


def _is_terminal(file: TextIO) -> bool:
    try:
        return file.isatty()
    except ValueError:  # closed
        return False
