# SPDX-License-Identifier: Apache-2.0
"""TaskTracer: begin the tasks, steps and tool calls of a Host Agent as OpenTelemetry spans.

It speaks the OpenTelemetry API only, so that it works on any provider; on one that does not record
everything is a cheap no-op. No method raises into the agent.
"""

from __future__ import annotations

import importlib.metadata
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TracerProvider,
)

from otel_taskhistory import semconv
from otel_taskhistory.recording import context
from otel_taskhistory.recording.handle import Handle, Recorder
from otel_taskhistory.recording.handles import Step, Task, ToolCall
from otel_taskhistory.recording.messages import dump_value
from otel_taskhistory.recording.misuse import Told, failed, guarded, tell
from otel_taskhistory.recording.outcome import text_of
from otel_taskhistory.recording.sink import Earlier, Sink

_INTERRUPTED: Final = "interrupted"
_RUNNING: Final = "running"


def _no_task(tracer: TaskTracer) -> Task:
    return Task(tracer._recorder, trace.INVALID_SPAN, Told())


def _no_step(tracer: TaskTracer) -> Step:
    return Step(tracer._recorder, trace.INVALID_SPAN, Told())


def _no_tool_call(tracer: TaskTracer) -> ToolCall:
    return ToolCall(tracer._recorder, trace.INVALID_SPAN, Told())


def _no_current_task(_: object) -> Task | None:
    return None


def _no_current_step(_: object) -> Step | None:
    return None


class TaskTracer:
    """Begins tasks.

    Args:
        tracer_provider: whose spans they are; the global one by default, also when that is set
            later.
        exporter: where pictures and checkpoints go; by default the process's live
            `TaskHistoryExporter`, whichever that is at the time.

    Raises:
        TypeError: the provider has no ``get_tracer``.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, exporter: Sink | None = None
    ) -> None:
        if tracer_provider is None:
            tracer = trace.get_tracer(semconv.SCOPE, _version())
        elif hasattr(tracer_provider, "get_tracer"):
            tracer = tracer_provider.get_tracer(semconv.SCOPE, _version())
        else:
            raise TypeError(
                f"tracer_provider must be a TracerProvider, not {type(tracer_provider).__name__}"
            )
        self._recorder = Recorder(tracer, exporter)
        self._of_key: WeakValueDictionary[str, Task] = WeakValueDictionary()
        self._renew_lock()
        _tracers.add(self)

    def _renew_lock(self) -> None:
        # Held from the look-up of a key until its task has begun, so that two threads that ask
        # for the same key get the same task. Tasks without a key never wait for it.
        self._keyed = threading.RLock()

    # --- beginning ----------------------------------------------------------------------------

    @guarded(_no_task)
    def task(
        self,
        goal: str,
        *,
        agent: str | None = None,
        conversation_id: str | None = None,
        key: str | None = None,
        resume: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Iterable[Link] = (),
    ) -> Task:
        """Begin a task: a new trace, with a link to the caller's span.

        Args:
            goal: what the task is to achieve.
            agent: name of the agent that carries it out.
            conversation_id: ties the tasks of one conversation together.
            key: makes the start idempotent. While the task of this key runs here, its handle is
                returned; if its process died, it is resumed; if it has ended, or runs in another
                process, the handle has `ended` and its steps are not recorded.
            resume: id of a task whose process died; this becomes a further attempt in the same
                trace. For any other id a new task begins.
            attributes: further attributes of the task's span.
            links: further links of the task's span.
        """
        told = Told()
        begin = _Beginning(told, goal, agent, conversation_id, attributes, links)
        earlier = None if resume is None else self._resumable(text_of(resume), told)
        if key is None:
            return self._begin(begin, earlier)
        with self._keyed:
            begin.key = text_of(key)
            if earlier is None:
                begun = self._begun(begin.key, told)
                if isinstance(begun, Task):
                    return begun
                earlier = begun
            task = self._begin(begin, earlier)
            self._of_key[begin.key] = task
            return task

    @guarded(_no_step)
    def step(self, name: str | None = None, *, index: int | None = None) -> Step:
        """Begin a step of the current task; see `Task.step`."""
        task = self.current_task()
        if task is None:
            told = self._recorder.told
            tell("outside_task", told, "a step was begun outside of a task; it is not recorded")
            return _no_step(self)
        return task.step(name, index=index)

    @guarded(_no_tool_call)
    def tool_call(
        self, name: str, arguments: Any = None, *, call_id: str | None = None
    ) -> ToolCall:
        """Begin a tool call of the current step; see `Step.tool_call`."""
        step = self.current_step()
        if step is None:
            told = self._recorder.told
            tell("outside_step", told, "a tool was called outside of a step; it is not recorded")
            return _no_tool_call(self)
        return step.tool_call(name, arguments, call_id=call_id)

    # --- what is current ----------------------------------------------------------------------

    @guarded(_no_current_task)
    def current_task(self) -> Task | None:
        """The task in whose ``with`` block this is; never one that has ended."""
        handle = _around()
        while handle is not None and not isinstance(handle, Task):
            handle = handle.enclosing
        return None if handle is None or handle.ended else handle

    @guarded(_no_current_step)
    def current_step(self) -> Step | None:
        """The step in whose ``with`` block this is; never one that has ended."""
        handle = _around()
        while handle is not None and not isinstance(handle, Step):
            handle = handle.enclosing
        return None if handle is None or handle.ended else handle

    # --- inside -------------------------------------------------------------------------------

    def _begin(self, begin: _Beginning, earlier: Earlier | None) -> Task:
        context.settle()
        caller = trace.get_current_span().get_span_context()
        parent = NonRecordingSpan(_first_root(earlier)) if earlier else trace.INVALID_SPAN
        identity = begin.attributes(caller, attempt=earlier.attempts + 1 if earlier else 1)
        agent = identity.get(semconv.GEN_AI_AGENT_NAME)
        span = self._recorder.tracer.start_span(
            # Never the goal: a span's name is for grouping.
            "invoke_agent" if agent is None else f"invoke_agent {agent}",
            # The rest of the current context (baggage) is the task's too.
            context=trace.set_span_in_context(parent),
            attributes={**begin.others, **identity},
            links=begin.links(caller),
        )
        shared = (semconv.GEN_AI_AGENT_NAME, semconv.GEN_AI_CONVERSATION_ID)
        return Task(
            self._recorder,
            span,
            begin.told,
            identity=identity,
            inherited={name: identity[name] for name in shared if name in identity},
            reduced=identity.get(semconv.TASKHISTORY_REDUCED, ()),
            last_index=earlier.last_step_index if earlier else 0,
        )

    def _begun(self, key: str, told: Told) -> Task | Earlier | None:
        """The task of `key`, or what is known of it when it is to be resumed, or None."""
        here = self._of_key.get(key)
        if here is not None and here.is_here and not here.ended:
            return here
        earlier = self._ask(key=key)
        if earlier is None or earlier.status == _INTERRUPTED:
            return earlier
        if earlier.status == _RUNNING:
            message = "the task of this key runs elsewhere (task %s); nothing is recorded here"
            tell("key_elsewhere", told, message, earlier.trace_id)
        return Task.ended_before(self._recorder, told, _first_root(earlier))

    def _resumable(self, task_id: str, told: Told) -> Earlier | None:
        earlier = self._ask(task_id=task_id)
        if earlier is not None and earlier.status == _INTERRUPTED:
            return earlier
        if earlier is None:
            why = "it is not in the history"
        elif earlier.status == _RUNNING:
            why = "its process is still running"
        else:
            why = f"it has ended ({earlier.status})"
        message = "task %s cannot be resumed: %s; a new task begins"
        tell("resume_refused", told, message, task_id, why)
        return None

    def _ask(self, *, task_id: str | None = None, key: str | None = None) -> Earlier | None:
        """Look a task up in the history; None when it is not there, or not to be used."""
        sink = self._recorder.sink()
        if sink is None:
            return None
        try:
            earlier = sink.earlier(task_id=task_id, key=key)
            if earlier is not None and not _first_root(earlier).is_valid:
                raise ValueError("no span has these ids")
        except Exception as error:
            failed("sink.earlier", error)
            return None
        return earlier


class _Beginning:
    """What the agent said of a task that is to begin, made fit for a span."""

    __slots__ = ("_links", "_said", "key", "others", "told")

    def __init__(
        self,
        told: Told,
        goal: Any,
        agent: Any,
        conversation_id: Any,
        attributes: Any,
        links: Any,
    ) -> None:
        self.told = told
        self.key: str | None = None
        text, reduced = dump_value(goal)
        self._said: dict[str, Any] = {
            semconv.TASKHISTORY_ROLE: "task",
            semconv.TASKHISTORY_TASK_GOAL: text,
            semconv.GEN_AI_OPERATION_NAME: "invoke_agent",
        }
        if reduced:
            self._said[semconv.TASKHISTORY_REDUCED] = (semconv.TASKHISTORY_TASK_GOAL,)
        if agent is not None:
            self._said[semconv.GEN_AI_AGENT_NAME] = text_of(agent)
        if conversation_id is not None:
            self._said[semconv.GEN_AI_CONVERSATION_ID] = text_of(conversation_id)
        self.others: dict[str, Any] = self._checked_attributes(attributes)
        self._links = self._checked_links(links)

    def attributes(self, caller: SpanContext, attempt: int) -> dict[str, Any]:
        """The attributes that are ours."""
        attributes = {**self._said, semconv.TASKHISTORY_TASK_ATTEMPT: attempt}
        if self.key is not None:
            attributes[semconv.TASKHISTORY_TASK_KEY] = self.key
        around = context.innermost()
        if around is not None and caller.is_valid:
            outer = around.span_context.trace_id
            if outer == caller.trace_id:
                attributes[semconv.TASKHISTORY_TASK_PARENT_ID] = trace.format_trace_id(outer)
        return attributes

    def links(self, caller: SpanContext) -> list[Link]:
        """The link to the caller's span, if there is one, and the agent's own."""
        return [Link(caller), *self._links] if caller.is_valid else self._links

    def _checked_attributes(self, attributes: Any) -> dict[str, Any]:
        if attributes is None:
            return {}
        try:
            return dict(attributes)
        except (TypeError, ValueError):
            tell("bad_attributes", self.told, "the attributes of a task are no mapping; ignored")
            return {}

    def _checked_links(self, links: Any) -> list[Link]:
        if links is None:
            return []
        try:
            given = list(links)
        except TypeError:
            given = [links]
        found = [link for link in given if isinstance(link, Link)]
        if len(found) < len(given):
            tell("bad_link", self.told, "a link of a task is no opentelemetry Link; ignored")
        return found


_tracers: Final[WeakSet[TaskTracer]] = WeakSet()


def _renew_locks() -> None:
    # In a forked child: whoever held a lock there is no more.
    for tracer in list(_tracers):
        tracer._renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _around() -> Handle | None:
    """The innermost current handle, unless it belongs to the process that forked this one."""
    handle = context.innermost()
    return handle if isinstance(handle, Handle) and handle.is_here else None


def _first_root(earlier: Earlier) -> SpanContext:
    """The first root of an earlier task, as the remote parent of a further attempt.

    Raises:
        ValueError: the ids are no hexadecimal numbers.
    """
    return SpanContext(
        trace_id=int(earlier.trace_id, 16),
        span_id=int(earlier.root_span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _version() -> str | None:
    try:
        return importlib.metadata.version("otel-taskhistory")
    except importlib.metadata.PackageNotFoundError:
        return None
