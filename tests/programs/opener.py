# SPDX-License-Identifier: Apache-2.0
"""One of many processes that open the same new history at the same moment.

Arguments: the directory, and a number for its task.
"""

from __future__ import annotations

import sys

from talk import pause

from otel_taskhistory.configure import configure


def main() -> None:
    """Open, record one task, close."""
    pause("ready")
    tasks = configure(sys.argv[1])
    with tasks.task(f"goal {sys.argv[2]}") as task, task.step("s") as step:
        step.prompt("what?")
    exporter = tasks._recorder.exporter
    print(exporter.stamp.history_id, exporter.stats()["away"], flush=True)


if __name__ == "__main__":
    main()
