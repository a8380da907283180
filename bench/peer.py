# SPDX-License-Identifier: Apache-2.0
"""Our end of a peer's program: it runs in its own environment and does rounds when it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from bench import environments

PROGRAMS: Final = Path(__file__).parent / "peers"


class Peer:
    """A peer's program at work.

    Attributes:
        versions: what it said it runs on.
    """

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self._process = process
        self._log = log
        self.versions: dict[str, str] = self._answer()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have it carry out a command; what it returned.

        Raises:
            RuntimeError: it died over it; the message has what it wrote to stderr.
        """
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            raise RuntimeError(f"a peer's program has died:\n{self._log.read()[-4000:]}")
        return json.loads(line)


@contextmanager
def peer(environment: str, program: str, **variables: str) -> Iterator[Peer]:
    """Start ``peers/PROGRAM.py`` in an environment, in a working folder of its own.

    Args:
        environment: a name of `bench.environments`; its packages are installed if need be.
        program: the program.
        variables: added to its environment variables.
    """
    python = environments.ready(environment)
    with (
        tempfile.TemporaryDirectory(prefix="taskhistory-bench-") as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8") as log,
    ):
        process = subprocess.Popen(
            [str(python), str(PROGRAMS / f"{program}.py")],
            cwd=folder,
            # It finds `serve` and `workload` beside itself, as Python puts its folder on the path.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )
        try:
            yield Peer(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                print(f"{program} does not end by itself", file=sys.stderr)
                process.kill()
                process.wait()
