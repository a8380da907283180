# SPDX-License-Identifier: Apache-2.0
"""Host Agents in processes of their own, for tests of what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = Path(__file__).parent / "programs" / "worker.py"


class Worker:
    """A process that runs `programs/worker.py`; killed, with its forked children, at the end."""

    def __init__(self, directory: Path, how: str = "task", *which: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(directory), how, *which],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        self._children: list[int] = []
        said = self._answer()
        self.pid: int = said["pid"]
        self.task_id: str = said.get("task_id", "")
        self.step_id: str = said.get("step_id", "")

    def ask(self, word: str) -> dict[str, Any]:
        """Let it do something; returns when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        said = self._answer()
        if "child" in said:
            self._children.append(said["child"])
        return said

    def kill(self, *, reap: bool = True) -> None:
        """SIGKILL; without `reap` it stays a zombie until the end."""
        self._process.kill()
        if reap:
            self._process.wait()
        else:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def leave(self) -> None:
        """Let it end in order, whatever it has still open."""
        self.ask("leave")
        assert self._process.wait() == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline() or "null")
        assert said is not None, "the worker ended with an error"
        return said
