# SPDX-License-Identifier: Apache-2.0
"""A Host Agent that records tasks, whatever the disk does, and then says how it went.

Arguments: the directory, how many tasks, how many characters each prompt has, and how long it
flushes in the end (ms). Then it prints what `stats` and `force_flush` say as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer

PICTURE = (Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png").read_bytes()


def main() -> None:
    """See above."""
    directory = sys.argv[1]
    tasks, chars, patience = map(int, sys.argv[2:])
    exporter = TaskHistoryExporter(directory, busy_timeout=0.2)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    tracer = TaskTracer(provider, exporter=exporter)
    for number in range(tasks):
        with tracer.task(f"task {number}") as task, task.step("only") as step:
            step.prompt(f"{number} " + "x" * chars)
            step.screenshot(PICTURE + b"%d" % number)
            step.decision(f"decision {number}")
    flushed = exporter.force_flush(patience)
    said = {"flushed": flushed, **exporter.stats()}
    provider.shutdown()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
