# SPDX-License-Identifier: Apache-2.0
"""Records tasks into a limit far below their size, and adds up the files after each step.

The full size of what `tests/store/test_retention_scenarios.py` does on a small scale::

    python bench/retention_soak.py --tasks 500 --limit 20MB --task-size 200KB
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
import zlib
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    Retention,
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
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
    """All files together."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


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
    largest = 0
    began = time.monotonic()
    for number in range(tasks):
        messages = [{"role": "system", "content": "You carry out tasks. " * 50}]
        with tracer.task(f"goal {number}") as task:
            for index in range(STEPS):
                with task.step(f"step {index}") as step:
                    words = chance.randbytes(size // (4 * STEPS)).hex()
                    messages = [*messages, {"role": "user", "content": words}]
                    step.prompt(messages)
                    step.screenshot(picture(chance, size // (2 * STEPS)))
                largest = max(largest, on_disk(directory))
    seconds = time.monotonic() - began
    with TaskHistory(directory) as history:
        kept, content = history.count_tasks(), history.usage().content
    provider.shutdown()
    print(f"{tasks} tasks of {format_size(size)} in {seconds:.1f} s, {kept} of them kept")
    print(f"limit {format_size(limit)}, content {format_size(content)}")
    print(f"largest sum of files after a step: {format_size(largest)} ({largest / limit:.1%})")
    print(f"after closing: {format_size(on_disk(directory))}; problems: {problems or 'none'}")
    return int(largest > limit + size or bool(problems))


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
