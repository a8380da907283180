# SPDX-License-Identifier: Apache-2.0
"""An agent that dies at each point between two calls: ``kill_points_agent DIRECTORY``.

For each of `POINTS` a child of its own records into ``DIRECTORY/POINT`` and kills itself there.
They are forked before any history is open, which saves importing everything each time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.crash.agent import recording
from tests.crash.scripted import Place, picture

PLACE: Final = Place(0, 0, 0, 5)
"""What the one step is about; it takes two screenshots."""

POINTS: Final = (
    "open",
    "task",
    "step",
    "prompt",
    "decision",
    "tool call",
    "tool result",
    "tool call ended",
    "screenshot",
    "second screenshot",
    "step result",
    "step ended",
    "task ended",
)


def work(directory: Path, reached: Callable[[str], None]) -> None:
    """One task of one step; `reached` is called right after each call has returned."""
    with recording(directory) as tasks:
        reached("open")
        task = tasks.task(PLACE.goal, agent="agent-0")
        reached("task")
        step = task.step(PLACE.name)
        reached("step")
        step.prompt(PLACE.messages(), model="model-1")
        reached("prompt")
        step.decision(PLACE.decision, usage={"input_tokens": 10})
        reached("decision")
        call = step.tool_call("browser.click", PLACE.arguments, call_id="call-1")
        reached("tool call")
        call.result(PLACE.tool_result)
        reached("tool result")
        call.end()
        reached("tool call ended")
        first, second = PLACE.screenshots
        step.screenshot(picture(first))
        reached("screenshot")
        step.screenshot(picture(second), caption="the second")
        reached("second screenshot")
        step.result(PLACE.result)
        reached("step result")
        step.end()
        reached("step ended")
        task.end()
        reached("task ended")


def main() -> None:
    """Die at every point."""
    for point in POINTS:
        child = os.fork()
        if not child:

            def die_at(reached: str, point: str = point) -> None:
                if reached == point:
                    os.kill(os.getpid(), signal.SIGKILL)

            work(Path(sys.argv[1]) / point, die_at)
            os._exit(1)  # it should be dead by now
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"it did not die at {point!r}")


if __name__ == "__main__":
    main()
