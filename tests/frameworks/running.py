# SPDX-License-Identifier: Apache-2.0
"""An example of ``examples/frameworks`` in a process of its own, whose model waits for the test.

The test is ordered by the files that the example's model writes and waits for, never by time; see
``examples/frameworks/offline.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from otel_taskhistory import TaskHistory
from otel_taskhistory.errors import HistoryNotFound
from tests.frameworks.environments import ROOT, ready

EXAMPLES: Final = ROOT / "examples" / "frameworks"
PATIENCE: Final = 60.0
"""Seconds after which an example is taken to hang; nothing is measured by it."""


def program_of(name: str) -> Path:
    """The file of a framework's example; its name hides no package from its own imports."""
    return EXAMPLES / f"with_{name.replace('-', '_')}.py"


class Example:
    """The example of a framework, run as its users do, in an environment with that framework.

    Args:
        name: of the framework.
        folder: an empty one for its history and what it says.
        gated: whether its model waits to be let answer.
    """

    def __init__(self, name: str, folder: Path, *, gated: bool = True) -> None:
        self.directory = folder / "history"
        self._gate = folder / "gate"
        self._gate.mkdir()
        self._output = folder / "output"
        environ = {**os.environ, "OTEL_TASKHISTORY_DIRECTORY": str(self.directory)}
        if gated:
            environ["OFFLINE_MODEL_GATE"] = str(self._gate)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [ready(name), program_of(name)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environ,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)

    def until_asked(self, turn: int) -> None:
        """Return when the model was asked for this turn, and waits."""
        asked = self._gate / f"{turn}.asked"
        self.until(asked.exists, f"the model was never asked for turn {turn}")

    def answer(self, turn: int, how: str = "as written") -> None:
        """Let the model say this turn, or ``fail``."""
        written = self._gate / f"{turn}.writing"
        written.write_text(how, encoding="utf-8")
        written.rename(self._gate / f"{turn}.answer")  # whole, whenever it is read

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def until(self, holds: Callable[[], bool], otherwise: str, pause: float = 0.02) -> None:
        """Return when something holds, asked every `pause` seconds while the example runs."""
        end = time.monotonic() + PATIENCE
        while not holds():
            ended = self._process.poll() is not None
            assert not ended, f"{otherwise}; it ended and said:\n{self.said()}"
            assert time.monotonic() < end, f"{otherwise}; until now it said:\n{self.said()}"
            time.sleep(pause)

    def until_seen(self, holds: Callable[[TaskHistory], bool], otherwise: str) -> None:
        """Return when something holds of the history, as another process reads it."""

        def seen() -> bool:
            try:
                with TaskHistory(self.directory) as history:
                    return holds(history)
            except HistoryNotFound:
                return False

        self.until(seen, otherwise, pause=0.2)  # the example needs the processor more than we

    def end(self) -> int:
        """The status that it ends with by itself."""
        return self._process.wait(PATIENCE)

    def said(self) -> str:
        """What it printed so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")
