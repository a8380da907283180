# SPDX-License-Identifier: Apache-2.0
"""The handles an agent works with: a task, its steps, their tool calls. No method raises.

They are made by `TaskTracer.task`, `Task.step` and `Step.tool_call`; `Handle` says what they have
in common.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from operator import index as exact_int
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span

from otel_taskhistory import semconv
from otel_taskhistory.recording import pictures
from otel_taskhistory.recording.handle import Handle, Recorder
from otel_taskhistory.recording.messages import convert_decision, convert_prompt, dump_value
from otel_taskhistory.recording.misuse import Told, failed, guarded, nothing
from otel_taskhistory.recording.model_call import Change, ModelCalls
from otel_taskhistory.recording.outcome import text_of
from otel_taskhistory.recording.sink import StoredPicture

_NO_SPAN: Final = trace.INVALID_SPAN
_INDEX_LIMIT: Final = 2**63


class ToolCall(Handle):
    """One invocation of a tool within a step."""

    _KIND = "ToolCall"
    _RESULT = semconv.GEN_AI_TOOL_CALL_RESULT

    @property
    def step(self) -> Step | None:
        """The step that asked for it."""
        return self._parent if isinstance(self._parent, Step) else None


def _no_tool_call(step: Step) -> ToolCall:
    return ToolCall(step._recorder, _NO_SPAN, step._told, parent=step)


def _no_picture(_: object) -> StoredPicture:
    return pictures.UNRECORDED


class Step(Handle):
    """One turn of the agent within a task."""

    _KIND = "Step"
    _RESULT = semconv.TASKHISTORY_STEP_RESULT

    def __init__(
        self,
        recorder: Recorder,
        span: Span,
        told: Told,
        *,
        parent: Handle | None = None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(recorder, span, told, parent=parent, identity=identity)
        self._calls = ModelCalls()

    @property
    def task(self) -> Task | None:
        """The task it belongs to."""
        return self._parent if isinstance(self._parent, Task) else None

    @guarded(nothing)
    def prompt(
        self,
        messages: Any,
        *,
        model: str | None = None,
        system: Any = None,
        tools: Any = None,
    ) -> None:
        """Record what is sent to the model now, exactly; a second time begins a further call.

        Args:
            messages: a str, or the messages in the form of any of the usual model APIs.
            model: name of the model that is asked.
            system: system instructions that are sent beside the messages.
            tools: definitions of the tools that are offered.
        """
        if not self._takes("prompt"):
            return
        self._can_be_kept(prompt=messages, system=system, tools=tools)
        prompt = convert_prompt(messages, system=system, tools=tools)
        with self._lock:
            name = None if model is None else text_of(model)
            self._change(self._calls.asked(prompt, name, time.time_ns()))
            call = self._calls.count
        self._checkpoint(
            "step.prompt",
            {
                "call": call,
                "messages": prompt.count,
                "chars": len(prompt.messages),
                "system_chars": len(prompt.system or ""),
                "tools_chars": len(prompt.tools or ""),
            },
        )

    @guarded(nothing)
    def decision(
        self,
        reply: Any,
        *,
        usage: Any = None,
        model: str | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Record the model's response; a second one without a prompt is a further call.

        Args:
            reply: a str, a message, or the whole response object of a model API.
            usage: tokens, when the response does not say them.
            model: name of the model that answered, when the response does not say it.
            finish_reason: why it stopped, when the response does not say it.
        """
        if not self._takes("decision"):
            return
        now = time.time_ns()
        self._can_be_kept(decision=reply)
        decision = convert_decision(reply, usage=usage, model=model, finish_reason=finish_reason)
        with self._lock:
            self._change(self._calls.answered(decision, now))
            call = self._calls.count
        self._checkpoint(
            "step.decision",
            {
                "call": call,
                "tool_calls": decision.tool_calls,
                "chars": len(decision.messages),
                **decision.usage,
            },
        )

    def _change(self, change: Change) -> None:
        earlier = change.earlier
        if earlier is not None:
            self._apply(
                lambda span: span.add_event(
                    semconv.GEN_AI_INFERENCE_DETAILS_EVENT, earlier.attributes, earlier.timestamp
                )
            )
        self._put(change.attributes, change.reduced)

    @guarded(_no_tool_call)
    def tool_call(
        self, name: str, arguments: Any = None, *, call_id: str | None = None
    ) -> ToolCall:
        """Begin the invocation of a tool; several may be open at once.

        Args:
            name: of the tool.
            arguments: a str is kept as it is, anything else as JSON; None for none.
            call_id: the id the model gave the call it asked for.
        """
        if not self._span_context.is_valid or not self._is_open("tool_call"):
            return _no_tool_call(self)
        self._can_be_kept(arguments=arguments)
        tool = text_of(name)
        attributes: dict[str, Any] = {
            semconv.TASKHISTORY_ROLE: "tool_call",
            semconv.GEN_AI_OPERATION_NAME: "execute_tool",
            semconv.GEN_AI_TOOL_NAME: tool,
        }
        if call_id is not None:
            attributes[semconv.GEN_AI_TOOL_CALL_ID] = text_of(call_id)
        identity = dict(attributes)
        reduced: set[str] = set()
        if arguments is not None and self._recording:
            text, is_reduced = dump_value(arguments)
            attributes[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] = text
            if is_reduced:
                reduced.add(semconv.GEN_AI_TOOL_CALL_ARGUMENTS)
                attributes[semconv.TASKHISTORY_REDUCED] = tuple(reduced)
        span = self._start(f"execute_tool {tool}", attributes)
        call = ToolCall(
            self._recorder, span, self._told, parent=self, identity=identity, reduced=reduced
        )
        if arguments is not None and call._recording and not self._recording:
            # A sampler took the tool call but not its step.
            text, is_reduced = dump_value(arguments)
            name_of_it = semconv.GEN_AI_TOOL_CALL_ARGUMENTS
            call._put({name_of_it: text}, {name_of_it} if is_reduced else ())
        self._adopt(call)
        return call

    @guarded(_no_picture)
    def screenshot(self, image: Any, *, caption: str | None = None) -> StoredPicture:
        """Record a picture of what the agent saw, and return what is known of it.

        Args:
            image: encoded bytes (PNG, JPEG, WebP, GIF), a path, or a PIL image; None says that
                there was none to be had.
            caption: what it shows.
        """
        if not self._takes("screenshot"):
            return pictures.UNRECORDED
        picture = self._stored(image)
        facts = {
            semconv.TASKHISTORY_SCREENSHOT_SHA256: picture.sha256,
            semconv.TASKHISTORY_SCREENSHOT_PATH: picture.path,
            semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE: picture.media_type,
            semconv.TASKHISTORY_SCREENSHOT_WIDTH: picture.width,
            semconv.TASKHISTORY_SCREENSHOT_HEIGHT: picture.height,
            semconv.TASKHISTORY_SCREENSHOT_BYTES: picture.bytes,
            semconv.TASKHISTORY_SCREENSHOT_CAPTION: None if caption is None else text_of(caption),
            semconv.TASKHISTORY_SCREENSHOT_STATUS: picture.status,
        }
        attributes = {name: value for name, value in facts.items() if value is not None}
        self._apply(lambda span: span.add_event(semconv.TASKHISTORY_SCREENSHOT_EVENT, attributes))
        detail = {"sha256": picture.sha256, "bytes": picture.bytes, "status": picture.status}
        self._checkpoint("step.screenshot", detail)
        return picture

    def _stored(self, image: Any) -> StoredPicture:
        sink = self._recorder.sink()
        if sink is not None and image is not None:
            try:
                return sink.picture(image)
            except Exception as error:
                failed("sink.picture", error)
        return pictures.unstored(image)

    def _essentials(self) -> dict[str, Any]:
        with self._lock:
            return {**self._calls.facts(), **self._identity}

    def _let_go(self) -> None:
        self._calls = ModelCalls()
        super()._let_go()


def _no_step(task: Task) -> Step:
    return Step(task._recorder, _NO_SPAN, task._told, parent=task)


class Task(Handle):
    """One assignment that the agent carries out: one trace, or one attempt at it."""

    _KIND = "Task"
    _RESULT = semconv.TASKHISTORY_TASK_RESULT

    def __init__(
        self,
        recorder: Recorder,
        span: Span,
        told: Told,
        *,
        identity: Mapping[str, Any] | None = None,
        inherited: Mapping[str, Any] | None = None,
        reduced: Iterable[str] = (),
        last_index: int = 0,
    ) -> None:
        """Handles are made by `TaskTracer`.

        Args:
            recorder: of the tracer.
            span: the root span.
            told: the scope in which a wrong use is told once.
            identity: attributes that the span must still have at its end.
            inherited: attributes that each step has too.
            reduced: attributes that do not hold their value as it was.
            last_index: number of the last step of earlier attempts.
        """
        super().__init__(recorder, span, told, identity=identity, reduced=reduced)
        self._inherited = dict(inherited or {})
        self._last_index = last_index

    @classmethod
    def ended_before(cls, recorder: Recorder, told: Told, span_context: trace.SpanContext) -> Task:
        """A handle of a task that is over, or that runs in another process."""
        task = cls(recorder, trace.NonRecordingSpan(span_context), told)
        task._ended = True
        task._ended_before = True
        return task

    @property
    def id(self) -> str:
        """The task id: the trace id, 32 hex digits."""
        return self.trace_id

    @guarded(_no_step)
    def step(self, name: str | None = None, *, index: int | None = None) -> Step:
        """Begin a step; several may be open at once.

        Args:
            name: of the span; ``step`` by default.
            index: number of the step; by default one more than the highest so far, from 1.
        """
        if not self._span_context.is_valid or not self._is_open("step"):
            return _no_step(self)
        given = self._checked_index(index)
        with self._lock:
            # The time is taken with the number, so that both have the same order.
            number = self._last_index + 1 if given is None else given
            self._last_index = max(self._last_index, number)
            now = time.time_ns()
        attributes = {
            semconv.TASKHISTORY_ROLE: "step",
            semconv.TASKHISTORY_STEP_INDEX: number,
            **self._inherited,
        }
        span_name = "step" if name is None else text_of(name)
        span = self._start(span_name, attributes, start_time=now)
        step = Step(self._recorder, span, self._told, parent=self, identity=attributes)
        self._adopt(step)
        return step

    def _checked_index(self, index: Any) -> int | None:
        if index is None:
            return None
        try:
            number = exact_int(index)
            if isinstance(index, bool) or not -_INDEX_LIMIT <= number < _INDEX_LIMIT:
                raise ValueError
        except (TypeError, ValueError):
            self._tell("bad_index", "the index of a step is no 64-bit integer; it is numbered")
            return None
        return number
