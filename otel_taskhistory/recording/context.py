# SPDX-License-Identifier: Apache-2.0
"""Which task, step or tool call is the current one, and OpenTelemetry's current span with it.

Each entered handle is an entry in a list that lives in the context, so leaving needs no token: a
handle that is left where it is not current (a generator closed by another asyncio task, a span
ended in another thread) changes nothing there, and nothing can fail to be detached. What stays
behind in the place it was entered is an entry of an ended handle. Such entries are never shown,
and are cleared away by the next `leave` or `settle` in that context.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context


class Current(Protocol):
    """A handle that can be current."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""

    @property
    def entered(self) -> bool:
        """Whether somebody is inside its ``with`` block."""

    @property
    def enclosing(self) -> Current | None:
        """The step of a tool call, the task of a step, None for a task."""

    @property
    def span_context(self) -> trace.SpanContext:
        """The identity of its span."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    handle: Current
    previous: _Entry | None
    before: Context | None
    """OpenTelemetry's context to go back to, or None when it was left alone."""


_entries: ContextVar[_Entry | None] = ContextVar("otel_taskhistory_entries", default=None)

_KEY: Final = otel_context.create_key("otel_taskhistory-entry")
# The same entry also rides in OpenTelemetry's context, which other instrumentations carry into
# threads where our variable is not set.


def enter(handle: Current, span: trace.Span) -> None:
    """Make `handle` and its span current in this context."""
    previous = _top()
    if handle.ended or not span.get_span_context().is_valid:
        # Without an SDK the caller's span context must go on to whomever the agent calls, and
        # nothing is to become a child of a span that has ended.
        _entries.set(_Entry(handle, previous, None))
        return
    before = otel_context.get_current()
    entry = _Entry(handle, previous, before)
    _entries.set(entry)
    otel_context.attach(otel_context.set_value(_KEY, entry, trace.set_span_in_context(span)))


def leave(handle: Current) -> None:
    """Make current again, in this context, what was so before `handle` was entered."""
    entry = _top()
    if entry is not None and entry.handle is handle:
        _entries.set(entry.previous)
        if entry.before is not None:
            otel_context.attach(entry.before)
    settle()


def settle() -> None:
    """Clear away handles that ended elsewhere and would stay current here."""
    while (entry := _top()) is not None and entry.handle.ended and not entry.handle.entered:
        if entry.before is not None:
            if trace.get_current_span().get_span_context() != entry.handle.span_context:
                return  # somebody else's span is current: not ours to replace
            # Only the span and our entry go back: baggage that was set since stays.
            back = trace.set_span_in_context(trace.get_current_span(entry.before))
            carried = otel_context.get_value(_KEY, entry.before)
            otel_context.attach(otel_context.set_value(_KEY, carried, back))
        _entries.set(entry.previous)


def innermost() -> Current | None:
    """The innermost current handle that has not ended.

    Inside the ``with`` block of a task that has ended there is none, even when that task lies
    within another one: what happens there is no part of the outer task.
    """
    entry = _top()
    while entry is not None:
        handle: Current | None = entry.handle
        while handle is not None and handle.ended:
            handle = handle.enclosing
        if handle is not None:
            return handle
        if entry.handle.entered:
            return None
        entry = entry.previous
    return None


def _top() -> _Entry | None:
    entry = _entries.get()
    if entry is not None:
        return entry
    carried = otel_context.get_value(_KEY)
    return carried if isinstance(carried, _Entry) else None
