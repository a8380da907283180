# SPDX-License-Identifier: Apache-2.0
"""A task as Markdown, to be pasted into an issue: nothing recorded becomes markup in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from otel_taskhistory.history import Task
from otel_taskhistory.pages.json_text import indented, looks_like_json, unwrapped
from otel_taskhistory.pages.pieces import error_text, tokens
from otel_taskhistory.pages.step_list import is_named
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.store.overview.step import PromptView, StepView
from otel_taskhistory.store.overview.tasks import TaskHead
from otel_taskhistory.store.overview.texts import cut_off
from otel_taskhistory.text import count, duration, one_line, printable
from otel_taskhistory.units import format_size

VALUE_BYTES: Final = 64 * 1024
"""Of each value; what is longer is cut, and says so."""

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&@$^]|:(?=//)|(?<=www)\.)")
_TICKS: Final = re.compile(r"`+")


def markdown(whole: WholeTask, progress: Callable[[int], None] | None = None) -> Iterator[str]:
    """The document, piece by piece.

    Args:
        progress: called with the number of each step that is done, from 1.
    """
    head = whole.head()
    yield from _head(head)
    for number, line in enumerate(whole.steps(), start=1):
        yield from _step(whole.step(line.step.step_id, VALUE_BYTES), head.task)
        if progress is not None:
            progress(number)


def plain(text: str) -> str:
    """A text on one line that no Markdown reader takes for markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def fenced(text: str, language: str = "") -> str:
    """A text as it is, in a fence that nothing in it can close."""
    text, whole = cut_off(text)
    text = printable(text).rstrip("\n")
    longest = max((len(found[0]) for found in _TICKS.finditer(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    cut = "" if whole is None else f"\n\n*cut here: it has {format_size(whole)}*"
    return f"{fence}{language}\n{text}\n{fence}{cut}\n"


def _value(text: str) -> str:
    head, whole = cut_off(text)
    if whole is None and looks_like_json(head):
        return fenced(indented(unwrapped(head)), "json")
    return fenced(text)


def _head(head: TaskHead) -> Iterator[str]:
    task = head.task
    goal = task.goal or "(no goal)"
    title = plain(goal)
    yield f"# {title[:200]}\n\n"
    if len(title) > 200 or "\n" in goal.strip():
        yield f"{fenced(goal)}\n"
    rows = [
        ("Outcome", task.status),
        ("Task", task.task_id),
        ("Agent", task.agent),
        ("Model", task.model),
        ("Begun", task.started_at),
        ("Ended", task.ended_at),
        ("Took", duration(task.duration_ms)),
        ("Steps", count(task.step_count)),
        ("Tokens", tokens(task)),
        ("Cost", None if task.cost is None else f"{task.cost:.6g}"),
        ("Attempts", str(task.attempt) if task.attempt > 1 else None),
        ("Conversation", task.conversation_id),
        ("Begun by task", task.parent_task_id),
    ]
    yield "| | |\n| --- | --- |\n"
    for label, value in rows:
        if value:
            yield f"| {label} | {plain(value)} |\n"
    yield "\n"
    why = error_text(task.error, task.error_type)
    if why:
        yield f"**Error**\n\n{fenced(why)}\n"
    if task.result is not None:
        yield f"**Result**\n\n{_value(task.result)}\n"


def _step(view: StepView, task: Task) -> Iterator[str]:
    step = view.step
    named = f" · {plain(step.name)}" if is_named(step.name, step.model) else ""
    yield f"## Step {step.step_index}{named} · {step.status}\n\n"
    facts = [
        duration(step.duration_ms),
        step.started_at,
        step.agent if step.agent != task.agent else None,
        step.model,
        f"{tokens(step)} tokens" if tokens(step) else None,
        f"attempt {step.attempt}" if step.attempt > 1 else None,
    ]
    yield " · ".join(plain(fact) for fact in facts if fact) + "\n\n"
    why = error_text(step.error, step.error_type)
    if why:
        yield f"**Error**\n\n{fenced(why)}\n"
    for name, stack in view.stacks:
        yield f"<details><summary>Stack trace of {plain(name)}</summary>\n\n{fenced(stack)}\n"
        yield "</details>\n\n"
    for number, call in enumerate(view.calls, start=1):
        if len(view.calls) > 1:
            yield f"### Model call {number} of {len(view.calls)} · {call.call.status}\n\n"
        if call.prompt is not None:
            yield from _prompt(call.prompt)
        for text in call.decision:
            yield f"**Decision**\n\n{_message(text)}"
        if call.call.error and call.call.error != step.error:
            yield f"**Model error**\n\n{fenced(call.call.error)}\n"
    for tool in view.tools:
        took = duration(tool.duration_ms)
        yield f"**Tool** {plain(tool.name)} · {tool.status}{f' · {took}' if took else ''}\n\n"
        if tool.arguments is not None:
            yield f"Arguments\n\n{_value(tool.arguments)}\n"
        if tool.result is not None:
            yield f"Result\n\n{_value(tool.result)}\n"
        if tool.error and tool.error != step.error:
            yield f"Error\n\n{fenced(tool.error)}\n"
    for shot in view.pictures:
        size = f"{shot.width}×{shot.height} " if shot.width and shot.height else ""
        caption = f" · {plain(shot.caption)}" if shot.caption else ""
        yield f"*{shot.role}* {size}{plain(shot.media_type)} `{plain_id(shot.sha256)}`{caption}\n\n"
    if step.result is not None:
        yield f"**Result of the step**\n\n{_value(step.result)}\n"


def plain_id(text: str) -> str:
    """The beginning of an id, letters and digits only."""
    return re.sub(r"[^0-9A-Za-z]", "", text)[:12]


def _prompt(prompt: PromptView) -> Iterator[str]:
    facts = [count(prompt.total, "message")]
    facts += ["the first prompt"] if prompt.first else [f"{count(prompt.new_total)} new"]
    facts += [f"{count(prompt.removed_total)} removed"] if prompt.removed_total else []
    yield f"**Prompt** {' · '.join(facts)}\n\n"
    for sign, messages in (("removed", prompt.removed), ("", prompt.new)):
        for position, text in messages:
            yield f"Message {position}{f' {sign}' if sign else ''} {_message(text)}"


def _message(text: str) -> str:
    """A message: who says it, and each part in a fence of its own."""
    try:
        message = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
        return f"\n\n{_value(text)}\n"
    pieces = [f"*{plain(str(message.get('role') or 'text'))}*\n\n"]
    for part in message["parts"]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("content"), str):
            pieces.append(f"{fenced(part['content'])}\n")
        elif kind == "tool_call":
            pieces.append(f"calls {plain(str(part.get('name')))}\n\n")
            pieces.append(f"{_value(_text(part.get('arguments')))}\n")
        elif kind == "tool_call_response":
            pieces.append(f"{_value(_text(part.get('response', part.get('result'))))}\n")
        else:
            pieces.append(f"{_value(_text(part))}\n")
    return "".join(pieces)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
