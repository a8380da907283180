# SPDX-License-Identifier: Apache-2.0
"""A task as data: every column that the reading API knows, nothing cut, prompts whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.redaction import bare_row

FORM: Final = "otel-taskhistory/task/1"
"""What such a document calls itself; the number rises when a reader would have to change."""

_AT_ONCE: Final = 50


def task_facts(history: TaskHistory, task_id: str, *, redact: bool) -> dict[str, Any]:
    """The task; its steps come from `step_facts`."""
    task = history.task(task_id)
    return {
        "form": FORM,
        "history_id": history.identity.history_id,
        "owner": history.identity.owner,
        "redacted": redact,
        "task": _columns(bare_row(task) if redact else task),
    }


def step_facts(history: TaskHistory, task_id: str, *, redact: bool) -> Iterator[dict[str, Any]]:
    """Its steps, each with its calls and pictures; prompts and decisions are with the calls."""
    cursor = None
    while True:
        page = history.steps(task_id, limit=_AT_ONCE, cursor=cursor, without=("prompt", "decision"))
        for step in page:
            own = step.step_id
            calls = history.model_calls(
                task_id, own, without=("prompt", "decision") if redact else ()
            )
            tools = history.tool_calls(task_id, own)
            facts = _columns(bare_row(step) if redact else step)
            for name in ("prompt", "decision", "tool_name", "tool_arguments", "tool_result"):
                del facts[name]  # they are those of one of the calls below
            facts["model_calls"] = [_columns(bare_row(one) if redact else one) for one in calls]
            facts["tool_calls"] = [_columns(bare_row(one) if redact else one) for one in tools]
            if not redact:
                facts["screenshots"] = [_columns(one) for one in history.screenshots(task_id, own)]
                facts["stack_traces"] = [
                    {"span": name, "stack": stack}
                    for name, stack in history.stack_traces(task_id, own)
                ]
            yield facts
        cursor = page.next
        if cursor is None:
            return


def _columns(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}
