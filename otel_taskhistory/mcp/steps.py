# SPDX-License-Identifier: Apache-2.0
"""One step as an answer: its calls, what was new in their prompts, pictures, stack traces."""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.cli.messages import read_message, shown
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.mcp import results
from otel_taskhistory.mcp.arguments import find_numbered
from otel_taskhistory.mcp.parts import (
    continued,
    named,
    part_of_step,
    picture_of,
    some,
    text_of,
    used,
)
from otel_taskhistory.mcp.texts import name
from otel_taskhistory.store.overview.step import CallView, StepView, step_view
from otel_taskhistory.store.views import ModelCall, Step, ToolCall

SHORT: Final = 800
"""Characters of arguments, and of each new message."""
LONG: Final = 1_600
"""Of results, errors and decisions."""

CALLS: Final = 6
"""Model calls and tool calls of a step at a time."""

_MESSAGES: Final = (10, 3)
"""New messages of a call that are shown: when it is the only one of its step, else."""
_PICTURES: Final = 6
_STACKS: Final = 2


def get_step(
    history: TaskHistory, task_id: str, step: int | str, first_call: int
) -> results.StepDetail:
    """A step, with its calls from `first_call` on."""
    view = history.read(lambda c: step_view(c, *find_numbered(c, task_id, step)))
    found = view.step

    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return continued(value, most, part_of_step(found, part))

    calls = list(enumerate(view.calls, 1))[first_call - 1 :][:CALLS]
    tools = list(enumerate(view.tools, 1))[first_call - 1 :][:CALLS]
    more = max(len(view.calls), len(view.tools)) >= first_call + CALLS
    return results.StepDetail(
        task_id=found.task_id,
        **of_step(found),
        ended_at=found.ended_at,
        model=named(found.model),
        used=used(found),
        result=text(found.result, "result", LONG),
        error=text(found.error, "error", LONG),
        model_calls=[_model_call(view, number, call) for number, call in calls],
        model_calls_total=len(view.calls),
        tool_calls=[_tool_call(found, number, call) for number, call in tools],
        tool_calls_total=len(view.tools),
        next_calls=f"ask get_step with step={found.step_id!r}, first_call={first_call + CALLS}"
        if more
        else None,
        pictures=[picture_of(history, picture) for picture in view.pictures[:_PICTURES]],
        pictures_total=len(view.pictures),
        stack_traces=[
            some(text(stack, f"stack_traces/{number}", LONG))
            for number, (_, stack) in enumerate(view.stacks[:_STACKS], 1)
        ],
        previous_step_id=view.previous,
        next_step_id=view.following,
    )


def of_step(step: Step) -> dict[str, Any]:
    """What every answer says of a step."""
    return {
        "step": step.step_index,
        "step_id": step.step_id,
        "name": name(step.name),
        "agent": named(step.agent),
        "status": step.status,
        "attempt": step.attempt,
        "started_at": step.started_at,
        "duration_ms": step.duration_ms,
    }


def _model_call(view: StepView, number: int, shown_call: CallView) -> results.ModelCall:
    call, prompt = shown_call.call, shown_call.prompt
    own = f"model_calls/{number}"
    most = _MESSAGES[0] if len(view.calls) == 1 else _MESSAGES[1]
    new = () if prompt is None else prompt.new[:most]
    whole_prompt, whole_decision = f"{own}/prompt", f"{own}/decision"
    return results.ModelCall(
        number=number,
        **_of_call(call),
        model=named(call.model),
        attempt=call.attempt,
        used=used(call),
        finish_reason=named(call.finish_reason),
        error=continued(call.error, LONG, part_of_step(view.step, f"{own}/error")),
        prompt_messages=0 if prompt is None else prompt.total,
        new_messages=[
            _message(position, text, part_of_step(view.step, f"{whole_prompt}/{position}"))
            for position, text in new
        ],
        new_messages_total=0 if prompt is None else prompt.new_total,
        removed_messages_total=0 if prompt is None else prompt.removed_total,
        decision=[
            _said(text, LONG, part_of_step(view.step, f"{whole_decision}/{position}"))[1]
            for position, text in enumerate(shown_call.decision[:2], 1)
        ],
        whole_prompt=f"get_text with {part_of_step(view.step, whole_prompt)}",
        whole_decision=f"get_text with {part_of_step(view.step, whole_decision)}",
    )


def _tool_call(step: Step, number: int, call: ToolCall) -> results.ToolCall:
    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return continued(value, most, part_of_step(step, f"tool_calls/{number}/{part}"))

    return results.ToolCall(
        number=number,
        name=name(call.name),
        call_id=named(call.call_id),
        **_of_call(call),
        arguments=text(call.arguments, "arguments", SHORT),
        result=text(call.result, "result", LONG),
        error=text(call.error, "error", LONG),
    )


def _of_call(call: ModelCall | ToolCall) -> dict[str, Any]:
    return {"status": call.status, "duration_ms": call.duration_ms}


def _message(position: int, text: str, part: str) -> results.Message:
    role, said = _said(text, SHORT, part)
    return results.Message(position=position, role=role, text=said)


def _said(text: str, most: int, part: str) -> tuple[str, results.Text]:
    """(role, words) of a message; its JSON is another text, so the rest is asked for from 0."""
    message = read_message(text)
    words = "\n".join([*map(shown, message.parts), *([message.sent] if message.sent else [])])
    return name(message.role), some(text_of(words, most, f"whole: ask get_text with {part}"))
