# SPDX-License-Identifier: Apache-2.0
"""Records tasks into a limit far below their size, and adds up the files after each step.

The full size of what `tests/store/test_retention_scenarios.py` does on a small scale::

    python bench/retention_soak.py --tasks 500 --limit 20MB --task-size 200KB
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    Retention,
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from otel_taskhistory.history import Page, Task
from otel_taskhistory.units import format_size, parse_size

STEPS = 3


def picture(chance: random.Random, size: int) -> bytes:
    """A PNG of about so many bytes that no other one resembles."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    noise = chunk(b"IDAT", chance.randbytes(size))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + noise + chunk(b"IEND", b"")


def on_disk(directory: Path) -> int:
    """All files together, the small ones by which writers know each other too."""
    total = 0
    for folder, _, names in os.walk(directory):  # passes over folders that have just gone
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def wrong(directory: Path, tasks: int) -> list[str]:
    """What does not hold at the end: the newest tasks whole, a row for each file and vice versa."""
    found = []
    with TaskHistory(directory) as history:
        kept = [task for page in pages(history) for task in page]
        goals = [task.goal for task in kept]
        if goals != [f"goal {number}" for number in range(tasks - 1, tasks - 1 - len(kept), -1)]:
            found.append("the tasks that were kept are not the newest")
        rows = set()
        for task in kept:
            steps = history.steps(task.task_id)
            shots = history.screenshots(task.task_id)
            rows |= {shot.path for shot in shots}
            whole = all(step.prompt and step.status == "succeeded" for step in steps)
            if (len(steps), len(shots), whole) != (STEPS, STEPS, True):
                found.append(f"{task.goal} is not whole")
    root = directory / "artifacts"
    files = {path.relative_to(root).as_posix() for path in root.glob("??/*")}
    if files != rows:
        found.append(f"{len(files - rows)} files without rows, {len(rows - files)} without files")
    with closing(sqlite3.connect(directory / "history.db")) as database:
        for pragma in ("integrity_check", "foreign_key_check"):
            said = database.execute(f"PRAGMA {pragma}").fetchall()
            if said not in ([("ok",)], []):
                found.append(f"{pragma}: {said}")
    return found


def pages(history: TaskHistory) -> Iterator[Page[Task]]:
    """All tasks, newest first."""
    page = history.tasks()
    yield page
    while page.next is not None:
        page = history.tasks(cursor=page.next)
        yield page


def soak(directory: Path, tasks: int, limit: int, size: int) -> int:
    """Record, and say how it went; the exit status."""
    chance = random.Random(1)
    problems: list[BaseException] = []
    exporter = TaskHistoryExporter(
        directory, retention=Retention(None, None, limit), on_error=problems.append
    )
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tracer = TaskTracer(provider, exporter=exporter)
    largest = over = 0
    took = []
    began = time.monotonic()
    for number in range(tasks):
        messages = [{"role": "system", "content": "You carry out tasks. " * 50}]
        with tracer.task(f"goal {number}") as task:
            for index in range(STEPS):
                start = time.monotonic()
                with task.step(f"step {index}") as step:
                    words = chance.randbytes(size // (4 * STEPS)).hex()
                    messages = [*messages, {"role": "user", "content": words}]
                    step.prompt(messages)
                    step.screenshot(picture(chance, size // (2 * STEPS)))
                took.append(time.monotonic() - start)
                there = on_disk(directory)
                largest, over = max(largest, there), over + (there > limit)
    seconds = time.monotonic() - began
    with TaskHistory(directory) as history:
        kept, content = history.count_tasks(), history.usage().content
    provider.shutdown()
    broken = wrong(directory, tasks)
    took.sort()
    print(f"{tasks} tasks of {format_size(size)} in {seconds:.1f} s, {kept} of them kept")
    print(f"limit {format_size(limit)}, content {format_size(content)}")
    print(f"largest sum of files after a step: {format_size(largest)} ({largest / limit:.1%})")
    print(f"after {over} of {len(took)} steps it was above the limit")
    print(
        f"a step took {took[len(took) // 2] * 1e3:.1f} ms, p99 {took[-len(took) // 100] * 1e3:.1f}"
    )
    print(f"after closing: {format_size(on_disk(directory))}; problems: {problems or 'none'}")
    print(f"at the end: {', '.join(broken) or 'everything whole'}")
    return int(largest > limit + size // STEPS or bool(problems or broken))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--limit", type=parse_size, default=20 * 10**6)
    parser.add_argument("--task-size", type=parse_size, default=200_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(soak(Path(folder) / "history", given.tasks, given.limit, given.task_size))


if __name__ == "__main__":
    main()
