# SPDX-License-Identifier: Apache-2.0
"""A Host Agent in a process of its own, which does what it is told on stdin, one word a line.

It begins a task, a step with a prompt, and a tool call, and says so on stdout; each word is
answered by one line of JSON. Its arguments are the history's directory, and how tasks begin:
``task``, or ``resume ID`` to go on with one, or ``none`` for no task.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer


def main(directory: str, how: str, *which: str) -> None:
    """Do what stdin says; see above."""
    provider = TracerProvider()
    exporter = TaskHistoryExporter(directory)
    # Nothing is written but what it is told to do: a snapshot would be a sign of life.
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    tasks = TaskTracer(provider, exporter=exporter)
    said: dict[str, Any] = {"pid": os.getpid()}
    open_ = ExitStack()
    task = step = None
    if how != "none":
        task = open_.enter_context(tasks.task("book a table", resume=which[0] if which else None))
        step = open_.enter_context(task.step("open site"))
        step.prompt("where?", model="gpt-x")
        open_.enter_context(step.tool_call("click", {"at": "#go"}, call_id="c1"))
        said |= {"task_id": task.id, "step_id": step.id}
    answer(said)
    for line in sys.stdin:
        said = {}
        match line.strip():
            case "checkpoint":
                assert step is not None
                step.decision("there")
            case "end":
                open_.close()
            case "fork":
                child = os.fork()
                if not child:
                    # All it inherited stays open until it is killed.
                    time.sleep(600)
                    os._exit(0)
                said["child"] = child
            case "close-lock":
                # What a careless program does; the kernel drops the locks of the process.
                with open(os.path.join(directory, "history.db.writers.lock"), "rb"):
                    pass
            case "close-all":
                # What a program does that becomes a daemon.
                lock = os.stat(os.path.join(directory, "history.db.writers.lock"))
                for handle in map(int, os.listdir("/proc/self/fd")):
                    try:
                        found = os.fstat(handle)
                    except OSError:
                        continue
                    if (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino):
                        os.close(handle)
                        said["closed"] = handle
            case "leave":
                answer({})
                return
        answer(said)


def answer(said: dict[str, Any]) -> None:
    """Say that something is done."""
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
