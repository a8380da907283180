# SPDX-License-Identifier: Apache-2.0
"""What an agent's day takes, in each form in which it can be kept or sent: ``docs/fleet.md``.

``python -m bench.fleet_size`` prints a table. It measures sizes, no times, so it is no benchmark
that `python -m bench` runs.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from opentelemetry.sdk.trace import TracerProvider

from bench import ours
from bench.harness import aligned, quantity
from bench.peers.workload import Conversation, Texts
from otel_taskhistory import (
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from otel_taskhistory.redaction import Policy, policy_named
from otel_taskhistory.spans.otlp_protobuf import spans_to_protobuf
from otel_taskhistory.spans.otlp_write import spans_document
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.outgoing import Outgoing
from otel_taskhistory.transport.archive import write_archive
from otel_taskhistory.transport.parquet import write_parquet

TASKS: Final = 200
STEPS: Final = 10
RESULT_BYTES: Final = 1700
SPANS: Final = 512
"""A request, as `forward` sends them at most."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a form takes."""

    form: str
    bytes: int


def record(directory: Path, tasks: int, steps: int) -> None:
    """Tasks whose conversation grows with every step and is sent as a whole each time."""
    texts = Texts(11)
    with _recording(directory) as tracer:
        for number in range(tasks):
            talk = Conversation(number)
            messages = [{"role": "system", "content": texts.text(1000)}]
            with tracer.task(texts.text(80), agent="desk", conversation_id=f"c{number}") as task:
                for index in range(steps):
                    asked, answer = talk.texts()
                    messages = [*messages, {"role": "user", "content": asked}]
                    usage = {"input_tokens": 1000 + 600 * index, "output_tokens": 200}
                    with task.step(f"step {index}") as step:
                        step.prompt(messages, model="large-1")
                        step.decision(answer, usage=usage)
                        with step.tool_call("browser.open", {"page": texts.text(60)}) as call:
                            call.result(texts.text(RESULT_BYTES))
                        step.result("went on")
                    messages = [*messages, {"role": "assistant", "content": answer}]
                task.result(texts.text(80))


@contextmanager
def _recording(directory: Path) -> Iterator[TaskTracer]:
    exporter = TaskHistoryExporter(directory, durability="normal")
    provider = TracerProvider(span_limits=ours.WHOLE)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    try:
        yield TaskTracer(provider, exporter=exporter)
        ours.settle(exporter)
    finally:
        provider.shutdown()
    ours.check(exporter)


def sent(history: TaskHistory, policy: Policy) -> int:
    """Bytes of the bodies that `forward` sends."""
    names = history.read(lambda c: Outgoing(c).tasks())
    rows = [
        row for name in names for row in history.read(lambda c, n=name: Outgoing(c).rows_of_task(n))
    ]
    total = 0
    for start in range(0, len(rows), SPANS):
        some = history.read(partial(_spans, rows=rows[start : start + SPANS]))
        leaving = [out for out in map(policy.span, some) if out is not None]
        total += len(gzip.compress(spans_to_protobuf(spans_document(leaving)), 6))
    return total


def _spans(connection: object, rows: list[int]) -> list[SpanRecord]:
    return list(Outgoing(connection).spans(rows))  # type: ignore[arg-type]


def sizes(folder: Path, tasks: int, steps: int) -> Iterator[Size]:
    """Of each form, of so many tasks with so many steps."""
    directory = folder / "history"
    record(directory, tasks, steps)
    yield Size("history (SQLite)", _bytes(directory))
    with TaskHistory(directory) as history:
        yield Size("OTLP, ids_only, gzip", sent(history, policy_named("ids_only")))
        yield Size("OTLP, everything, gzip", sent(history, policy_named("everything")))
        for name, prompts in (("Parquet", False), ("Parquet, --prompts", True)):
            target = folder / name
            write_parquet(history, None, target, lambda done, total: None, prompts=prompts)
            yield Size(name, _bytes(target))
        with (folder / "archive.zip").open("wb") as file:
            write_archive(history, None, file, lambda done, total: None)
        yield Size("archive", (folder / "archive.zip").stat().st_size)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_size")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    with ours.folder() as folder:
        rows = [
            [
                size.form,
                quantity(size.bytes, "B"),
                quantity(size.bytes / given.tasks, "B"),
                quantity(size.bytes / given.tasks / given.steps, "B"),
                "",
            ]
            for size in sizes(folder, given.tasks, given.steps)
        ]
    print("\n".join(aligned(("", f"{given.tasks} tasks", "a task", "a step", ""), rows)))


if __name__ == "__main__":
    main()
