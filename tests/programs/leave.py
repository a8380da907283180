# SPDX-License-Identifier: Apache-2.0
"""A Host Agent that leaves in an untidy way.

Arguments: the directory, and how: ``loop`` (an asyncio loop is still open), ``daemons`` (daemon
threads record until the end), ``atexit`` (the first record is made in an exit handler), ``del``
(a span ends when the interpreter takes its globals apart), ``exit`` (``os._exit`` after a step),
``term`` (SIGTERM), ``signals`` (a handler records while its thread is inside an export).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
from types import FrameType

from otel_taskhistory.configure import configure, new_provider
from otel_taskhistory.recording.handles import Task
from otel_taskhistory.recording.tracer import TaskTracer

SIGNALS = 200


def work(tasks: TaskTracer, goal: str) -> None:
    """A task with one step."""
    with tasks.task(goal) as task, task.step(goal) as step:
        step.prompt(f"prompt of {goal}")


def loop(tasks: TaskTracer) -> None:
    """Left with a coroutine in the middle of a step."""
    held: list[object] = []

    async def agent() -> None:
        async with tasks.task("never ends") as task, task.step("never ends"):
            await asyncio.Event().wait()

    async def main() -> None:
        async with tasks.task("ends") as task, task.step("ends"):
            pass
        held.append(asyncio.ensure_future(agent()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    running = asyncio.new_event_loop()
    running.run_until_complete(main())
    globals()["held"] = (running, held)


def daemons(tasks: TaskTracer) -> None:
    """They are stopped wherever they are."""
    first = threading.Semaphore(0)

    def record() -> None:
        while True:
            work(tasks, "daemon")
            first.release()

    for _ in range(4):
        threading.Thread(target=record, daemon=True).start()
    for _ in range(8):
        first.acquire()
    work(tasks, "ends")


def at_exit(tasks: TaskTracer) -> None:
    """Exit handlers run in reverse order: this one before the provider's."""
    atexit.register(work, tasks, "ends")


class Held:
    """Ends its task when it goes away, as late as can be."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __del__(self) -> None:
        self.task.end()


def with_del(_: TaskTracer) -> None:
    """The provider has no exit handler, so the history is still open then."""
    tasks = configure(sys.argv[1], tracer_provider=new_provider(shutdown_on_exit=False))
    work(tasks, "ends")
    globals()["held"] = Held(tasks.task("ends late"))


def hard_exit(tasks: TaskTracer) -> None:
    """Nothing runs after this."""
    work(tasks, "ends")
    os._exit(0)


def term(tasks: TaskTracer) -> None:
    """The default action of SIGTERM."""
    work(tasks, "ends")
    os.kill(os.getpid(), signal.SIGTERM)


def signals(tasks: TaskTracer) -> None:
    """Each handler orders the next one, so that they come at all places and not in one another."""
    handled = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal handled
        handled += 1
        work(tasks, "handler")
        if handled < SIGNALS:
            signal.setitimer(signal.ITIMER_REAL, 0.001 + handled % 7 * 0.0003)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while handled < SIGNALS:
        work(tasks, "main")
    work(tasks, "ends")


if __name__ == "__main__":
    ways = {
        "loop": loop,
        "daemons": daemons,
        "atexit": at_exit,
        "del": with_del,
        "exit": hard_exit,
        "term": term,
        "signals": signals,
    }
    tracer = configure(f"{sys.argv[1]}-unused" if sys.argv[2] == "del" else sys.argv[1])
    ways[sys.argv[2]](tracer)
