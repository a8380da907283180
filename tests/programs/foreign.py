# SPDX-License-Identifier: Apache-2.0
"""An agent of another instrumentation that runs until it is killed; its spans are watched.

Argument: the directory. It begins an agent run, and in it model calls one after the other, each
with a prompt that is set after its start. It says ``ended NUMBER`` when a call's end has returned.
"""

from __future__ import annotations

import json
import sys
import time

from opentelemetry.sdk.trace import TracerProvider
from talk import say

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor


def main() -> None:
    """See above."""
    exporter = TaskHistoryExporter(sys.argv[1])
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=0.005))
    tracer = provider.get_tracer("an.instrumentation")
    with tracer.start_as_current_span("invoke_agent a") as run:
        run.set_attribute("gen_ai.operation.name", "invoke_agent")
        number = 0
        while True:
            number += 1
            with tracer.start_as_current_span(f"chat {number}") as call:
                call.set_attribute("gen_ai.operation.name", "chat")
                words = [{"role": "user", "parts": [{"type": "text", "content": f"{number}"}]}]
                call.set_attribute("gen_ai.input.messages", json.dumps(words))
                time.sleep(0.003 * (number % 5))  # a model call takes its time
            say(f"ended {number}")


if __name__ == "__main__":
    main()
