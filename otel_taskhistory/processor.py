# SPDX-License-Identifier: Apache-2.0
"""TaskHistoryProcessor: a step is on disk before the next one begins.

Unlike the SDK's processors it records a span when it starts, looks at spans that stay open, sees
whether a span ends by a cancellation, and returns from a span's end only after the commit.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode

from otel_taskhistory import semconv
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.redaction.neighbours import beside, warn_of_content
from otel_taskhistory.snapshots import INTERVAL_SECONDS, Snapshots
from otel_taskhistory.spans.given_up import GIVEN_UP

_logger = logging.getLogger("otel_taskhistory")


class TaskHistoryProcessor(SpanProcessor):
    """The Host Agent's processor.

    Args:
        exporter: where the spans go; it is shut down with the processor.
        snapshot_interval: seconds between two looks at the spans that are open, from a thread of
            its own; those that have changed are recorded as they are. None: no looks.
    """

    def __init__(
        self,
        exporter: TaskHistoryExporter,
        *,
        snapshot_interval: float | None = INTERVAL_SECONDS,
    ) -> None:
        self.exporter = exporter
        self._snapshots = (
            Snapshots(lambda: dict(self._open), exporter.snapshot, snapshot_interval)
            if snapshot_interval is not None
            else None
        )
        self._open: weakref.WeakValueDictionary[tuple[int, int], Span]
        self._open = weakref.WeakValueDictionary()
        self._begun_in: dict[tuple[int, int], int] = {}
        """Spans that began in a handler of a cancellation: identity of that exception."""
        self._neighbours = 0
        self._inherited: frozenset[tuple[int, int]] = frozenset()
        _processors.add(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Record the start of a task, step or tool call of ours, and of any root."""
        self._open[_identity(span)] = span
        handled = _cancellation()
        if handled is not None:
            self._begun_in[_identity(span)] = id(handled)
        if self._snapshots is not None:
            self._snapshots.begin()
        if span.parent is None or _is_ours(span):
            self._look_around(span)
            self.exporter.begin(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Record the end; returns after the commit."""
        identity = _identity(span)
        self._open.pop(identity, None)
        begun_in = self._begun_in.pop(identity, None)
        if identity in self._inherited:
            # A forked child left a block that its parent is still in.
            _logger.debug("otel-taskhistory: the end of a span of the parent process is ignored")
            return
        # It goes through the block of the span right now, unless the block is in a handler of it.
        passing = _cancellation()
        self.exporter.finish(span, by=None if id(passing) == begun_in else passing)

    def shutdown(self) -> None:
        """Commit what waits and close the history.

        Instrumentations may forget to end the span of what raised. One that says that it failed,
        and that nobody will end any more, ends here; others that are open are interrupted.
        """
        if self._snapshots is not None:
            self._snapshots.stop()
        for span in list(self._open.values()):
            if span.status.status_code is StatusCode.ERROR:
                _end(span)
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Commit what waits, within about `timeout_millis`."""
        return self.exporter.force_flush(timeout_millis)

    def _look_around(self, span: Span) -> None:
        """Tell of exporters that get everything beside ours, also of those that come later."""
        processors = beside(span)
        if len(processors) == self._neighbours:
            return
        self._neighbours = len(processors)
        try:
            warn_of_content(processors)
        except Exception:
            # An exporter that cannot even be looked at; recording goes on.
            _logger.exception("otel-taskhistory: the other exporters could not be looked at")

    def _before_fork(self) -> None:
        if self._snapshots is not None:
            self._snapshots.pause()

    def _after_fork_in_parent(self) -> None:
        if self._snapshots is not None:
            self._snapshots.resume()

    def _after_fork(self) -> None:
        """In a forked child: the spans that are open are the parent's to end."""
        self._inherited |= frozenset(self._open.keys())
        self._open = weakref.WeakValueDictionary()
        self._begun_in = {}
        if self._snapshots is not None:
            self._snapshots.forget()


def _identity(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context else (0, 0)


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception:
        # Another processor's: ours does not raise, and is still to be shut down.
        _logger.exception("otel-taskhistory: a span that was left open could not be ended")


def _cancellation() -> BaseException | None:
    """The cancellation or Ctrl-C that is being dealt with in this thread right now."""
    error = sys.exception()
    return error if isinstance(error, GIVEN_UP) else None


def _is_ours(span: ReadableSpan) -> bool:
    attributes = span.attributes
    return attributes is not None and semconv.TASKHISTORY_ROLE in attributes


_processors: weakref.WeakSet[TaskHistoryProcessor] = weakref.WeakSet()


def _before_fork() -> None:
    for processor in list(_processors):
        processor._before_fork()


def _after_fork_in_parent() -> None:
    for processor in list(_processors):
        processor._after_fork_in_parent()


def _after_fork_in_child() -> None:
    for processor in list(_processors):
        processor._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
