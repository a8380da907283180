# SPDX-License-Identifier: Apache-2.0
"""A Host Agent that stops at every place where it may be looked at, or killed.

Arguments: the directory of the history, and how the task ends: ``succeeds`` or ``fails``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from talk import pause

from otel_taskhistory.configure import configure

PICTURE = (Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png").read_bytes()


def main() -> None:
    """Two steps, each with prompt, decision, tool call, screenshot and result."""
    tasks = configure(sys.argv[1])
    messages = [{"role": "system", "content": "be brief"}]
    pause("before the task")
    with tasks.task("find the number of files", agent="desk-1") as task:
        pause(f"task {task.id}")
        for number in (1, 2):
            with task.step(f"look {number}") as step:
                pause(f"step {number} begun")
                messages.append({"role": "user", "content": f"what is in folder {number}?"})
                step.prompt(messages, model="model-1")
                pause(f"step {number} prompt")
                step.decision(
                    f"I list folder {number}", usage={"input_tokens": 10, "output_tokens": 4}
                )
                messages.append({"role": "assistant", "content": f"I list folder {number}"})
                pause(f"step {number} decision")
                with step.tool_call("list_files", {"folder": number}, call_id=f"c{number}") as call:
                    pause(f"step {number} tool begun")
                    call.result([f"a{number}", f"b{number}"])
                pause(f"step {number} tool ended")
                step.screenshot(PICTURE, caption=f"folder {number}")
                pause(f"step {number} screenshot")
                step.result(f"folder {number} has 2 files")
            pause(f"step {number} ended")
        if sys.argv[2] == "fails":
            raise RuntimeError("the third folder is gone")
        task.result("4 files")
    pause("task ended")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError:
        pause("task ended")
