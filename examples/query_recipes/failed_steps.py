# SPDX-License-Identifier: Apache-2.0
"""Which steps failed, and what was the model sent just before? With the Python API."""

from __future__ import annotations

from texts import lines_of, shown

from otel_taskhistory import TaskHistory


def main() -> None:
    """Print each failed step of the newest failed tasks, with its whole prompt."""
    with TaskHistory() as history:
        for task in history.tasks(status="failed", limit=20):
            for step in history.steps(task.task_id):
                if step.status == "failed":
                    print(shown(f"{task.goal}, step {step.step_index}: {step.error}"))
                    for line in lines_of(step.prompt):
                        print(f"    {line}")


if __name__ == "__main__":
    main()
