# SPDX-License-Identifier: Apache-2.0
"""One step with all that belongs to it, its prompts against what was sent before."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_taskhistory.store import details
from otel_taskhistory.store.changes import LOOKED_BACK, Difference, differences
from otel_taskhistory.store.columns import from_row
from otel_taskhistory.store.gone import Gone, gone
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.steps import (
    ONE_STEP,
    PICTURE,
    STEPS_AFTER,
    STEPS_UNTIL,
    rows_near,
    span_of_step,
    step_line,
)
from otel_taskhistory.store.overview.tasks import row_of
from otel_taskhistory.store.overview.texts import Messages, head, value
from otel_taskhistory.store.times import iso, milliseconds
from otel_taskhistory.store.views import ModelCall, Screenshot, Step, ToolCall

VALUE_BYTES: Final = 16 * 1024
"""Of each value of the step that is shown, until all of it is asked for."""
MESSAGES: Final = 40
"""New messages of a prompt that are read, and removed ones, until all of it is asked for."""


@dataclass(frozen=True, slots=True)
class PromptView:
    """A prompt of a step against the one before it; texts are messages as JSON, or plain text.

    Attributes:
        total: how many messages it has; 1 for plain text.
        first: there was none before it.
        new, removed: (position from 1, text); the first `MESSAGES` of them unless all is asked for.
        new_total, removed_total: how many there are.
        full: all messages, when they were asked for.
    """

    total: int
    first: bool
    new: tuple[tuple[int, str], ...]
    removed: tuple[tuple[int, str], ...]
    new_total: int
    removed_total: int
    full: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CallView:
    """A model call of a step: `call` is without prompt and decision."""

    call: ModelCall
    prompt: PromptView | None
    decision: tuple[str, ...]
    """Messages as JSON, or one plain text."""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with all that belongs to it; texts may be cut, unless all was asked for."""

    step: Step
    calls: tuple[CallView, ...]
    tools: tuple[ToolCall, ...]
    pictures: tuple[Screenshot, ...]
    before: tuple[int, Screenshot] | None
    """(index of the step, picture): the last one before this step."""
    stacks: tuple[tuple[str, str], ...]
    previous: str | None
    """Id of the step before."""
    following: str | None
    full: bool


_CALLS: Final = """
SELECT call.id, own.span_id, call.ordinal, call.attempt, call.model, call.finish_reason,
    call.input_tokens, call.output_tokens, call.cached_tokens, call.reasoning_tokens, call.cost,
    call.status, call.error IS NOT NULL, call.started_ns, call.ended_ns,
    call.prompt_node, call.prompt_text, call.decision_node, call.decision_text
FROM _model_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? AND call.twin_of IS NULL ORDER BY call.started_ns, own.span_id, call.ordinal
"""
_TOOLS: Final = """
SELECT call.id, call.call_id, own.span_id, call.name, call.status, call.started_ns, call.ended_ns,
    call.arguments IS NOT NULL, call.arguments_content, call.result IS NOT NULL,
    call.result_content, call.error IS NOT NULL
FROM _tool_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? AND call.twin_of IS NULL ORDER BY call.started_ns, own.span_id
"""
_RESULT: Final = (
    "SELECT result IS NOT NULL, result_content, error IS NOT NULL FROM _steps WHERE id = ?"
)


def step_view(
    connection: sqlite3.Connection,
    task_id: str,
    step_id: str,
    *,
    full: bool = False,
    most: int | None = VALUE_BYTES,
) -> StepView:
    """One step of a task (whole ids).

    Args:
        full: nothing is cut, and each prompt is there with all its messages.
        most: bytes that are read of each value; None for all, and for all messages that are new.

    Raises:
        TaskNotFound: there is no such step.
    """
    left = gone(connection)
    task_id = find_task(connection, task_id)
    span, index = span_of_step(connection, task_id, step_id)
    row = connection.execute(ONE_STEP, (span,)).fetchone()
    number, trace_id = row[0], task_id[:32]
    line = step_line(connection, row, task_id, trace_id, left)
    most = None if full else most
    has_result, result, has_error = connection.execute(_RESULT, (number,)).fetchone()
    step = replace(
        line.step,
        result=value(connection, "_steps", number, "result", has_result, result, most),
        error=head(connection, "_steps", "error", number, most) if has_error else None,
    )
    task = row_of(connection, task_id)
    place = (index, step_id)
    earlier = rows_near(connection, STEPS_UNTIL, task, place, LOOKED_BACK)
    later = rows_near(connection, STEPS_AFTER.format(">"), task, place, 1)
    calls = _calls(connection, number, step, [found[0] for found in earlier], left, most, full=full)
    tools = [
        _tool(connection, found, step, most, left)
        for found in connection.execute(_TOOLS, (number,)).fetchall()
    ]
    statuses = {step.status, *(tool.status for tool in tools), *(one.call.status for one in calls)}
    stacks = details.stack_traces(connection, task_id, step_id) if "failed" in statuses else []
    return StepView(
        step=step,
        calls=tuple(calls),
        tools=tuple(tools),
        pictures=tuple(details.screenshots(connection, task_id, step_id)),
        before=_picture_before(connection, task_id, earlier),
        stacks=tuple(stacks),
        previous=earlier[0][1] if earlier else None,
        following=later[0][1] if later else None,
        full=full,
    )


def _picture_before(
    connection: sqlite3.Connection, task_id: str, earlier: Sequence[tuple[Any, ...]]
) -> tuple[int, Screenshot] | None:
    for _, step_id, index, *_rest in earlier:
        found = connection.execute(PICTURE, (task_id, step_id)).fetchone()
        if found is not None:
            return index, from_row(Screenshot, found)
    return None


def _calls(
    connection: sqlite3.Connection,
    number: int,
    step: Step,
    earlier: Sequence[int],
    left: Gone,
    most: int | None,
    *,
    full: bool,
) -> list[CallView]:
    messages = Messages(connection, most)
    prompts = _prompts(connection, number, earlier, messages, full=full)
    views = []
    for row in connection.execute(_CALLS, (number,)).fetchall():
        own, span_id, ordinal, attempt, model, reason = row[:6]
        status, has_error, started, ended = row[11:15]
        call = ModelCall(
            step.step_id, step.task_id, span_id, ordinal, attempt, model, None, None, reason,
            row[6], row[7], row[8], row[9], row[10], status,
            head(connection, "_model_calls", "error", own, most) if has_error else None,
            iso(started), None if ended is None else iso(ended), milliseconds(started, ended),
        )  # fmt: skip
        call = left.of_span(call, step.trace_id, call.span_id)
        node, text = row[17:]
        decision = [] if text is None else [messages.plain(text)]
        if node is not None:
            decision = [messages.message(content) for content in messages.texts.chain(node)]
        views.append(CallView(call, prompts.get((call.span_id, call.ordinal)), tuple(decision)))
    return views


def _prompts(
    connection: sqlite3.Connection,
    number: int,
    earlier: Sequence[int],
    messages: Messages,
    *,
    full: bool,
) -> dict[tuple[str, int], PromptView]:
    """The prompts of a step by span and ordinal, each against what its conversation had before."""
    views = {}
    for found in differences(connection, [number], earlier):
        view = _prompt_view(found, messages, first=not earlier and found.before is None, full=full)
        views[found.prompt.span_id, found.prompt.ordinal] = view
    return views


def _prompt_view(found: Difference, messages: Messages, *, first: bool, full: bool) -> PromptView:
    prompt, before = found.prompt, found.before
    most = None if messages.whole else MESSAGES

    def texts(some: Sequence[tuple[int, int]], plain: bool) -> tuple[tuple[int, str], ...]:
        read = messages.plain if plain else messages.message
        return tuple((position, read(content)) for position, content in some[:most])

    everything: tuple[str, ...] | None = None
    if full and prompt.text is not None:
        everything = (messages.plain(prompt.text),)
    elif full and prompt.node is not None:
        everything = tuple(map(messages.message, messages.texts.chain(prompt.node)))
    return PromptView(
        total=found.total,
        first=first,
        new=texts(found.new, prompt.text is not None),
        removed=texts(found.removed, before is not None and before.text is not None),
        new_total=len(found.new),
        removed_total=len(found.removed),
        full=everything,
    )


def _tool(
    connection: sqlite3.Connection, row: tuple[Any, ...], step: Step, most: int | None, left: Gone
) -> ToolCall:
    number, call_id, span_id, name, status, started, ended, *texts, has_error = row
    call = ToolCall(
        call_id, step.step_id, step.task_id, span_id, name,
        value(connection, "_tool_calls", number, "arguments", texts[0], texts[1], most),
        value(connection, "_tool_calls", number, "result", texts[2], texts[3], most),
        status, head(connection, "_tool_calls", "error", number, most) if has_error else None,
        iso(started), None if ended is None else iso(ended), milliseconds(started, ended),
    )  # fmt: skip
    return left.of_span(call, step.trace_id, span_id)
