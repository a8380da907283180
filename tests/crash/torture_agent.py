# SPDX-License-Identifier: Apache-2.0
"""The agent that is killed: threads that record tasks and say on stdout what has returned.

Reads one line from stdin, a JSON object of `Orders`, when everything is imported; then each line
it writes is one report (see `reports`). It goes on until it is killed, or, with ``tasks`` set,
until each thread has carried out so many; then it closes the history.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass

from otel_taskhistory import TaskTracer
from tests.crash.agent import carry_out, recording
from tests.crash.scripted import STEPS, Place


@dataclass(frozen=True, slots=True)
class Orders:
    """What the agent is to do."""

    directory: str
    round: int
    threads: int
    durability: str
    kill_at: int | None = None
    """Kill yourself at once after the report of this number, in whatever thread that is."""
    tasks: int | None = None
    """Tasks of each thread; None for no end."""


_count = itertools.count()
_orders: Orders


def say(*words: object) -> None:
    """One report, in one piece: lines this short are written to a pipe atomically."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
    if next(_count) == _orders.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def work(tasks: TaskTracer, thread: int) -> None:
    """Task after task."""
    numbers = itertools.count() if _orders.tasks is None else range(_orders.tasks)
    for number in numbers:
        task = tasks.task(Place(_orders.round, thread, number, 0).goal, agent=f"agent-{thread}")
        say("task", thread, task.id)
        for step in range(1 + number % STEPS):
            carry_out(task, Place(_orders.round, thread, number, step), say)
        say("ending", thread, "task", task.id)
        task.end()
        say("ended", thread, "task", task.id)


def main() -> None:
    """Follow the orders."""
    global _orders
    _orders = Orders(**json.loads(sys.stdin.readline()))
    say("opening")
    with recording(_orders.directory, _orders.durability) as tasks:
        say("open")
        threads = [
            threading.Thread(target=work, args=(tasks, number)) for number in range(_orders.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    say("closed")


if __name__ == "__main__":
    main()
