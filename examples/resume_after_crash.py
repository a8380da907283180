# SPDX-License-Identifier: Apache-2.0
"""An agent that kills itself in the middle of a task, and goes on with it in another process.

``python examples/resume_after_crash.py`` starts the agent, which is killed by SIGKILL (no handler,
no `finally`, no flush) right after it has sent the prompt of its third step; looks at the history;
then starts it again. The key of the task makes the second process go on with the same trace. It
prints:

.. code-block:: text

    == first process
      done: north
      done: east
      killed while the model thinks about: south
    == what the history says
    interrupted, attempt 1: Sum up all reports -> None
      1. attempt 1: north succeeded
      2. attempt 1: east succeeded
      3. attempt 1: south interrupted
         its prompt: Sum up the report of the south.
    == second process
      goes on after: north, east
      done: south
      done: west
    == what the history says
    succeeded, attempt 2: Sum up all reports -> all is well
      1. attempt 1: north succeeded
      2. attempt 1: east succeeded
      3. attempt 1: south interrupted
         its prompt: Sum up the report of the south.
      4. attempt 2: south succeeded
      5. attempt 2: west succeeded
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import otel_taskhistory
from otel_taskhistory import TaskHistory

REPORTS = ("north", "east", "south", "west")
FATAL = "south"
"""In this step the first process dies."""


def work(directory: str, attempt: str) -> None:
    """The agent: one step for each report, the ones that are done already left out."""
    tasks = otel_taskhistory.configure(directory)
    with tasks.task("Sum up all reports", agent="clerk", key="reports-of-today") as task:
        done = finished(directory, task.id)
        if done:
            print(f"  goes on after: {', '.join(done)}")
        for report in REPORTS:
            if report in done:
                continue
            with task.step(report) as step:
                messages = [{"role": "user", "content": f"Sum up the report of the {report}."}]
                step.prompt(messages, model="offline-1")
                if report == FATAL and attempt == "first":
                    print(f"  killed while the model thinks about: {report}", flush=True)
                    die()
                step.decision(f"All is well in the {report}.")
                step.result(f"{report}: fine")
                print(f"  done: {report}", flush=True)
        task.result("all is well")


def finished(directory: str, task_id: str) -> list[str]:
    """The steps that an earlier attempt has finished; each was on disk before the next began."""
    with TaskHistory(directory) as history:
        return [s.name for s in history.steps(task_id) if s.status == "succeeded" and s.name]


def die() -> None:
    """End at once, as by the kernel when memory runs out."""
    if hasattr(signal, "SIGKILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


def show(directory: Path) -> None:
    """What the history says, read from a third process."""
    with TaskHistory(directory) as history:
        task = history.task("latest")
        print(f"{task.status}, attempt {task.attempt}: {task.goal} -> {task.result}")
        for step in history.steps(task.task_id):
            print(f"  {step.step_index}. attempt {step.attempt}: {step.name} {step.status}")
            if step.status == "interrupted":
                (message,) = json.loads(step.prompt or "[]")
                print(f"     its prompt: {message['parts'][0]['content']}")


def main(arguments: Sequence[str]) -> None:
    """Let two processes do it, one after the other."""
    if arguments:
        work(*arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        for attempt in ("first", "second"):
            print(f"== {attempt} process", flush=True)
            subprocess.run([sys.executable, __file__, folder, attempt], check=False)
            print("== what the history says")
            show(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
