# SPDX-License-Identifier: Apache-2.0
"""An agent in a process of its own: does a step for each line it reads, then ends its task."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.recorded import PICTURES, chat, recording


def main() -> None:
    """``step``: one more step; ``fail``: one that fails; anything else: the end."""
    with recording(Path(sys.argv[1])) as tasks, tasks.task("Watch me", agent="live") as task:
        print(task.id, flush=True)
        for number, line in enumerate(sys.stdin, start=1):
            word = line.strip()
            if word not in ("step", "fail"):
                break
            with task.step(f"part {number}") as step:
                step.prompt(chat("be brief", f"number {number}"), model="model-1")
                step.decision(f"answer {number}", usage={"input_tokens": 5, "output_tokens": 1})
                step.screenshot((PICTURES / "png_ok.png").read_bytes() + bytes([number]))
                if word == "fail":
                    step.fail(f"broken {number}")
            print("done", flush=True)
        task.result("seen")
    print("ended", flush=True)


main()
