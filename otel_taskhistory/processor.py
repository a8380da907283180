# SPDX-License-Identifier: Apache-2.0
"""TaskHistoryProcessor: a step is on disk before the next one begins.

Unlike the SDK's processors it records a span when it starts, and returns from its end only after
the commit.
"""

from __future__ import annotations

import logging

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from otel_taskhistory import semconv
from otel_taskhistory.exporter import TaskHistoryExporter

_logger = logging.getLogger("otel_taskhistory")


class TaskHistoryProcessor(SpanProcessor):
    """The Host Agent's processor.

    Args:
        exporter: where the spans go; it is shut down with the processor.
    """

    def __init__(self, exporter: TaskHistoryExporter) -> None:
        self.exporter = exporter

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Record the start of a task, step or tool call of ours, and of any root."""
        if span.parent is None or _is_ours(span):
            self.exporter.begin(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Record the end; returns after the commit."""
        try:
            self.exporter.finish(span)
        except Exception as error:
            self.exporter._failed("the end of a span could not be recorded", error)

    def shutdown(self) -> None:
        """Commit what waits and close the history."""
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Commit what waits, within about `timeout_millis`."""
        return self.exporter.force_flush(timeout_millis)


def _is_ours(span: ReadableSpan) -> bool:
    attributes = span.attributes
    return attributes is not None and semconv.TASKHISTORY_ROLE in attributes
