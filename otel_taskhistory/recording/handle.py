# SPDX-License-Identifier: Apache-2.0
"""What task, step and tool call have in common: how they begin, are told things, and end.

A handle is used with ``with``, ``async with`` or ``.end()``, from any thread or asyncio task. Its
span has an explicit parent, so nothing depends on where it is used; ``with`` also makes the span
current, so that the spans of other instrumentations nest below it. No method raises.

Locking: a handle's lock guards its own state and is held for writing to its span, never while a
sink is called, a span starts or ends, or a line is logged. It can be taken again by a signal
handler in the same thread; a change to the span that such a handler asks for is done right after
the one it interrupted, since the SDK's own locks cannot be taken twice.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from otel_taskhistory import semconv
from otel_taskhistory.recording import context, messages
from otel_taskhistory.recording.misuse import Told, failed, guarded, nothing, tell
from otel_taskhistory.recording.outcome import (
    CANCELLED,
    FAILED,
    SUCCEEDED,
    Outcome,
    exception_attributes,
    failure,
    outcome_of,
    text_of,
)
from otel_taskhistory.recording.plain import is_read_once
from otel_taskhistory.recording.sink import Deferred, Sink, live_sink


@dataclass(frozen=True, slots=True)
class Recorder:
    """What all handles of one tracer have in common."""

    tracer: trace.Tracer
    exporter: Sink | None
    told: Told = field(default_factory=Told)
    """What was told about wrong uses that belong to no task."""

    def sink(self) -> Sink | None:
        """Where pictures and checkpoints go now, or None."""
        return self.exporter if self.exporter is not None else live_sink()


class Handle:
    """What task, step and tool call have in common."""

    _KIND: ClassVar[str]
    _RESULT: ClassVar[str]
    """Attribute of the result."""

    def __init__(
        self,
        recorder: Recorder,
        span: Span,
        told: Told,
        *,
        parent: Handle | None = None,
        identity: Mapping[str, Any] | None = None,
        reduced: Iterable[str] = (),
    ) -> None:
        self._recorder = recorder
        self._span = span
        self._span_context = span.get_span_context()
        self._recording = span.is_recording()
        self._told = told
        self._parent = parent
        self._identity: Mapping[str, Any] = identity or {}
        self._reduced = set(reduced)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._ended = False
        self._ended_before = False
        """It stands for a task that is not this process's to go on with."""
        self._entered = 0
        self._children: set[Handle] = set()
        """Those begun and not ended; held, so that they can be ended when nobody else does."""
        self._explicit: Outcome | None = None
        self._has_result = False
        self._seen: BaseException | None = None
        """The exception that was recorded last: it may also leave the handle."""
        self._changes: deque[Callable[[Span], object]] = deque()
        self._changing = False

    def __repr__(self) -> str:
        state = "ended" if self.ended else "running"
        return f"<{type(self).__name__} {self.id} {state}>"

    # --- what it is ---------------------------------------------------------------------------

    @property
    def span(self) -> Span:
        """Its span; after the end one that takes no more, with the same span context."""
        return self._span

    @property
    def span_context(self) -> trace.SpanContext:
        """The identity of its span."""
        return self._span_context

    @property
    def trace_id(self) -> str:
        """The trace id, 32 hex digits."""
        return trace.format_trace_id(self._span_context.trace_id)

    @property
    def id(self) -> str:
        """The span id, 16 hex digits (of a task: its trace id, 32)."""
        return trace.format_span_id(self._span_context.span_id)

    @property
    def ended(self) -> bool:
        """Whether it has ended, by us or because somebody ended its span."""
        return self._ended or (self._recording and not self._span.is_recording())

    @property
    def entered(self) -> bool:
        """Whether somebody is inside its ``with`` block."""
        return self._entered > 0

    @property
    def enclosing(self) -> Handle | None:
        """The step of a tool call, the task of a step, None for a task."""
        return self._parent

    @property
    def is_here(self) -> bool:
        """Whether this process began it; a forked child must leave it alone."""
        return self._pid == os.getpid()

    # --- what the agent says ------------------------------------------------------------------

    @guarded(nothing)
    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute of the span, as `opentelemetry.trace.Span.set_attribute` does."""
        if self._takes("set_attribute"):
            self._apply(lambda span: span.set_attribute(key, value))

    @guarded(nothing)
    def result(self, value: Any) -> None:
        """Say what came out: a str is kept as it is, anything else as JSON."""
        if not self._takes("result"):
            return
        text, reduced = messages.dump_value(value)
        if self._can_be_kept(result=value) and reduced:
            self._tell("not_json", "a result has no exact text or JSON form; it is kept reduced")
        self._has_result = True
        self._put({self._RESULT: text}, {self._RESULT} if reduced else ())

    @guarded(nothing)
    def fail(self, error: BaseException | str | None = None) -> None:
        """Say that it failed; it still has to end. Beats whatever happens until then."""
        if not self._takes("fail"):
            return
        self._explicit = failure(error)
        if isinstance(error, BaseException):
            self._record_exception(error)

    @guarded(nothing)
    def cancel(self, reason: str | None = None) -> None:
        """Say that it was cancelled; it still has to end. Beats whatever happens until then."""
        if self._takes("cancel"):
            self._explicit = Outcome(CANCELLED, None if reason is None else text_of(reason))

    @guarded(nothing)
    def end(self) -> None:
        """End it, and first whatever is still open below it. A second end does nothing."""
        if not self.is_here:
            self._tell_foreign("end")
        elif not self._finish():
            self._tell("second_end", "%s.end() was called after its end; ignored", self._KIND)

    # --- with and async with ------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace_back: TracebackType | None,
    ) -> None:
        self._leave(error)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace_back: TracebackType | None,
    ) -> None:
        deferred = self._leave_deferring(error)
        if deferred is None:
            return
        try:
            await deferred.wait()
        except Exception as trouble:
            failed(f"{self._KIND}.__aexit__", trouble)

    @guarded(nothing)
    def _enter(self) -> None:
        if self.is_here and self.ended and not self._ended_before:
            self._tell("after_end", "%s was entered after its end; ignored", self._KIND)
        if self.is_here:
            with self._lock:
                self._entered += 1
        else:
            # Its lock may have been held by a thread that is no more.
            self._entered += 1
        context.enter(self, self._span)

    @guarded(nothing)
    def _leave(self, error: BaseException | None) -> None:
        if not self.is_here:
            self._entered -= 1
            context.leave(self)
            return
        with self._lock:
            self._entered -= 1
            is_last = self._entered <= 0
        try:
            context.leave(self)
        finally:
            # The task of a key may be entered in several places; it ends with the last of them.
            if is_last:
                self._finish(error)
            elif error is not None and self._recording and not self.ended:
                self._record_exception(error)

    def _leave_deferring(self, error: BaseException | None) -> Deferred | None:
        """Leave without waiting for the commit, where that can be awaited afterwards."""
        sink = self._recorder.sink() if self._may_await(error) else None
        if sink is None:
            self._leave(error)
            return None
        try:
            deferring = sink.deferring()
            deferred = deferring.__enter__()
        except Exception as trouble:
            failed("sink.deferring", trouble)
            self._leave(error)
            return None
        try:
            self._leave(error)
        finally:
            try:
                deferring.__exit__(None, None, None)
            except Exception as trouble:
                failed("sink.deferring", trouble)
        return deferred

    def _may_await(self, error: BaseException | None) -> bool:
        # A coroutine that is being closed must not wait any more, and only asyncio can be
        # waited on: under another event loop the end itself waits.
        if isinstance(error, GeneratorExit) or not self._recording or not self.is_here:
            return False
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    # --- inside -------------------------------------------------------------------------------

    def _is_open(self, use: str) -> bool:
        """Whether it can still be used; if not, that is told."""
        if not self.is_here:
            self._tell_foreign(use)
        elif self.ended:
            self._tell("after_end", "%s.%s was used after its end; ignored", self._KIND, use)
        else:
            return True
        return False

    def _takes(self, use: str) -> bool:
        """Whether what is said now is recorded."""
        return self._recording and self._is_open(use)

    def _can_be_kept(self, **values: Any) -> bool:
        """Tell of values that could not be recorded without taking them from the agent."""
        kept = True
        for name, value in values.items():
            if is_read_once(value):
                kept = False
                self._tell(
                    "read_once",
                    "the %s is a %s, which can be read only once: it was left to the agent and not"
                    " recorded; pass a list, or what it has given when it is through",
                    name,
                    type(value).__name__,
                )
        return kept

    def _tell_foreign(self, use: str) -> None:
        self._tell(
            "other_process",
            "%s.%s was used in a forked process, but the process that began it records it; ignored",
            self._KIND,
            use,
        )

    def _tell(self, kind: str, message: str, *args: object) -> None:
        if self._recording or self._ended_before:
            tell(kind, self._told, message, *args)

    def _apply(self, change: Callable[[Span], object]) -> None:
        """Change the span, now or, for a signal handler, right after the change in progress."""
        with self._lock:
            self._changes.append(change)
            if self._changing:
                return
            self._changing = True
            trouble: Exception | None = None
            try:
                while self._changes:
                    try:
                        self._changes.popleft()(self._span)
                    except Exception as error:
                        # One change that fails costs no other; raised below, outside of the loop.
                        trouble = trouble or error
            finally:
                self._changing = False
        if trouble is not None:
            raise trouble

    def _put(self, attributes: Mapping[str, Any], reduced: Iterable[str] = ()) -> None:
        """Set attributes; `reduced` are those of them that do not hold their value as it was."""
        with self._lock:
            before = frozenset(self._reduced)
            self._reduced.difference_update(attributes)
            self._reduced.update(reduced)
            changed = dict(attributes)
            if self._reduced != before:
                changed[semconv.TASKHISTORY_REDUCED] = tuple(sorted(self._reduced))
            self._apply(lambda span: span.set_attributes(changed))

    def _record_exception(self, error: BaseException) -> None:
        """Add the `exception` event, unless it was added for this very exception."""
        with self._lock:
            if self._seen is error:
                return
            self._seen = error
        attributes = exception_attributes(error)
        self._apply(lambda span: span.add_event(semconv.EXCEPTION_EVENT, attributes))

    def _checkpoint(self, event: str, detail: dict[str, Any]) -> None:
        """Have the open span recorded as it is now."""
        span, sink = self._span, self._recorder.sink()
        if sink is not None and span.is_recording():
            try:
                sink.checkpoint(span, event, detail)
            except Exception as error:
                failed("sink.checkpoint", error)

    def _start(
        self,
        name: str,
        attributes: dict[str, Any],
        *,
        start_time: int | None = None,
    ) -> Span:
        """Start a span below this one, wherever we are."""
        return self._recorder.tracer.start_span(
            name,
            context=trace.set_span_in_context(self._span),
            attributes=attributes,
            start_time=start_time,
        )

    def _adopt(self, child: Handle) -> None:
        """Remember an open child; if we ended in the meantime, so does it."""
        if not child._recording:
            return
        with self._lock:
            too_late = self._ended
            if not too_late:
                self._children.add(child)
        if too_late:
            child._finish(otherwise=self._over())

    def _over(self) -> Outcome:
        return Outcome(CANCELLED, reason=f"{self._KIND.lower()} ended")

    def _finish(
        self, error: BaseException | None = None, *, otherwise: Outcome | None = None
    ) -> bool:
        """End the span; False when it has ended before.

        Args:
            error: the exception that left the handle.
            otherwise: the outcome when nothing else says what it is, not even a result.
        """
        with self._lock:
            if self._ended:
                return False
            self._ended = True
            children = list(self._children)
            self._children.clear()
        if children:
            self._tell(
                "left_open",
                "a %s ended before what was begun in it; that was ended with it",
                self._KIND,
            )
        span = self._span
        try:
            for child in children:
                child._finish_with(self)
            if self._recording and span.is_recording():
                self._conclude(span, error, otherwise)
        except Exception as trouble:
            failed(f"{self._KIND}.end", trouble)
        finally:
            # Whatever comes in between, Ctrl-C included, the span ends.
            self._let_go()
            if span.is_recording():
                span.end()
        return True

    @guarded(nothing)
    def _finish_with(self, parent: Handle) -> None:
        self._finish(otherwise=parent._over())

    def _conclude(self, span: Span, error: BaseException | None, otherwise: Outcome | None) -> None:
        """Write how it ended onto the span."""
        left = None if error is None else outcome_of(error)
        if error is not None and left is not None and left.status == FAILED:
            self._record_exception(error)
        outcome = self._explicit or left
        if outcome is None and _says_error(span):
            outcome = Outcome(FAILED)
        elif outcome is None:
            outcome = otherwise if otherwise and not self._has_result else Outcome(SUCCEEDED)
        attributes = {semconv.TASKHISTORY_STATUS: outcome.status}
        if outcome.reason is not None:
            attributes[semconv.TASKHISTORY_STATUS_REASON] = outcome.reason
        if outcome.error_type is not None:
            attributes[semconv.ERROR_TYPE] = outcome.error_type
        self._apply(lambda span: span.set_attributes(attributes))
        if outcome.status == FAILED and (outcome.error is not None or not _says_error(span)):
            status = Status(StatusCode.ERROR, outcome.error)
            self._apply(lambda span: span.set_status(status))
        self._bring_back_essentials(span)

    def _essentials(self) -> dict[str, Any]:
        """What the span must still have at its end."""
        return dict(self._identity)

    def _bring_back_essentials(self, span: Span) -> None:
        """Set them anew if any is gone: at its limit the SDK drops the oldest attributes."""
        present = getattr(span, "attributes", None)
        essentials = self._essentials()
        if isinstance(present, Mapping) and not essentials.keys() <= present.keys():
            self._apply(lambda span: span.set_attributes(essentials))

    def _let_go(self) -> None:
        """Keep nothing of what was recorded: handles may live on for long."""
        self._span = trace.NonRecordingSpan(self._span_context)
        self._seen = None
        self._explicit = None
        self._identity = {}
        self._changes.clear()
        parent = self._parent
        if parent is not None and self._recording:
            with parent._lock:
                parent._children.discard(self)


def _says_error(span: Span) -> bool:
    """Whether somebody set the span's status to ERROR; the API cannot tell, the SDK's span can."""
    status = getattr(span, "status", None)
    return getattr(status, "status_code", None) is StatusCode.ERROR
