# SPDX-License-Identifier: Apache-2.0
"""What is left of a task when its contents are left out: structure, times, outcomes, names, tokens.

Goals, prompts, decisions, arguments, results, errors and pictures go. What stays of a message is
its role and of which kinds its parts are; of an error its type.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, TypeVar

from otel_taskhistory.history import ModelCall, Step, Task, ToolCall
from otel_taskhistory.store.overview.step import CallView, PromptView, StepView
from otel_taskhistory.store.overview.steps import StepLine
from otel_taskhistory.store.overview.tasks import TaskHead

LEFT_OUT: Final = "(left out)"
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_TYPES: Final = ("text", "reasoning", "tool_call", "tool_call_response", "blob", "uri", "file")

_Row = TypeVar("_Row", Task, Step, ModelCall, ToolCall)
_CONTENTS: Final = (
    *("goal", "result", "error", "key", "prompt", "decision", "arguments"),
    *("tool_arguments", "tool_result", "screenshot"),
)
"""Columns of tasks, steps and calls that hold contents. A key may be anything an agent made up."""


def bare_row(row: _Row) -> _Row:
    """A row without its contents."""
    gone: dict[str, Any] = {name: None for name in _CONTENTS if hasattr(row, name)}
    return replace(row, **gone)


def bare_head(head: TaskHead) -> TaskHead:
    """A task's head without contents."""
    task = bare_row(head.task)
    if head.task.goal is not None:
        task = replace(task, goal=LEFT_OUT)
    return replace(
        head,
        task=task,
        children=tuple(map(bare_row, head.children)),
        parent=None if head.parent is None else bare_row(head.parent),
    )


def bare_line(line: StepLine) -> StepLine:
    """A step of the list without contents."""
    return replace(line, step=bare_row(line.step), said="", picture=None)


def bare_view(view: StepView) -> StepView:
    """A step without contents."""
    calls = [
        CallView(
            bare_row(one.call), _bare_prompt(one.prompt), tuple(map(bare_message, one.decision))
        )
        for one in view.calls
    ]
    return replace(
        view,
        step=bare_row(view.step),
        calls=tuple(calls),
        tools=tuple(map(bare_row, view.tools)),
        pictures=(),
        before=None,
        stacks=(),
    )


def _bare_prompt(prompt: PromptView | None) -> PromptView | None:
    if prompt is None:
        return None
    return replace(
        prompt,
        new=tuple((position, bare_message(text)) for position, text in prompt.new),
        removed=tuple((position, bare_message(text)) for position, text in prompt.removed),
        full=None if prompt.full is None else tuple(map(bare_message, prompt.full)),
    )


def bare_message(text: str) -> str:
    """A message as JSON with its role, the kinds of its parts, and the names of tools."""
    try:
        message = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        return LEFT_OUT
    role = message.get("role")
    parts = message.get("parts")
    kept = [_bare_part(part) for part in parts] if isinstance(parts, list) else []
    if not kept:
        kept = [{"type": "text", "content": LEFT_OUT}]
    return json.dumps({"role": role if role in _ROLES else "other", "parts": kept})


def _bare_part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else "text"
    if kind not in _TYPES:
        kind = "text"
    kept: dict[str, Any] = {"type": kind}
    if kind in ("tool_call", "tool_call_response"):
        for name in ("id", "name"):
            if isinstance(part.get(name), str):
                kept[name] = part[name]
        kept["arguments" if kind == "tool_call" else "response"] = LEFT_OUT
    else:
        kept["content"] = LEFT_OUT
    return kept
