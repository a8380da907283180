# SPDX-License-Identifier: Apache-2.0
"""What changed in the prompt from step to step? With the Python API.

``python prompt_changes.py WORDS``: of the newest task in which these words are found.
"""

from __future__ import annotations

import json
import sys

from texts import line_of, shown

from otel_taskhistory import TaskHistory


def text(message: str) -> str:
    """A message on one line; a prompt that was one text comes as that."""
    try:
        return line_of(json.loads(message))
    except ValueError:
        return shown(message)


def main() -> None:
    """Print for each step what its prompt has new, and what the agent has taken out."""
    with TaskHistory() as history:
        hits = history.search(" ".join(sys.argv[1:]), limit=1)
        if not hits:
            sys.exit("nothing was found")
        task = history.task(hits[0].task_id)
        print(shown(task.goal or ""))
        steps = history.steps(task.task_id, without=("prompt", "decision"))
        changes = history.prompt_changes(task.task_id, [step.step_id for step in steps])
        for step in steps:
            for change in changes[step.step_id]:
                print(f"  step {step.step_index}: {change.total} messages")
                for message in change.removed:
                    print(f"    - {text(message.text)}")
                for message in change.new:
                    print(f"    + {text(message.text)}")


if __name__ == "__main__":
    main()
