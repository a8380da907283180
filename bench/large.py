# SPDX-License-Identifier: Apache-2.0
"""A history of very many steps, recorded once and kept in ``.cache/bench``.

``python -m bench.large TASKS`` makes it grow to so many tasks of `STEPS` steps; a million steps
take about half an hour and 3 GB. What was built stays; a later call goes on from there.
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

from opentelemetry.sdk.trace import TracerProvider

from bench import ours
from bench.environments import ENVIRONMENTS
from bench.harness import say
from bench.peers import workload
from otel_taskhistory import Retention, TaskHistoryExporter, TaskTracer
from otel_taskhistory.recording.handles import Task

STEPS: Final = 500
NO_LIMITS: Final = Retention(None, None, None)

TOOL: Final = "open"
"""A tool that every fifth step uses."""
RARE_TOOL: Final = "refund"
RARE_WORD: Final = "quagga"
"""Said in one step of a history, the one that uses the rare tool too; no other text has it."""

_TASKS_PER_BATCH: Final = 2
_BUILT: Final = "built"  # a file that holds how many tasks are in


def large(tasks: int) -> Path:
    """The folder of a history of at least so many tasks of `STEPS` steps each; built if need be."""
    home = ENVIRONMENTS / f"large-{_schema()}"
    home.mkdir(parents=True, exist_ok=True)
    built = home / _BUILT
    done = int(built.read_text("utf-8")) if built.exists() else 0
    if done < tasks:
        began = time.monotonic()
        with Builder(home / "history") as builder:
            while done < tasks:
                builder.add([STEPS] * _TASKS_PER_BATCH, rare=not done)
                done += _TASKS_PER_BATCH
                built.write_text(str(done), "utf-8")
                if not done % 50:
                    say(f"{done} of {tasks} tasks after {time.monotonic() - began:.0f} s")
    return home / "history"


def size_of(directory: Path) -> tuple[int, int]:
    """(tasks, steps) of a history."""
    with closing(_read_only(directory)) as connection:
        counts = [
            int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for table in ("tasks", "_steps")
        ]
    return counts[0], counts[1]


def small(directory: Path) -> Path:
    """A history of 1,000 steps: a task as long as those of a large one, and a page of short ones.

    So each query gives as many rows as in a large one.
    """
    with Builder(directory / "history") as builder:
        builder.add([STEPS], rare=True)
        builder.add([10] * 50, rare=False)
    return directory / "history"


class Builder:
    """Records tasks in large batches; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._exporter = TaskHistoryExporter(directory, retention=NO_LIMITS, durability="normal")
        provider = TracerProvider(shutdown_on_exit=False, span_limits=ours.WHOLE)
        self._ended = workload.Collector()
        provider.add_span_processor(self._ended)
        self._tasks = TaskTracer(provider, exporter=ours.NoSink())
        self._texts = workload.Texts(time.time_ns())  # new ones also when it goes on later

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ours.settle(self._exporter, 600)
        self._exporter.shutdown()
        ours.check(self._exporter)

    def add(self, steps: Sequence[int], *, rare: bool) -> None:
        """Tasks of so many steps; the first one says the rare word if told so."""
        for number in steps:
            task(self._tasks, self._texts, number, rare=rare)
            rare = False
        self._exporter.export(self._ended.spans)
        self._ended.spans.clear()


def task(tracer: TaskTracer, texts: workload.Texts, steps: int, *, rare: bool = False) -> None:
    """A task of steps of about 400 bytes of new text each."""
    messages = beginning()
    with tracer.task(texts.text(60), agent="desk") as task:
        for index in range(steps):
            step(task, messages, texts, index, rare=rare and index == steps // 2)


def beginning() -> list[dict[str, Any]]:
    """The messages with which a task begins."""
    return [{"role": "system", "content": "You carry out tasks in the browser."}]


def step(
    task: Task,
    messages: list[dict[str, Any]],
    texts: workload.Texts,
    index: int,
    *,
    rare: bool = False,
) -> None:
    """One step; `messages` grow by two, and are kept to the last few."""
    asked = texts.text(200)
    messages.append({"role": "user", "content": f"{asked} {RARE_WORD}" if rare else asked})
    with task.step("look") as step:
        step.prompt(messages, model="large")
        answer = texts.text(100)
        step.decision(answer, usage={"input_tokens": 500, "output_tokens": 30})
        if index % 5 == 0 or rare:
            name = RARE_TOOL if rare else TOOL
            with step.tool_call(name, {"page": texts.text(30)}, call_id=f"c{index}") as call:
                call.result(texts.text(150))
    messages.append({"role": "assistant", "content": answer})
    if len(messages) > 7:
        del messages[1:3]


def _schema() -> str:
    """What tells histories of this version's schema from those of others."""
    with ours.folder() as folder:
        TaskHistoryExporter(folder, retention=NO_LIMITS).shutdown()
        with closing(_read_only(folder)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def _read_only(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{directory / 'history.db'}?mode=ro", uri=True)


if __name__ == "__main__":
    print(large(int(sys.argv[1])))
