# SPDX-License-Identifier: Apache-2.0
"""The agent whose fsyncs are counted: ``fsync_agent DIRECTORY DURABILITY THREADS STEPS``.

It says on stdout, for the trace of its system calls, before and after each call of interest:
``MARK > WHAT`` and ``MARK < WHAT``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from otel_taskhistory import Task
from tests.crash.agent import recording
from tests.crash.scripted import picture

MESSAGES = [{"role": "user", "content": "what now?"}]


@contextmanager
def marked(what: str) -> Iterator[None]:
    """Say when it begins and when it has returned."""
    os.write(1, f"MARK > {what}\n".encode())
    yield
    os.write(1, f"MARK < {what}\n".encode())


def one_step(task: Task, name: str, number: int) -> None:
    """A step of which each call is marked."""
    with marked(f"start {name}"):
        step = task.step(name)
    with marked(f"prompt {name}"):
        step.prompt(MESSAGES, model="m")
    with marked(f"decision {name}"):
        step.decision("that", usage={"input_tokens": 3})
    with marked(f"tool {name}"):
        call = step.tool_call("touch", {"hard": True})
    call.result("touched")
    with marked(f"tool-end {name}"):
        call.end()
    with marked(f"screenshot {name}"):
        step.screenshot(picture(number))
    step.result("done")
    with marked(f"end {name}"):
        step.end()


def steps(task: Task, thread: int, count: int, barrier: threading.Barrier) -> None:
    """All steps of one thread; all threads end theirs at about the same time."""
    for number in range(count):
        step = task.step()
        step.prompt(MESSAGES, model="m")
        barrier.wait()
        with marked(f"end t{thread}-{number}"):
            step.end()


def main() -> None:
    """Warm the write-ahead log, then carry out the steps: one by one, or in many threads."""
    directory, durability, threads, count = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    with recording(directory, durability) as tasks, tasks.task("count my fsyncs") as task:
        with task.step("warm up") as step:
            step.prompt(MESSAGES)
        with marked("all"):
            if threads == 1:
                for number in range(count):
                    one_step(task, f"s{number}", number)
            else:
                barrier = threading.Barrier(threads)
                workers = [
                    threading.Thread(target=steps, args=(task, thread, count, barrier))
                    for thread in range(threads)
                ]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()


if __name__ == "__main__":
    main()
