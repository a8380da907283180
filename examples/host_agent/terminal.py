# SPDX-License-Identifier: Apache-2.0
"""The agent's terminal: what it said, the commands it gave and what came back, line by line."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from typing import Any

from .screen import draw

COLUMNS = 100
ROWS = 34
OUTPUT_LINES = 16
"""Most lines of the screen that the result of one command takes."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen and what kind of text it shows."""

    text: str
    style: str
    """``said``, ``command``, ``output``, ``error`` or ``answer``."""


class Terminal:
    """A transcript that grows at its end, and pictures of its last screenful."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[Line] = []

    def said(self, text: str) -> None:
        """The model's own words."""
        self._space()
        self._add(text, "said")

    def command(self, name: str, arguments: dict[str, Any]) -> None:
        """A tool call, written like a command."""
        shown = " ".join(f"{key}={_scalar(value)}" for key, value in arguments.items())
        self._add(f"$ {name} {shown}".rstrip(), "command")

    def output(self, value: Any) -> None:
        """What a tool returned; a long result is shown by its beginning, and says so."""
        lines = wrapped("\n".join(as_lines(value)))
        if len(lines) > OUTPUT_LINES:
            rest = len(lines) - OUTPUT_LINES + 1
            lines = [*lines[: OUTPUT_LINES - 1], f"[{rest} more lines]"]
        self._add("\n".join(lines), "output")

    def error(self, text: str) -> None:
        """Why a tool, or the task, failed."""
        self._add(text, "error")

    def answer(self, text: str) -> None:
        """The answer to the goal."""
        self._space()
        self._add(text, "answer")

    def screenshot(self, step: int) -> bytes:
        """The last screenful as a PNG, with the goal and the step's number in its title bar."""
        return draw(
            title=textwrap.wrap(printable(self.title), COLUMNS - 14)[:3],
            corner=f"step {step}",
            lines=[(line.text, line.style) for line in self.lines[-ROWS:]],
            columns=COLUMNS,
            rows=ROWS,
        )

    def _add(self, text: str, style: str) -> None:
        self.lines.extend(Line(line, style) for line in wrapped(text))

    def _space(self) -> None:
        if self.lines:
            self.lines.append(Line("", "output"))


def wrapped(text: str) -> list[str]:
    """The lines of `text`, long ones continued on the next one, indented, never cut."""
    lines: list[str] = []
    for line in text.splitlines():
        shown = printable(line.expandtabs(4))
        lines += textwrap.wrap(
            shown, COLUMNS, subsequent_indent="    ", break_on_hyphens=False
        ) or [""]
    return lines


def printable(text: str) -> str:
    """`text` with every character that a terminal might obey replaced."""
    return "".join(char if char.isprintable() else "?" for char in text)


def as_lines(value: Any) -> list[str]:
    """A JSON value as lines for people: ``key: value``, tables for lists of objects."""
    if isinstance(value, str):
        return value.splitlines()
    if isinstance(value, dict):
        lines = [line for key, item in value.items() for line in _entry(key, item)]
        # A small flat object reads best in one go.
        joined = "  ".join(lines)
        flat = len(lines) == len(value) and len(joined) <= COLUMNS * 3 // 2
        return [joined] if flat else lines
    if _is_table(value):
        return _table(value)
    return [_scalar(value)]


def _entry(key: str, value: Any) -> list[str]:
    if _is_table(value):
        return [f"{key}:", *(f"  {line}" for line in _table(value))]
    if isinstance(value, dict):
        return [f"{key}:", *(f"  {line}" for line in as_lines(value))]
    if isinstance(value, str) and "\n" in value:
        return [f"{key}:", *(f"  {line}" for line in value.splitlines())]
    if isinstance(value, list):
        return [f"{key}: {', '.join(_scalar(item) for item in value) or '(none)'}"]
    return [f"{key}: {_scalar(value)}"]


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Rows with the columns of the first, aligned; numbers to the right."""
    keys = list(rows[0])
    cells = [keys, *([_scalar(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(keys))]
    right = [isinstance(rows[0][key], int | float) for key in keys]
    return [
        "  ".join(
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
