# SPDX-License-Identifier: Apache-2.0
"""Mark 8: a large history against one of 1,000 steps; both give as many rows to each question.

By default the large one has 100,000 steps (200 tasks of 500): a tenth of what the mark speaks of,
built once in about five minutes. With ``BENCH_MILLION=1`` in the environment it has the whole
million, which takes about an hour and 3 GB of disk the first time; see `bench.large`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import TracerProvider

from bench import large, ours
from bench.harness import Benchmark, Check, Result, measure, one, ratio, say
from bench.peers import workload
from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.recording.handles import Task

ABOUT: Final = Benchmark(8, "a large history against one of 1,000 steps", slow=True)

MILLION: Final = "BENCH_MILLION"
STEPS_PER_ROUND: Final = 20

Ask = Callable[[TaskHistory], Any]

TASKS: Final = 50
"""Rows of each list."""

_LIMIT: Final = f"ORDER BY started_at DESC LIMIT {TASKS}"
QUESTIONS: Final[dict[str, Ask]] = {
    "newest 50 tasks": lambda history: history.tasks(limit=TASKS),
    "first page of a task": lambda history: history.steps(_long(history)),
    "the same without prompts": lambda history: history.steps(
        _long(history), without=("prompt", "decision")
    ),
    "tool_calls of a tool": lambda history: _sql(
        history, f"SELECT * FROM tool_calls WHERE name = '{large.TOOL}' LIMIT {TASKS}"
    ),
    "tool_calls of a tool, newest first": lambda history: _sql(
        history, f"SELECT * FROM tool_calls WHERE name = '{large.TOOL}' {_LIMIT}"
    ),
    "tool_calls of a rare tool": lambda history: _sql(
        history, f"SELECT * FROM tool_calls WHERE name = '{large.RARE_TOOL}' {_LIMIT}"
    ),
    "steps with a rare tool": lambda history: _sql(
        history, f"SELECT * FROM steps WHERE tool_name = '{large.RARE_TOOL}' {_LIMIT}"
    ),
    "search for a rare word": lambda history: history.search(large.RARE_WORD),
    "search for a frequent word": lambda history: history.search("the browser"),
    "a retention pass with nothing to do": lambda history: history.prune(large.NO_LIMITS),
    "open to read": lambda history: _open(history.settings.directory),
    "open to write": lambda history: _open_to_write(history.settings.directory),
}


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    tasks = 2 if quick else 2000 if os.environ.get(MILLION) else 200
    result = Result("million_steps", ABOUT, quick)
    with ExitStack() as stack:
        say("building, unless it is there ...")
        big = large.large(tasks)
        small = large.small(stack.enter_context(ours.folder()))
        _, steps = large.size_of(big)
        named = f"{steps:,} steps"
        pair = [stack.enter_context(TaskHistory(each)) for each in (small, big)]
        for history in pair:
            history.steps(_long(history))
        for what, ask in QUESTIONS.items():
            say(what)
            names = (f"{what}: 1,000 steps", f"{what}: {named}")
            sides = {name: _side(history, ask) for name, history in zip(names, pair, strict=True)}
            series = measure(2 if quick else 15, sides, than=names[0])
            result.series += series
            result.checks.append(
                Check(f"{what}, times that of few", ratio(series[1], series[0]), 3)
            )
        say("recording")
        with recording(small) as few, recording(big) as many:
            names = ("recording a step: 1,000 steps", f"recording a step: {named}")
            sides = {names[0]: few.round, names[1]: many.round}
            series = measure(2 if quick else 40, sides, than=names[0])
        result.series += series
        what = "recording a step, times that of few"
        result.checks.append(Check(what, ratio(series[1], series[0]), 1.2))
        size = (big / "history.db").stat().st_size
        result.series.append(one(f"the database of {named}", size, "B"))
    if steps < 1_000_000:
        result.notes.append(
            f"Measured with {named}, not with a million: {MILLION}=1 builds that. What grows with"
            " the logarithm of the size (the depth of a B-tree) gains one level at most by then."
        )
    return result


def _side(history: TaskHistory, ask: Ask) -> Callable[[], Sequence[float]]:
    def side() -> Sequence[float]:
        took = []
        for _ in range(3):
            began = time.perf_counter_ns()
            ask(history)
            took.append((time.perf_counter_ns() - began) / 1e6)
        return took

    return side


def _long(history: TaskHistory) -> str:
    """A task of many steps; the same one each time."""
    found = _LONG.get(history.settings.directory)
    if found is None:
        statement = "SELECT task_id FROM tasks WHERE step_count >= 500 LIMIT 1"
        found = _LONG[history.settings.directory] = str(_sql(history, statement)[0][0])
    return found


_LONG: dict[Path, str] = {}


def _sql(history: TaskHistory, statement: str) -> list[Any]:
    def query(connection: sqlite3.Connection) -> list[Any]:
        return connection.execute(statement).fetchall()

    return history.read(query)


def _open(directory: Path) -> None:
    with TaskHistory(directory) as history:
        history.timeline_end()


def _open_to_write(directory: Path) -> None:
    TaskHistoryExporter(directory, retention=large.NO_LIMITS).shutdown()


@dataclass
class Recording:
    """An agent that records into a history that is there."""

    exporter: TaskHistoryExporter
    task: Task
    texts: workload.Texts
    messages: list[dict[str, Any]]
    count: int = 0

    def round(self) -> Sequence[float]:
        """Some steps; ms of each. Then what waits is indexed."""
        took = []
        for _ in range(STEPS_PER_ROUND):
            began = time.perf_counter_ns()
            large.step(self.task, self.messages, self.texts, self.count)
            took.append((time.perf_counter_ns() - began) / 1e6)
            self.count += 1
        ours.settle(self.exporter)
        return took


@contextmanager
def recording(directory: Path) -> Iterator[Recording]:
    """Record a task, which is removed afterwards: the history may be used again."""
    exporter = TaskHistoryExporter(directory, retention=large.NO_LIMITS)
    provider = TracerProvider(shutdown_on_exit=False, span_limits=ours.WHOLE)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tasks = TaskTracer(provider, exporter=exporter)
    with tasks.task("measured") as task:
        yield Recording(exporter, task, workload.Texts(time.time_ns()), large.beginning())
    provider.shutdown()
    ours.check(exporter)
    with TaskHistory(directory) as history:
        history.remove(task.trace_id)
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
