# SPDX-License-Identifier: Apache-2.0
"""A Host Agent that forks while a span of another instrumentation is open and watched.

Argument: the directory. It says how many threads there were at the moment of each fork, and pauses
after it: its span has another value then, which only the watch can have recorded.
"""

from __future__ import annotations

import os
import sys
import threading

threads: list[int] = []
# Registered before the package does: of the hooks before a fork the first one comes last.
os.register_at_fork(before=lambda: threads.append(threading.active_count()))

from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from talk import pause, say  # noqa: E402

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor  # noqa: E402


def main() -> None:
    """Fork three times within one span."""
    exporter = TaskHistoryExporter(sys.argv[1])
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=0.02))
    with provider.get_tracer("an.instrumentation").start_as_current_span("chat") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        for number in range(3):
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            span.set_attribute("gen_ai.input.messages", f'[{{"role": "user", "n": {number}}}]')
            pause(f"forked {number}")
    say(f"threads {threads}")


if __name__ == "__main__":
    main()
