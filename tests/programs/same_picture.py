# SPDX-License-Identifier: Apache-2.0
"""A Host Agent whose tasks all show the same picture, and of which one task is kept.

Arguments: the directory of the history, and how many tasks to carry out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from otel_taskhistory import Retention, configure

PICTURE = (Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png").read_bytes()


def main() -> None:
    """Each picture is looked for as soon as its step has ended."""
    directory = Path(sys.argv[1])
    tasks = configure(directory, retention=Retention(max_tasks=1), durability="normal")
    for number in range(int(sys.argv[2])):
        with tasks.task(f"goal {number}") as task, task.step("look") as step:
            step.screenshot(PICTURE)
            step.prompt([{"role": "user", "content": f"what is this? {number} " * 20}])
    print("done", flush=True)


if __name__ == "__main__":
    main()
