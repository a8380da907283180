# SPDX-License-Identifier: Apache-2.0
"""Which call waits for the disk, seen from outside: the system calls of a real agent."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

THREADS = 32
STEPS = 4


@cache
def why_not() -> str | None:
    """Why system calls cannot be watched here, None when they can."""
    if shutil.which("strace") is None:
        return "fsyncs are counted with strace, which is not installed (apt install strace)"
    tried = subprocess.run(
        ["strace", "-f", "-e", "trace=fsync", sys.executable, "-c", ""],
        capture_output=True,
        check=False,
    )
    return None if tried.returncode == 0 else "strace may not watch other processes here"


@pytest.fixture
def strace() -> None:
    """Skip the test where there is none."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


STRACE = pytest.mark.usefixtures("strace")


@dataclass(frozen=True, slots=True)
class Sync:
    """One fsync or fdatasync; `begin` and `end` are positions in the trace."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What an agent did, in the order it happened."""

    calls: dict[str, tuple[int, int]]
    """By what the agent calls it: from where to where in the trace."""
    syncs: tuple[Sync, ...]

    def within(self, call: str) -> list[str]:
        """Files that were synced, from begin to end, during the call."""
        begin, end = self.calls[call]
        return [sync.file for sync in self.syncs if begin < sync.begin and sync.end < end]

    def during(self, kind: str) -> list[list[str]]:
        """Likewise for each call of a kind."""
        return [self.within(call) for call in self.calls if call.split()[0] == kind]


_SYNC = re.compile(r"(?P<pid>\d+) +f(?:data)?sync\(\d+<(?P<file>.*?)>(?P<rest>\) += 0| <unfini)")
_SYNCED = re.compile(r"(?P<pid>\d+) +<\.\.\. f(?:data)?sync resumed>\) += 0")
_MARK = re.compile(r'(?P<pid>\d+) +write\(1<.*?>, "MARK (?P<side>[<>]) (?P<call>[^\\]*)\\n"')
_WRITTEN = re.compile(r"(?P<pid>\d+) +<\.\.\. write resumed>")


def watch(directory: Path, durability: str, *, threads: int, steps: int) -> Trace:
    """Run the agent and see what it does."""
    output = directory / "trace"
    history = directory / "history"
    command = [sys.executable, "-m", "tests.crash.fsync_agent", str(history), durability]
    subprocess.run(
        [
            *("strace", "-f", "-y", "-s", "200", "-e", "trace=fsync,fdatasync,write"),
            *("-e", "signal=none", "-o", str(output), *command, str(threads), str(steps)),
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return read_trace(output.read_text(), history)


def read_trace(text: str, history: Path) -> Trace:
    """Make sense of what strace wrote; files are named as from the history's directory."""
    syncs: list[Sync] = []
    syncing: dict[str, tuple[str, int]] = {}
    begun: dict[str, int] = {}
    calls: dict[str, tuple[int, int]] = {}
    beginning: dict[str, str] = {}
    for position, line in enumerate(text.splitlines()):
        if found := _SYNC.match(line):
            file = found["file"].removeprefix(f"{history}/")
            if found["rest"].endswith("0"):
                syncs.append(Sync(file, position, position))
            else:
                syncing[found["pid"]] = (file, position)
        elif found := _SYNCED.match(line):
            file, begin = syncing.pop(found["pid"])
            syncs.append(Sync(file, begin, position))
        elif found := _MARK.match(line):
            beginning.pop(found["pid"], None)
            if found["side"] == "<":
                calls[found["call"]] = (begun[found["call"]], position)
            else:
                begun[found["call"]] = position
                beginning[found["pid"]] = found["call"]
        elif (found := _WRITTEN.match(line)) and found["pid"] in beginning:
            # What the agent does next it does after this line, not after the one before.
            begun[beginning.pop(found["pid"])] = position
    return Trace(calls, tuple(syncs))


def of_database(files: list[str]) -> list[str]:
    """Those that are the database or beside it."""
    return [file for file in files if file.startswith("history.db")]


@STRACE
def test_an_ended_step_costs_one_fsync_and_nothing_else_any(tmp_path: Path) -> None:
    """With durability full, the end of a step returns after the fsync of its commit; starts and
    checkpoints, and the ends of tool calls, wait for no disk.
    """
    trace = watch(tmp_path, "full", threads=1, steps=STEPS)
    assert trace.during("end") == [["history.db-wal"]] * STEPS
    for kind in ("start", "prompt", "decision", "tool", "tool-end"):
        assert trace.during(kind) == [[]] * STEPS, kind
    assert of_database(trace.within("all")) == ["history.db-wal"] * STEPS


@STRACE
def test_a_screenshot_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """The file of a picture, then its directory, are synced before any row names it; the row
    itself waits for no disk.
    """
    trace = watch(tmp_path, "full", threads=1, steps=STEPS)
    for files in trace.during("screenshot"):
        assert of_database(files) == []
        assert re.fullmatch(r"artifacts/[0-9a-f]{2}/.+", files[-2])
        assert files[-1] == str(Path(files[-2]).parent)


@STRACE
def test_with_normal_durability_no_step_waits_for_the_disk(tmp_path: Path) -> None:
    """Steps then survive the death of the process, not of the machine; pictures both."""
    trace = watch(tmp_path, "normal", threads=1, steps=STEPS)
    assert of_database(trace.within("all")) == []
    assert all(trace.during("screenshot"))


@STRACE
def test_concurrent_steps_share_fsyncs_and_none_returns_before_its_own(tmp_path: Path) -> None:
    """Of 32 threads each step's end sees a whole fsync go by that began after it was called, and
    there are fewer fsyncs than steps.
    """
    trace = watch(tmp_path, "full", threads=THREADS, steps=STEPS)
    ends = trace.during("end")
    assert len(ends) == THREADS * STEPS
    assert all("history.db-wal" in files for files in ends)
    files = of_database(trace.within("all"))
    # When SQLite folds the log into the database it syncs the log once more, then the database.
    commits = files.count("history.db-wal") - files.count("history.db")
    assert 0 < commits < THREADS * STEPS


TRACE = r"""
7 write(1</x>, "MARK > end a\n", 13 <unfinished ...>
8 fdatasync(4</h/history.db-wal>) = 0
7 <... write resumed>) = 13
9 fdatasync(4</h/history.db-wal> <unfinished ...>
5 write(1</x>, "MARK > end b\n", 13) = 13
9 <... fdatasync resumed>) = 0
7 write(1</x>, "MARK < end a\n", 13) = 13
5 write(1</x>, "MARK < end b\n", 13 <unfinished ...>
8 fsync(4</h/history.db>) = 0
5 <... write resumed>) = 13
"""


def test_reading_a_trace() -> None:
    """What begins before a call, or ends after it, is not within it."""
    trace = read_trace(TRACE, Path("/h"))
    assert trace.within("end a") == ["history.db-wal"]
    assert trace.within("end b") == []
