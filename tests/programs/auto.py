# SPDX-License-Identifier: Apache-2.0
"""An instrumented agent that knows nothing of how it is recorded, nor that it is.

It is started by ``opentelemetry-instrument`` with ``OTEL_TRACES_EXPORTER=taskhistory``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from opentelemetry import trace

from otel_taskhistory.recording.tracer import TaskTracer

PICTURE = (Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png").read_bytes()


def main() -> None:
    """One task of our tracer, one trace of a GenAI instrumentation."""
    tasks = TaskTracer()
    with tasks.task("by our tracer", agent="desk-1") as task, task.step("only") as step:
        step.prompt([{"role": "user", "content": "hello"}], model="m")
        step.decision("good day")
        with step.tool_call("look") as call:
            call.result("seen")
        step.screenshot(PICTURE)
    tracer = trace.get_tracer("an.instrumentation")
    with (
        tracer.start_as_current_span(
            "invoke_agent other",
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "other"},
        ),
        tracer.start_as_current_span(
            "chat m",
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.input.messages": '[{"role":"user","parts":[]}]',
            },
        ),
    ):
        pass
    if "otel_taskhistory.exporter" not in sys.modules:
        sys.exit("nobody loaded the exporter")


if __name__ == "__main__":
    main()
