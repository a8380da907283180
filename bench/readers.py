# SPDX-License-Identifier: Apache-2.0
"""Mark 12: recording while somebody reads in the browser and `watch` follows, against nobody.

Two histories get the same steps in turn. Nobody looks at the one. Of the other ``serve`` (Datasette
with our plugin) shows a page `PER_SECOND` times a second, the list, a task and tables of Datasette,
and ``watch`` writes each event to a pipe; both are processes of their own, so on a machine with few
processors they also take computing time from the agent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from bench import large, ours
from bench.harness import Benchmark, Check, Result, measure, ratio
from bench.peers import workload

ABOUT: Final = Benchmark(12, "recording while Datasette and watch read")

STEPS: Final = 40
PER_SECOND: Final = 4
PAGES: Final = (
    "/-/taskhistory/",
    "/-/taskhistory/tasks/{task}",
    "/history/tasks",
    "/history/steps?task_id={task}",
)


class Agent:
    """Records one task a round."""

    def __init__(self, recorded: ours.Recorder, reader: Reader | None = None) -> None:
        self._recorded = recorded
        self._reader = reader
        self._texts = workload.Texts(12)

    def round(self) -> Sequence[float]:
        """Some steps, while the reader reads; ms of each."""
        took = []
        messages = large.beginning()
        with self._recorded.tasks.task(self._texts.text(60), agent="desk") as task:
            if self._reader is not None:
                self._reader.read(task.trace_id)
            for index in range(STEPS):
                began = time.perf_counter_ns()
                large.step(task, messages, self._texts, index)
                took.append((time.perf_counter_ns() - began) / 1e6)
            if self._reader is not None:
                self._reader.rest()
        ours.settle(self._recorded.exporter)
        return took


class Reader:
    """Asks for pages while it is told to; a process of its own, so that it needs no lock of ours.

    Attributes:
        pages: how many pages it got.
    """

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.readers", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pages = 0

    def read(self, task: str) -> None:
        """Begin, with the pages of a task."""
        assert self._process.stdin is not None
        print(task, file=self._process.stdin, flush=True)

    def rest(self) -> None:
        """Pause.

        Raises:
            RuntimeError: a page could not be had; then nothing was measured.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the reader has died")
        self.pages += json.loads(answer)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    with ExitStack() as stack:
        alone = stack.enter_context(ours.recorder(durability="full"))
        read = stack.enter_context(ours.recorder(durability="full"))
        ours.warm(alone)
        ours.warm(read)
        address = stack.enter_context(served(read.directory))
        events = stack.enter_context(watched(read.directory))
        reader = Reader(address)
        stack.callback(reader.close)
        names = ("while they read", "alone")
        sides = {names[0]: Agent(read, reader).round, names[1]: Agent(alone).round}
        series = measure(2 if quick else 40, sides, than=names[1])
        time.sleep(1)  # `watch` looks every now and then
        seen, pages = len(events), reader.pages
    if not (seen and pages):
        raise RuntimeError(f"nobody read: {seen} events, {pages} pages")
    return Result(
        "readers",
        ABOUT,
        quick,
        series,
        [Check("a step while they read, times one alone", ratio(series[0], series[1]), 1.15)],
        [f"`watch` told of {seen:,} events, {pages:,} pages were shown meanwhile."],
    )


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """``otel-taskhistory serve``; its address."""
    with _command("serve", "--port", "0", "--directory", str(directory)) as process:
        assert process.stdout is not None
        for line in process.stdout:
            where = line.find("http://")
            if where >= 0:
                address = line[where:].split()[0].rstrip("/")
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield address
                return
        raise RuntimeError("serve has ended at once")


@contextmanager
def watched(directory: Path) -> Iterator[list[str]]:
    """``otel-taskhistory watch --json``; the lines it has written."""
    lines: list[str] = []
    with _command("watch", "--json", "--directory", str(directory)) as process:
        assert process.stdout is not None
        threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True).start()
        yield lines


@contextmanager
def _command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-m", "otel_taskhistory", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def client(address: str) -> None:
    """In the process of the reader: a task on stdin starts it, an empty line stops it."""
    task = ""
    pages = 0
    told = threading.Event()
    over: list[bool] = []

    def listen() -> None:
        nonlocal task, pages
        for line in sys.stdin:
            task = line.strip()
            if task:
                told.set()
            else:
                told.clear()
                print(json.dumps(pages), flush=True)
                pages = 0
        over.append(True)
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    number = 0
    while told.wait() and not over:
        path = PAGES[number % len(PAGES)].format(task=task)
        number += 1
        with urllib.request.urlopen(address + path) as answer:  # noqa: S310 - http, see `served`
            answer.read()
        pages += 1
        time.sleep(1 / PER_SECOND)


if __name__ == "__main__":
    client(sys.argv[1])
