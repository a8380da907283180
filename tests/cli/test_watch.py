# SPDX-License-Identifier: Apache-2.0
"""The command ``watch``."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.history import TimelineRecord
from otel_taskhistory.store.watching import told_of
from tests.cli.conftest import Run

PATIENCE = 60


@contextmanager
def recording(directory: Path) -> Iterator[TaskTracer]:
    """A tracer on a history that is closed at the end."""
    exporter = TaskHistoryExporter(directory)
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    yield TaskTracer(provider, exporter=exporter)
    provider.shutdown()


def one_task(tasks: TaskTracer, goal: str = "x") -> str:
    """A task of one step; its id."""
    with tasks.task(goal) as task, task.step("s") as step:
        step.prompt("what now?")
    return task.id


@contextmanager
def watching(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, interrupted at the end as people do it."""
    command = [sys.executable, "-m", "otel_taskhistory", "watch", *arguments]
    with subprocess.Popen(
        [*command, "--directory", str(directory)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0


def test_a_task_that_has_ended(run: Run, directory: Path) -> None:
    """All that happened to it, a line each, and then it is over."""
    with recording(directory) as tasks:
        task_id = one_task(tasks)
        one_task(tasks)
    result = run("watch", task_id[:10])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[3] for line in lines[1:]] == [
        *("task.started", "step.started", "step.prompt", "step.ended", "task.ended"),
    ]
    with TaskHistory(directory) as history:
        known = [str(record.seq) for record in records(history, task_id)]
    assert [line.split()[0] for line in lines[1:]] == known


def records(history: TaskHistory, task_id: str) -> list[TimelineRecord]:
    """All of a task."""
    watch, found = history.watch(None, task_id), []
    while (record := watch.wait(0)) is not None:
        found.append(record)
    return found


def test_goal_and_errors_are_shown(run: Run, directory: Path) -> None:
    """What was to be done, and what went wrong with a step, a tool call and the task: on the line
    of its event, escaped; nothing else has content.
    """
    with (
        recording(directory) as tasks,
        tasks.task("Book a\ntable \x1b[31m\u202e for two") as task,
    ):
        with suppress(KeyError), task.step("one") as step:
            step.prompt("secret prompt")
            with step.tool_call("look"):
                raise KeyError("line one\nline two\x07")
        with task.step("two") as step, step.tool_call("look") as call:
            call.result("fine")
        task.fail("gave up " * 100)
    result = run("watch", "latest", columns=2_000)
    by_event = [(line.split()[3], line) for line in result.output.splitlines()[1:]]
    told = {
        event: line
        for event, line in by_event
        if event.endswith(("task.started", "ended")) and "succeeded" not in line
    }
    assert told["task.started"].endswith(r"Book a table \x1b[31m\u202e for two")
    assert told["step.ended"].endswith(r"status=failed  KeyError: 'line one\nline two\x07'")
    assert told["tool_call.ended"].endswith(r"KeyError: 'line one\nline two\x07'")
    assert "status=failed  gave up gave up" in told["task.ended"]
    assert told["task.ended"].endswith("…")
    assert len(told["task.ended"]) < 450
    for text in ("secret", "fine", "\x1b", "\u202e", "\x07"):
        assert text not in result.output
    assert len(by_event) == len(result.output.splitlines()) - 1


def test_a_task_that_was_removed_meanwhile_has_no_goal(directory: Path) -> None:
    """What is shown is what the tables say at the time; that there is nothing is no failure."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, "a goal")
    with TaskHistory(directory) as history:
        found = records(history, task_id)
        told = [history.read(lambda c, record=record: told_of(c, record)) for record in found]
        assert told == ["a goal", None, None, None, None]
        history.remove(task_id)
        told = [history.read(lambda c, record=record: told_of(c, record)) for record in found]
        assert told == [None] * 5


def test_json_lines(run: Run, directory: Path) -> None:
    """One strict document a line, with the cursor to go on."""
    with recording(directory) as tasks:
        task_id = one_task(tasks)
    found = [json.loads(line) for line in run("watch", "latest", "--json").output.splitlines()]
    assert {record["task_id"] for record in found} == {task_id}
    rest = run("watch", "latest", "--json", "--after", found[2]["cursor"]).output.splitlines()
    assert [json.loads(line) for line in rest] == found[3:]


def test_what_comes_is_shown_as_it_comes(directory: Path) -> None:
    """Also after a task has ended, while another program records."""
    with recording(directory) as tasks:
        one_task(tasks)
        with watching(directory, "--json") as process:
            assert process.stdout is not None
            for again in range(3):
                if again:  # what was there before is shown first
                    one_task(tasks)
                events = [json.loads(process.stdout.readline())["event"] for _ in range(5)]
                assert events[-1] == "task.ended"


def cpu_seconds(pid: int) -> float:
    """How long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc, which Linux has")
def test_waiting_costs_next_to_nothing(directory: Path) -> None:
    """Watching is no load, also when the last task has ended."""
    with recording(directory) as tasks:
        one_task(tasks)
    with watching(directory, "--json") as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        before = cpu_seconds(process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        assert cpu_seconds(process.pid) - before < 0.5


def test_running_tasks(run: Run, directory: Path) -> None:
    """Those there are, and how many."""
    with recording(directory) as tasks:
        one_task(tasks, "done")
        with tasks.task("under way"):
            result = run("watch", "--running")
            assert result.output.startswith("1 task running")
            assert "under way" in result.output
            assert "done" not in result.output


def test_options_that_exclude_each_other(run: Run, directory: Path) -> None:
    """Status 2."""
    with recording(directory) as tasks:
        one_task(tasks)
    assert run("watch", "--running", "--json").exit_code == 2
    assert run("watch", "--new", "--after", "3").exit_code == 2
    assert run("watch", "--after", "nonsense").exit_code == 1


# --- on a terminal ------------------------------------------------------------------------------

_CLEAR = b"\x1b[H\x1b[2J"


class Terminal:
    """The command on a terminal of its own, of so many columns and lines."""

    def __init__(self, directory: Path, *arguments: str, columns: int, lines: int) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environ = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "otel_taskhistory", *arguments),
                *("--directory", str(directory)),
            ],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environ, "TERM": "xterm-256color", "TZ": "UTC"},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def until(self, wanted: str, after: int = 0) -> str:
        """Read until something has been printed; the last whole screen with it."""
        limit = time.monotonic() + PATIENCE
        while wanted.encode() not in self.seen[after:]:
            assert time.monotonic() < limit, self.seen[-2_000:]
            if select.select([self._own], [], [], 1)[0]:
                self.seen += os.read(self._own, 65_536)
        return self.seen[after:].decode("utf-8", "replace")

    def end(self) -> int:
        """Ctrl-C, as typed; the exit status."""
        os.write(self._own, b"\x03")
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(PATIENCE)
        os.close(self._own)
        return status


@pytest.mark.parametrize("columns", [100, 24])
def test_running_tasks_are_drawn_anew_on_a_terminal(directory: Path, columns: int) -> None:
    """One that begins comes, one that ends goes, without anything being typed; nothing recorded
    acts on the terminal; Ctrl-C ends it with status 0.
    """
    with recording(directory) as tasks:
        terminal = Terminal(directory, "watch", "--running", columns=columns, lines=12)
        try:
            terminal.until("0 tasks running")
            with tasks.task("first \x1b]0;PWNED\x07\u202e"):
                shown = terminal.until("first")
                assert "1 task running" in shown
                assert "\x1b]0" not in shown
                assert "\u202e" not in shown
                with tasks.task("second goal"):
                    terminal.until("second")
                    assert b"2 tasks running" in terminal.seen
                at = len(terminal.seen)
                last = terminal.until("1 task running", at).rpartition("1 task running")
                assert "second" not in last[2]
            terminal.until("0 tasks running", len(terminal.seen))
            screens = terminal.seen.split(_CLEAR)
            assert len(screens) > 4
            for screen in screens[1:-1]:  # the last one may have been cut off
                assert screen.count(b"\n") <= 12
        finally:
            status = terminal.end()
        assert status == 0
