# SPDX-License-Identifier: Apache-2.0
"""The line that says how far long work is."""

from __future__ import annotations

import io

from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.text import count


class Terminal(io.StringIO):
    """Takes what a terminal would show."""

    def isatty(self) -> bool:
        return True


def test_it_counts_in_the_unit_of_the_work() -> None:
    """Bytes of a file, tasks of a history; and it leaves nothing behind."""
    shown = Terminal()
    with Progress(shown) as progress:
        progress.tell("exporting", 3, 50, count)
        progress._next = 0.0
        progress.tell("importing", 2048, 4096)
    assert "exporting: 3 of 50 (6 %)" in shown.getvalue()
    assert "importing: 2 KiB of 4 KiB (50 %)" in shown.getvalue()
    assert shown.getvalue().endswith("\r")


def test_nothing_is_shown_where_nobody_looks() -> None:
    """A file gets no line that is written over."""
    shown = io.StringIO()
    with Progress(shown) as progress:
        progress.tell("exporting", 3, 50, count)
    assert shown.getvalue() == ""
