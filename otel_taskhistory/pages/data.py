# SPDX-License-Identifier: Apache-2.0
"""A task as data: every column that the reading API knows, nothing cut.

The prompts of a task are whole, unless it is a long one: a conversation is sent again with each
call, so theirs would grow with the square of its length, and each message is written once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from typing import Any, Final

from otel_taskhistory.history import Step, Task, TaskHistory
from otel_taskhistory.pages.redaction import bare_row
from otel_taskhistory.store import details
from otel_taskhistory.store.once import OncePrompt, Written

FORM: Final = "otel-taskhistory/task/1"
"""What such a document calls itself; the number rises when a reader would have to change."""

WHOLE_UP_TO: Final = 500
"""Steps of a task whose prompts are written whole."""

_AT_ONCE: Final = 50


def task_facts(history: TaskHistory, task_id: str, *, redact: bool) -> dict[str, Any]:
    """The task; its steps come from `step_facts`."""
    task = history.task(task_id)
    return {
        "form": FORM,
        "history_id": history.identity.history_id,
        "owner": history.identity.owner,
        "redacted": redact,
        "prompts": "once" if is_long(task) else "whole",
        "task": _columns(bare_row(task) if redact else task),
    }


def is_long(task: Task) -> bool:
    """Whether each message of its prompts is written once."""
    return task.step_count > WHOLE_UP_TO


def step_facts(history: TaskHistory, task_id: str, *, redact: bool) -> Iterator[dict[str, Any]]:
    """Its steps, each with its calls and pictures; prompts and decisions are with the calls.

    Of a long task a message is written where it was sent first: a prompt that begins like one
    before it names that call, and has the messages after those (see
    `otel_taskhistory.store.once`).
    """
    cursor = None
    written = Written() if is_long(history.task(task_id)) else None
    while True:
        page = history.steps(task_id, limit=_AT_ONCE, cursor=cursor, without=("prompt", "decision"))
        for step in page:
            if redact:
                yield history.read(partial(_bare_step, step=step))
                continue
            facts, prompts = history.read(partial(_step, step=step, written=written))
            if written is not None:
                written.add(prompts)
            yield facts
        cursor = page.next
        if cursor is None:
            return


def _step(
    connection: sqlite3.Connection, step: Step, written: Written | None
) -> tuple[dict[str, Any], list[OncePrompt]]:
    task_id, own = step.task_id, step.step_id
    facts = _without_calls(step)
    prompts: list[OncePrompt] = []
    if written is None:
        calls = details.model_calls(connection, task_id, own, ())
        facts["model_calls"] = [_columns(call) for call in calls]
    else:
        prompts = written.prompts(connection, task_id, own)
        by_call = {(prompt.span_id, prompt.ordinal): _prompt(prompt) for prompt in prompts}
        facts["model_calls"] = [
            {**_columns(call), "prompt": by_call.get((call.span_id, call.ordinal))}
            for call in details.model_calls(connection, task_id, own, ("prompt",))
        ]
    facts["tool_calls"] = [_columns(call) for call in details.tool_calls(connection, task_id, own)]
    facts["screenshots"] = [_columns(one) for one in details.screenshots(connection, task_id, own)]
    facts["stack_traces"] = [
        {"span": name, "stack": stack}
        for name, stack in details.stack_traces(connection, task_id, own)
    ]
    return facts, prompts


def _bare_step(connection: sqlite3.Connection, step: Step) -> dict[str, Any]:
    task_id, own = step.task_id, step.step_id
    facts = _without_calls(bare_row(step))
    calls = details.model_calls(connection, task_id, own, ("prompt", "decision"))
    tools = details.tool_calls(connection, task_id, own)
    facts["model_calls"] = [_columns(bare_row(call)) for call in calls]
    facts["tool_calls"] = [_columns(bare_row(call)) for call in tools]
    return facts


def _without_calls(step: Step) -> dict[str, Any]:
    facts = _columns(step)
    for name in ("prompt", "decision", "tool_name", "tool_arguments", "tool_result"):
        del facts[name]  # they are those of one of its calls
    return facts


def _prompt(prompt: OncePrompt) -> dict[str, Any] | str:
    if prompt.text is not None:
        return prompt.text
    begins_as = None
    if prompt.begins_as is not None:
        span_id, ordinal, messages = prompt.begins_as
        begins_as = {"span_id": span_id, "ordinal": ordinal, "messages": messages}
    return {"total": prompt.total, "begins_as": begins_as, "messages": list(prompt.messages)}


def _columns(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
