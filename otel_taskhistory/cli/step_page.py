# SPDX-License-Identifier: Apache-2.0
"""One step on the screen, whole: nothing is shortened here."""

from __future__ import annotations

import json

from otel_taskhistory.cli.messages import (
    Message,
    pictures_named,
    read_messages,
    shown,
)
from otel_taskhistory.cli.pieces import (
    ROOM,
    call_heading,
    error_text,
    parallel_groups,
    print_picture,
    print_step_heading,
    tokens_text,
)
from otel_taskhistory.cli.terminal import Screen, mark
from otel_taskhistory.history import ModelCall, Step, Task, TaskHistory, ToolCall
from otel_taskhistory.text import clip, count, duration, local_time, one_line


def print_step(screen: Screen, history: TaskHistory, task: Task, step: Step) -> None:
    """Print one step of a task."""
    print_step_heading(screen, step, task)
    _fact(screen, "task", f"{task.task_id}  {clip(one_line(task.goal or ''), 60)}")
    _fact(screen, "span", f"{step.step_id} in trace {step.trace_id}")
    when = f"{local_time(step.started_at)}"
    _fact(screen, "when", when + (f" → {local_time(step.ended_at)}" if step.ended_at else ""))
    _fact(screen, "tokens", tokens_text(step))
    if error_text(step):
        screen.block(error_text(step), "alarm", label=("error", "alarm"), room=ROOM)
    calls = history.model_calls(step.task_id, step.step_id)
    for number, model_call in enumerate(calls, start=1):
        screen.line()
        screen.line(*call_heading(model_call, number, len(calls)))
        _print_call(screen, step, model_call)
    tools = history.tool_calls(step.task_id, step.step_id)
    groups = parallel_groups(tools)
    for group in groups:
        for call in group:
            screen.line()
            _print_tool(screen, call, parallel=len(group) > 1)
    pictures = history.screenshots(step.task_id, step.step_id)
    if pictures:
        screen.line()
    for picture in pictures:
        print_picture(screen, history, picture)
    if step.result is not None:
        screen.line()
        screen.block(_readable(step.result), label=("result", "name"), room=ROOM)
    for name, stack in history.stack_traces(step.task_id, step.step_id):
        screen.line()
        screen.line((f"stack trace of {name}", "bad"))
        screen.block(stack.rstrip("\n"), indent=2)


def _fact(screen: Screen, label: str, text: str) -> None:
    if text:
        screen.block(text, label=(label, "dim"), room=ROOM)


def _print_call(screen: Screen, step: Step, call: ModelCall) -> None:
    prompt = read_messages(call.prompt)
    if prompt:
        screen.line(("prompt", "title"), (f"  {count(len(prompt), 'message')}", ""))
    for number, message in enumerate(prompt, start=1):
        _print_message(screen, f"{number} ", message)
    decision = read_messages(call.decision)
    if decision:
        screen.line(("decision", "title"))
    for message in decision:
        _print_message(screen, "", message)
    if call.error and call.error != step.error:
        screen.block(call.error, "alarm", label=("error", "alarm"), room=ROOM)


def _print_message(screen: Screen, number: str, message: Message) -> None:
    screen.line((number, "dim"), (one_line(message.role) or "text", "name"), indent=2)
    for part in message.parts:
        text = shown(part)
        if part.call_id and part.kind in ("call", "result"):
            text = f"{text}  [{one_line(part.call_id)}]"
        screen.block(text, indent=4)
    for label, text in (("sent", message.sent), ("noted", message.noted)):
        if text:
            screen.block(text, "dim", indent=4, label=(label, "dim"), room=6)


def _print_tool(screen: Screen, call: ToolCall, *, parallel: bool) -> None:
    sign, style = mark(call.status)
    facts = [call.status, duration(call.duration_ms), "in parallel" if parallel else ""]
    facts.append(f"call {one_line(call.call_id)}" if call.call_id else "")
    facts.append(f"begun {local_time(call.started_at)}")
    screen.line(
        ("tool ", "name"),
        (f"{sign} ", style),
        (one_line(call.name), "bold"),
        ("  " + " · ".join(fact for fact in facts if fact), "dim"),
    )
    for label, text, text_style in (
        ("arguments", call.arguments, ""),
        ("result", call.result, ""),
        ("error", call.error, "bad"),
    ):
        if text is not None:
            screen.block(_readable(text), text_style, indent=2, label=(label, "dim"), room=ROOM)


def _readable(text: str) -> str:
    """A JSON object or list on several lines when it is long; any other text as it is."""
    if text.lstrip()[:1] in ("{", "[") and len(text) > 60:
        try:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
        except (ValueError, RecursionError):  # it only looks like JSON
            return pictures_named(text)
    return pictures_named(text)
