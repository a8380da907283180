# SPDX-License-Identifier: Apache-2.0
"""One of several agents that record into one history: ``many_agent DIRECTORY NUMBER STEPS``."""

from __future__ import annotations

import sys

from tests.crash.agent import carry_out, recording
from tests.crash.scripted import STEPS, Place


def main() -> None:
    """Record the steps, in tasks of a few each."""
    directory, number, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with recording(directory) as tasks:
        for first in range(0, steps, STEPS):
            of_task = [
                Place(0, number, first // STEPS, step) for step in range(min(STEPS, steps - first))
            ]
            with tasks.task(of_task[0].goal, agent=f"agent-{number}") as task:
                for place in of_task:
                    carry_out(task, place)


if __name__ == "__main__":
    main()
