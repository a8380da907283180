# SPDX-License-Identifier: Apache-2.0
"""Puts together what several dialects say of one span.

The rules: the first dialect that gives the span a role other than ``other`` decides what it is.
Every further fact is taken from the first dialect that has it, but a prompt or decision that is a
list of messages beats one that is plain text, or a list that a limit of the SDK has cut. A span
that anybody saw fail has failed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeVar

from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens, ToolCall
from otel_taskhistory.conventions.genai_messages import is_whole

_FIRST: Final = (
    *("agent", "conversation_id", "goal", "result", "key", "parent_task_id", "step_index"),
    *("announces", "announced_parent"),
)

_T = TypeVar("_T")


def merge(first: SpanFacts | None, second: SpanFacts) -> SpanFacts:
    """Both together; `first` is of the dialect that is believed more."""
    if first is None:
        return second
    leading = first if first.role != "other" or second.role == "other" else second
    other = second if leading is first else first
    trouble = leading if leading.status != "succeeded" else other
    return replace(
        leading,
        **{name: _or(getattr(first, name), getattr(second, name)) for name in _FIRST},
        status=trouble.status,
        error=_or(leading.error, other.error),
        error_type=_or(leading.error_type, other.error_type),
        attempt=max(first.attempt, second.attempt),
        # Only of a span that is one: that another dialect reads a prompt where the leading one
        # sees no model call is no model call.
        model_calls=_calls(leading.model_calls, other.model_calls)
        if leading.role == "model"
        else leading.model_calls,
        tool_call=_tool(leading.tool_call, other.tool_call)
        if leading.role == "tool"
        else leading.tool_call,
        screenshots=first.screenshots or second.screenshots,
    )


def _calls(first: tuple[ModelCall, ...], second: tuple[ModelCall, ...]) -> tuple[ModelCall, ...]:
    if not first or not second:
        return first or second
    if len(first) != len(second):  # one of them sees more: it knows the span better
        return max(first, second, key=len)
    return tuple(_call(one, two) for one, two in zip(first, second, strict=True))


def _call(first: ModelCall, second: ModelCall) -> ModelCall:
    return replace(
        first,
        status=first.status if first.status != "succeeded" else second.status,
        model=_or(first.model, second.model),
        prompt=_said(first.prompt, second.prompt),
        decision=_said(first.decision, second.decision),
        finish_reason=_or(first.finish_reason, second.finish_reason),
        tokens=Tokens(
            _or(first.tokens.input, second.tokens.input),
            _or(first.tokens.output, second.tokens.output),
            _or(first.tokens.cached, second.tokens.cached),
            _or(first.tokens.reasoning, second.tokens.reasoning),
        ),
        cost=_or(first.cost, second.cost),
        attempt=max(first.attempt, second.attempt),
        error=_or(first.error, second.error),
        call_ids=first.call_ids or second.call_ids,
        response_id=_or(first.response_id, second.response_id),
    )


def _tool(first: ToolCall | None, second: ToolCall | None) -> ToolCall | None:
    if first is None or second is None:
        return first or second
    return ToolCall(
        first.name,
        _or(first.call_id, second.call_id),
        _or(first.arguments, second.arguments),
        _or(first.result, second.result),
    )


def _said(first: Said | None, second: Said | None) -> Said | None:
    if first is None or second is None:
        return first or second
    return second if _is_list(second) and not _is_list(first) else first


def _is_list(said: Said) -> bool:
    return said.structured and is_whole(said)


def _or(first: _T | None, second: _T | None) -> Any:
    return first if first is not None else second
