# SPDX-License-Identifier: Apache-2.0
"""The steps of a task on the screen, long texts shortened.

Each time it says by how much, and once per step how to see all.
"""

from __future__ import annotations

import json
from dataclasses import replace

from otel_taskhistory.cli.messages import (
    Message,
    Part,
    call_text,
    pictures_named,
    read_message,
    read_messages,
    shown,
)
from otel_taskhistory.cli.options import Place
from otel_taskhistory.cli.pieces import (
    LONG,
    MEDIUM,
    ROOM,
    SHORT,
    call_heading,
    error_text,
    parallel_groups,
    print_picture,
    print_step_heading,
    rest,
    span_of,
)
from otel_taskhistory.cli.terminal import Screen, mark
from otel_taskhistory.history import (
    ModelCall,
    Page,
    PromptChange,
    Screenshot,
    Step,
    Task,
    TaskHistory,
    ToolCall,
)
from otel_taskhistory.text import (
    count,
    duration,
    one_line,
    shorten,
)


class StepPrinter:
    """Prints steps one after the other, remembering what the reader has seen already."""

    def __init__(
        self, screen: Screen, history: TaskHistory, place: Place, task: Task, short: str
    ) -> None:
        self._screen = screen
        self._history = history
        self._place = place
        self._task = task
        self._short = short
        self._decided: list[tuple[Message, int]] = []
        self._results: dict[str, tuple[str, str]] = {}
        self._cut = False

    def print(self, page: Page[Step]) -> None:
        """Print a page of steps."""
        task_id, ids = self._task.task_id, {step.step_id for step in page}
        changes = self._history.prompt_changes(task_id, ids)
        for step in page:
            calls = self._history.model_calls(task_id, step.step_id, without=("prompt",))
            self._cut = False
            self._print_step(
                step,
                calls,
                changes.get(step.step_id, []),
                self._history.tool_calls(task_id, step.step_id),
                self._history.screenshots(task_id, step.step_id),
            )

    def _print_step(
        self,
        step: Step,
        calls: list[ModelCall],
        changes: list[PromptChange],
        tools: list[ToolCall],
        pictures: list[Screenshot],
    ) -> None:
        screen = self._screen
        screen.line()
        print_step_heading(screen, step, self._task)
        by_call = {(change.span_id, change.ordinal): change for change in changes}
        for number, call in enumerate(calls, start=1):
            if len(calls) > 1:
                screen.line(*call_heading(call, number, len(calls)))
            change = by_call.get((call.span_id, call.ordinal))
            if change is not None:
                self._print_change(change)
            self._print_decision(step, call, tools)
        self._print_tools(step, tools)
        for picture in pictures:
            print_picture(screen, self._history, picture)
        if step.result:
            self._print_text("result", pictures_named(step.result), LONG)
        if error_text(step):
            self._print_text("error", error_text(step), LONG, "alarm", label_style="alarm")
        if self._cut:
            command = self._place.command("show", self._short, "--step", str(step.step_index))
            screen.whole(command, "dim", label=("all of it", "dim"), room=ROOM)

    def _print_change(self, change: PromptChange) -> None:
        texts = [count(change.total, "message")]
        new, removed = len(change.new), len(change.removed)
        if change.first:
            texts = [f"{texts[0]}, the first prompt"]
        elif not new and not removed:
            texts.append("unchanged")
        else:
            texts += [f"{new} new"] if new else []
            texts += [f"{removed} removed"] if removed else []
        self._screen.block(" · ".join(texts), label=("prompt", "name"), room=ROOM)
        for gone in change.removed:
            message = read_message(gone.text)
            text = one_line(message.text)
            self._print_message("−", "bad", message.role, text, SHORT, "dim")
        for added in change.new:
            message = read_message(added.text)
            text, style = self._known(message)
            self._print_message("+", "good", message.role, text, MEDIUM, style)

    def _print_message(
        self, sign: str, sign_style: str, role: str, text: str, limit: tuple[int, int], style: str
    ) -> None:
        text, left_out = shorten(text, *limit)
        self._cut = self._cut or left_out > 0
        self._screen.block(
            text + rest(left_out),
            style,
            indent=2,
            label=(f"{sign} {one_line(role) or 'text'}", sign_style),
            room=ROOM + 2,
        )

    def _known(self, message: Message) -> tuple[str, str]:
        """The text of a new message; what was printed a moment ago is only named."""
        for decided, index in self._decided:
            if message.parts and (message.parts, message.sent) == (decided.parts, decided.sent):
                return f"(what it decided in step {index})", "dim"
        texts = [self._known_part(part) for part in message.parts]
        texts += [(message.sent, False)] if message.sent else []
        if texts and all(known for _, known in texts):
            return "\n".join(text for text, _ in texts), "dim"
        return "\n".join(text for text, _ in texts), ""

    def _known_part(self, part: Part) -> tuple[str, bool]:
        if part.kind == "result" and part.call_id in self._results:
            name, result = self._results[part.call_id or ""]
            if part.text == result or _same_json(part.text, result):
                return f"← (the result of {name}, above)", True
        return shown(part), False

    def _print_decision(self, step: Step, call: ModelCall, tools: list[ToolCall]) -> None:
        label = "decision"
        for message in read_messages(call.decision):
            self._decided = [(message, step.step_index), *self._decided[:7]]
            self._print_text(label, _without_calls(message, tools), LONG, label_style="name")
            label = ""
        if call.error and call.error != step.error:
            self._print_text("model", call.error, LONG, "alarm")

    def _print_tools(self, step: Step, tools: list[ToolCall]) -> None:
        label = "tools" if len(tools) > 1 else "tool"
        for group in parallel_groups(tools):
            if len(group) > 1:
                text = f"{len(group)} in parallel, {duration(span_of(group))} together"
                self._screen.block(text, label=(label, "name"), room=ROOM)
                label = ""
            for call in group:
                told = step.error is not None and step.error.endswith(call.error or "\0")
                self._print_tool(call, label, "∥ " if len(group) > 1 else "", told=told)
                label = ""

    def _print_tool(self, call: ToolCall, label: str, sign: str, *, told: bool) -> None:
        status_mark, style = mark(call.status)
        text, left_out = shorten(call_text(call.name, call.arguments), *MEDIUM)
        self._cut = self._cut or left_out > 0
        took = f"  {duration(call.duration_ms)}" if call.duration_ms is not None else ""
        status = f"  {call.status}" if call.status not in ("succeeded", "failed") else ""
        self._screen.block(
            f"{sign}{status_mark} {text}{rest(left_out)}{status}{took}",
            style if call.status != "succeeded" else "",
            label=(label, "name"),
            room=ROOM,
        )
        if call.result is not None:
            result = pictures_named(call.result)
            if call.call_id:
                self._results[call.call_id] = (call.name, result)
            self._print_text("", result, MEDIUM, indent=2 + len(sign), head="=")
        if call.error and not told:  # else the step's own error says it
            self._print_text("", call.error, LONG, "bad", indent=2 + len(sign), head="!")

    def _print_text(
        self,
        label: str,
        text: str,
        limit: tuple[int, int],
        style: str = "",
        *,
        label_style: str = "name",
        indent: int = 0,
        head: str = "",
    ) -> None:
        text, left_out = shorten(text, *limit)
        self._cut = self._cut or left_out > 0
        if indent:
            self._screen.block(
                text + rest(left_out),
                style,
                indent=ROOM + indent - 2,
                label=(head, "dim"),
                room=2,
            )
        else:
            self._screen.block(text + rest(left_out), style, label=(label, label_style), room=ROOM)


def _without_calls(message: Message, tools: list[ToolCall]) -> str:
    """A decision without the calls that are printed as tools in the very same words."""
    asked = {(call.call_id, call_text(call.name, call.arguments)) for call in tools}
    parts = [part for part in message.parts if (part.call_id, part.text) not in asked]
    text = replace(message, parts=tuple(parts)).text
    return text or ("(the calls below)" if message.parts else "(nothing)")


def _same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON, however they are written."""
    if not one.lstrip().startswith(("{", "[")):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):  # they only look like JSON
        return False
