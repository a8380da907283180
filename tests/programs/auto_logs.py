# SPDX-License-Identifier: Apache-2.0
"""An instrumented agent whose model calls say what was sent in log records only.

It is started by ``opentelemetry-instrument`` with ``OTEL_TRACES_EXPORTER=taskhistory`` and
``OTEL_LOGS_EXPORTER=taskhistory``, and knows nothing of either.
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry._logs import LogRecord, get_logger


def main() -> None:
    """One agent run with one model call, whose messages are events of their own."""
    tracer = trace.get_tracer("an.instrumentation")
    logger = get_logger("an.instrumentation")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "other"}
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.system": "s"}
    with tracer.start_as_current_span("invoke_agent other", attributes=agent):
        logger.emit(LogRecord(timestamp=time.time_ns(), body="a line within a span"))
        with tracer.start_as_current_span("chat m", attributes=call):
            for name, body in (
                ("gen_ai.user.message", {"content": "how are you?"}),
                ("gen_ai.choice", {"index": 0, "message": {"content": "well, thank you"}}),
            ):
                logger.emit(LogRecord(timestamp=time.time_ns(), event_name=name, body=body))
    logger.emit(LogRecord(timestamp=time.time_ns(), body="outside of any span"))


if __name__ == "__main__":
    main()
