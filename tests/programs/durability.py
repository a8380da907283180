# SPDX-License-Identifier: Apache-2.0
"""An agent whose fsyncs are counted: it says on standard error what it is about to do.

Arguments: the directory, the durability. Between the line ``checkpoints`` and the line ``end`` it
begins a step and tells it everything but a screenshot; then it ends the step, ``ROUNDS`` times.
"""

from __future__ import annotations

import os
import sys

from otel_taskhistory.configure import configure

ROUNDS = 5


def mark(text: str) -> None:
    """One write(2) on standard error, for the trace of system calls."""
    os.write(2, f"mark {text}\n".encode())


def main() -> None:
    """See above."""
    tasks = configure(sys.argv[1], durability=sys.argv[2])
    with tasks.task("a goal") as task:
        with task.step("warms up the write-ahead log") as step:
            step.prompt("x" * 1000)
        for _ in range(ROUNDS):
            mark("checkpoints")
            step = task.step()
            step.prompt("what?", model="m")
            step.decision("that")
            with step.tool_call("touch") as call:
                call.result("hard")
            mark("end")
            step.end()
        mark("rest")


if __name__ == "__main__":
    main()
