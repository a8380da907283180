# SPDX-License-Identifier: Apache-2.0
"""A component with default settings: it records one task and reads what is in its history.

Arguments: its ``service.name``, and how it records: ``configure`` or ``exporter``.
"""

from __future__ import annotations

import json
import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from talk import pause

from otel_taskhistory.configure import configure
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer


def main() -> None:
    """Record, then read."""
    service, how = sys.argv[1:]
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    if how == "configure":
        tasks = configure(tracer_provider=provider)
    else:
        exporter = TaskHistoryExporter()
        provider.add_span_processor(TaskHistoryProcessor(exporter))
        tasks = TaskTracer(provider)
    pause("open")
    with tasks.task(f"the work of {service}") as task, task.step("a step") as step:
        step.prompt(f"a question of {service}")
        step.decision("an answer")
    pause("recorded")
    with TaskHistory() as history:
        print(json.dumps([task.goal for task in history.tasks()]), flush=True)
    provider.shutdown()


if __name__ == "__main__":
    main()
