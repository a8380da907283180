# SPDX-License-Identifier: Apache-2.0
"""Several agents record into one history while it is read and Datasette serves it.

    python -m tests.crash.many --agents 4 --steps 500

Raises, so that the command fails, when a step is missing, a process had trouble, a reader saw
something go back, or the write-ahead log grew beyond `WAL_BYTES`.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from otel_taskhistory import TaskHistory
from tests.crash.agent import carry_out, recording
from tests.crash.checks import hold, reading
from tests.crash.scripted import STEPS, Place, stored

ROOT: Final = Path(__file__).resolve().parents[2]

WAL_BYTES: Final = 40 * 2**20
"""The write-ahead log is emptied from 8 MiB on, in a moment in which nobody reads: with readers and
two busy cores 16 to 22 MiB were seen."""

WAL_BYTES_AT_END: Final = 8 * 2**20
"""When all agents have closed the history, while Datasette still has it open."""

_PAUSE_SECONDS: Final = 0.05  # between two rounds of the reader, so that agents get their turn
_START_SECONDS: Final = 60.0
_DATASETTE: Final = (
    # A page that takes longer than a second on a busy machine is no error of ours.
    ("--setting", "sql_time_limit_ms", "60000"),
    ("--setting", "facet_time_limit_ms", "10000"),
)
_PAGES: Final = (
    "/history/tasks.json?_size=20&_sort_desc=id",
    "/history/steps.json?_size=5",
    "/history/timeline?_size=20&_sort_desc=seq",
    "/history/screenshots?_size=20",
    "/history.json?sql=select+count(*)+as+n,+max(seq)+from+timeline",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What happened."""

    steps: int
    seconds: float
    reads: int
    """Rounds of the reader, each of several queries."""
    pages: int
    """Pages that Datasette was asked for."""
    wal_most: int
    """The largest size of the write-ahead log that was seen, in bytes."""
    wal_at_end: int


def run(directory: Path, agents: int, steps: int) -> Summary:
    """Let them work on a new history; what happened.

    Raises:
        Broken: a promise does not hold.
    """
    history = directory / "history"
    with recording(history) as tasks, tasks.task("the first") as task:
        carry_out(task, Place(1, 0, 0, 0))
    wal = history / "history.db-wal"
    started = time.monotonic()
    reads = pages = wal_most = seen = 0
    with ExitStack() as stack:
        port = _free_port()
        datasette = stack.enter_context(_Process(directory / "datasette", _serve(history, port)))
        ask = _asking(port, datasette)
        working = [
            stack.enter_context(
                _Process(directory / f"agent-{number}", _agent(history, number, steps))
            )
            for number in range(agents)
        ]
        reader = stack.enter_context(TaskHistory(history))
        while any(agent.running for agent in working):
            seen = _read(reader, history, seen)
            ask(_PAGES[pages % len(_PAGES)])
            reads, pages = reads + 1, pages + 1
            wal_most = max(wal_most, _size(wal))
            time.sleep(_PAUSE_SECONDS)
        for agent in working:
            agent.must_be_well(0)
        seconds = time.monotonic() - started
        _all_there(history, agents, steps)
        for page in _PAGES:
            ask(page)
        datasette.must_be_well(None)
        wal_at_end = _size(wal)
    summary = Summary(agents * steps, seconds, reads, pages, wal_most, wal_at_end)
    hold(wal_most <= WAL_BYTES, "the write-ahead log was not bounded:", summary)
    hold(wal_at_end <= WAL_BYTES_AT_END, "the write-ahead log stays large:", summary)
    return summary


class _Process:
    """A process whose stderr is kept; ended at the latest when the block is left."""

    def __init__(self, errors: Path, command: list[str]) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def must_be_well(self, status: int | None) -> None:
        """It left with this status (None: runs) and said nothing on stderr but how it serves."""
        said = self._errors.read_text()
        trouble = [line for line in said.splitlines() if not line.startswith("INFO:")]
        hold(not trouble, self._errors.name, "had trouble:", said)
        hold(self._process.poll() == status, self._errors.name, "left:", self._process.poll())


def _agent(history: Path, number: int, steps: int) -> list[str]:
    module = "tests.crash.many_agent"
    return [sys.executable, "-m", module, str(history), str(number), str(steps)]


def _serve(history: Path, port: int) -> list[str]:
    settings = [word for setting in _DATASETTE for word in setting]
    return [
        *(sys.executable, "-m", "datasette", "serve", str(history / "history.db")),
        *("--host", "127.0.0.1", "--port", str(port), *settings),
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _asking(port: int, datasette: _Process) -> Callable[[str], bytes]:
    """Wait until Datasette serves; a function that gets a page of it."""

    def ask(page: str) -> bytes:
        # Not through a proxy that the environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}{page}", timeout=60) as response:
            content: bytes = response.read()
            return content

    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            ask("/-/versions.json")
        except OSError:
            hold(datasette.running and time.monotonic() < deadline, "Datasette does not start")
            time.sleep(0.05)
        else:
            return ask


def _read(reader: TaskHistory, history: Path, seen: int) -> int:
    """Read as a dashboard does; how many rows the timeline has."""
    for task in reader.tasks(limit=5)[:1]:
        steps = reader.steps(task.task_id)
        # The task was read before its steps: there may be more by now, never fewer.
        hold(len(steps) >= task.step_count, "steps of", task.task_id, "have gone")
        for step in steps:
            if step.prompt is not None:
                hold(stored(step.prompt) == Place.of(step.name).sent(), "prompt of", step.name)
    with reading(history) as database:
        count: int = database.execute("SELECT count(*) FROM timeline").fetchone()[0]
    hold(count >= seen, "the timeline has", count, "rows, it had", seen)
    return count


def _all_there(history: Path, agents: int, steps: int) -> None:
    wanted = {
        Place(0, agent, step // STEPS, step % STEPS).name
        for agent in range(agents)
        for step in range(steps)
    }
    with reading(history) as database:
        rows = database.execute("SELECT * FROM steps WHERE name LIKE 'r0-%'").fetchall()
        hold({row["name"] for row in rows} == wanted, "not all steps are there:", len(rows))
        hold(len(rows) == len(wanted), "steps are there twice")
        for row in rows:
            place = Place.of(row["name"])
            found = (row["status"], row["decision"], row["tool_result"], row["result"])
            hold(found == (place.status, place.decision, place.tool_result, place.result), found)
            hold(stored(row["prompt"]) == place.sent(), "the prompt of", place.name)
        losses = database.execute("SELECT * FROM timeline WHERE event = 'loss'").fetchall()
        hold(not losses, "losses:", [dict(row) for row in losses])
        verdict: Any = database.execute("PRAGMA integrity_check").fetchone()[0]
        hold(verdict == "ok", "integrity_check:", verdict)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.many", description=__doc__)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500, help="of each agent")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="many-") as directory:
        print(run(Path(directory), chosen.agents, chosen.steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
