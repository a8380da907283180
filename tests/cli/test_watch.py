# SPDX-License-Identifier: Apache-2.0
"""The command ``watch``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
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
    assert [line.split()[2] for line in lines[1:]] == [
        *("task.started", "step.started", "step.prompt", "step.ended", "task.ended"),
    ]


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
