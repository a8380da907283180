# SPDX-License-Identifier: Apache-2.0
"""A Host Agent that forks.

Arguments: the directory, and how it forks: ``busy`` (other threads are in the middle of commits),
``inside`` (within a task, a step and a foreign span that the child leaves too), ``twice`` (the
child forks again), ``multiprocessing`` (a child that leaves by ``os._exit``), ``keyed`` (the child
asks for a task of the parent's) or ``silent`` (a child that records nothing).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable

from opentelemetry import trace

from otel_taskhistory.configure import configure
from otel_taskhistory.recording.tracer import TaskTracer


def work(tasks: TaskTracer, goal: str, steps: int = 3) -> None:
    """A task whose steps say who they are of."""
    with tasks.task(goal) as task:
        for number in range(steps):
            with task.step(f"{goal} {number}") as step:
                step.prompt(f"prompt of {goal}")
                step.decision(f"decision of {goal}")


def in_child(what: Callable[[], None]) -> int:
    """Fork, and run `what` in the child, which then leaves as a forked child should."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        what()
        status = 0
    finally:
        os._exit(status)


def wait_for(pid: int) -> None:
    """The child must end well."""
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"child: {status}")


def busy(tasks: TaskTracer) -> None:
    """Fork ten times while four threads record."""
    stop = threading.Event()

    def record(number: int) -> None:
        turn = 0
        while not stop.is_set():
            work(tasks, f"thread {number} {turn}")
            turn += 1

    threads = [threading.Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(10):
        wait_for(in_child(lambda number=number: work(tasks, f"child {number}")))
    stop.set()
    for thread in threads:
        thread.join()
    work(tasks, "parent")


def inside(tasks: TaskTracer) -> None:
    """The child leaves blocks that the parent is still in."""
    tracer = trace.get_tracer("an.instrumentation")
    child = False
    with tasks.task("parent") as task:
        with tracer.start_as_current_span("foreign"), task.step("of the parent") as step:
            step.prompt("asked by the parent")
            pid = os.fork()
            if not pid:
                child = True
                step.decision("said by the child")
                work(tasks, "child")
            else:
                wait_for(pid)
                step.decision("said by the parent")
        if not child:
            task.result("by the parent")
    if child:
        os._exit(0)


def twice(tasks: TaskTracer) -> None:
    """A child of a child records as well, and each may end normally."""
    work(tasks, "parent")
    pid = os.fork()
    if pid:
        wait_for(pid)
        work(tasks, "parent again")
        return
    grandchild = os.fork()
    if grandchild:
        wait_for(grandchild)
        work(tasks, "child")
    else:
        work(tasks, "grandchild")
    sys.exit(0)


def with_multiprocessing(tasks: TaskTracer) -> None:
    """Its children leave by ``os._exit``, without any exit handler."""
    work(tasks, "parent")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(tasks, f"child {n}")) for n in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        if child.exitcode:
            sys.exit(f"child: {child.exitcode}")


def keyed(tasks: TaskTracer) -> None:
    """The parent's task is begun already, and not the child's to go on with."""
    tasks.task("parent", key="k").end()

    def child() -> None:
        if not tasks.task("again", key="k").ended:
            os._exit(3)
        work(tasks, "child")

    wait_for(in_child(child))


def silent(tasks: TaskTracer) -> None:
    """A child that never records opens nothing."""
    work(tasks, "parent")

    def child() -> None:
        if threading.active_count() > 1:
            os._exit(4)

    wait_for(in_child(child))


if __name__ == "__main__":
    tracer = configure(sys.argv[1], durability="normal")
    {
        "busy": busy,
        "inside": inside,
        "twice": twice,
        "multiprocessing": with_multiprocessing,
        "keyed": keyed,
        "silent": silent,
    }[sys.argv[2]](tracer)
