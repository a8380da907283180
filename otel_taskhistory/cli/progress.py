# SPDX-License-Identifier: Apache-2.0
"""How far long work is, in one line on standard error; nothing when that is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from otel_taskhistory.units import format_size

_EVERY_SECONDS: Final = 0.1


class Progress:
    """Shows one line that is written over and over, and removed at the end.

    Args:
        file: by default standard error.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._shown = self._file.isatty()
        self._width = 0
        self._next = 0.0

    def tell(
        self, what: str, done: int, total: int, shown: Callable[[int], str] = format_size
    ) -> None:
        """Say how much of how much is done, by default in bytes; 0 of 0 when that is not known."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        text = what
        if total:
            percent = done * 100 // total
            text = f"{what}: {shown(done)} of {shown(total)} ({percent} %)"
        self._put(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            self._put("")
            self._file.write("\r")
            self._file.flush()

    def _put(self, text: str) -> None:
        self._file.write("\r" + text.ljust(self._width))
        self._file.flush()
        self._width = len(text)
