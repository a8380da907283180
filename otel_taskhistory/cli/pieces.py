# SPDX-License-Identifier: Apache-2.0
"""What the pages of a task and of a step have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from otel_taskhistory.cli.terminal import Piece, Screen, mark
from otel_taskhistory.history import (
    ModelCall,
    Screenshot,
    Step,
    Task,
    TaskHistory,
    ToolCall,
)
from otel_taskhistory.text import (
    clip,
    count,
    duration,
    milliseconds_since,
    one_line,
    parse_time,
)
from otel_taskhistory.units import format_size

ROOM: Final = 10
"""Columns of the labels at the left."""
LONG: Final = (1200, 14)
"""Characters and lines of what matters most: decisions, errors, results of tasks."""
MEDIUM: Final = (600, 8)
"""Of new messages, and results of tools."""
SHORT: Final = (160, 2)
"""Of messages that the agent took out."""


def tokens_text(row: Task | Step | ModelCall) -> str:
    """The tokens and the cost of a task, step or call; empty when nobody said."""
    known = [
        (row.input_tokens, "in"),
        (row.output_tokens, "out"),
        (row.cached_tokens, "cached"),
        (row.reasoning_tokens, "reasoning"),
    ]
    texts = [f"{count(number)} {what}" for number, what in known if number is not None]
    if row.cost is not None:
        texts.append(f"cost {row.cost:.6g}")
    return " · ".join(texts)


def print_step_heading(screen: Screen, step: Step, task: Task) -> None:
    """A line across the screen: number, name, outcome of a step, and what differs from its task."""
    sign, style = mark(step.status)
    took = duration(step.duration_ms)
    if step.status == "running":
        took = duration(milliseconds_since(step.started_at, datetime.now(UTC)))
    facts = [f"{sign} {took}" if step.status == "succeeded" else f"{sign} {step.status} {took}"]
    right: list[Piece] = [(facts[0].rstrip(), style)]
    if step.attempt > 1:
        right.append((f" · attempt {step.attempt}", ""))
    if step.agent and step.agent != task.agent:
        right.append((f" · {clip(one_line(step.agent), 20)}", ""))
    if step.model and step.model != task.model:
        right.append((f" · {clip(one_line(step.model), 24)}", ""))
    if step.input_tokens is not None or step.output_tokens is not None:
        used = f"{count(step.input_tokens or 0)}→{count(step.output_tokens or 0)} tokens"
        right.append((f" · {used}", ""))
    taken = sum(len(text) for text, _ in right)
    name = clip(one_line(step.name), max(screen.columns - taken - 16, 20))
    screen.rule([(f"{step.step_index}", "title"), (f"  {name}", "bold")], right)


def call_heading(call: ModelCall, number: int, total: int) -> list[Piece]:
    """A line that begins one of several model calls of a step."""
    sign, style = mark(call.status)
    facts = [call.model and one_line(call.model), duration(call.duration_ms), tokens_text(call)]
    facts += [f"finished: {one_line(call.finish_reason)}"] if call.finish_reason else []
    text = " · ".join(fact for fact in facts if fact)
    return [(f"model call {number} of {total} ", "dim"), (f"{sign} ", style), (text, "dim")]


def print_picture(screen: Screen, history: TaskHistory, picture: Screenshot) -> None:
    """A picture: where its file is, what it is."""
    size = f"{picture.width}×{picture.height} " if picture.width and picture.height else ""
    facts = f"{size}{picture.media_type}, {format_size(picture.bytes)}"
    label = {"screenshot": "picture", "input": "shown", "output": "made"}.get(
        picture.role, "picture"
    )
    style = ""
    if picture.path is None:
        where, style = f"(no file: {picture.status})", "bad"
    else:
        where, there = picture_path(history, picture.path)
        if not there:
            where, style = f"{where} (the file is gone)", "bad"
        elif picture.status != "ok":
            facts += f", {picture.status}"
    caption = f' "{one_line(picture.caption)}"' if picture.caption else ""
    screen.whole(where, style, label=(label, "name"), room=ROOM)
    screen.block(f"{facts}{caption}", "dim", label=("", ""), room=ROOM)


def picture_path(history: TaskHistory, relative: str) -> tuple[str, bool]:
    """(absolute path of an artifact, whether it is there)."""
    try:
        path: Path = history.artifact(relative)
    except ValueError:  # not one of ours: a path that came with an imported span
        return relative, False
    return str(path), path.is_file()


def error_text(row: Task | Step) -> str:
    """Why a task or step failed, with the type of the error; empty when nobody said."""
    name = (row.error_type or "").rpartition(".")[2]
    if not row.error or not name or name in row.error:
        return row.error or row.error_type or ""
    return f"{name}: {row.error}"


def parallel_groups(tools: list[ToolCall]) -> list[list[ToolCall]]:
    """Tool calls in the order of their start, those that overlap in time together."""
    groups: list[list[ToolCall]] = []
    latest = ""
    for call in tools:
        if groups and call.started_at < latest:
            groups[-1].append(call)
        else:
            groups.append([call])
        latest = max(latest, call.ended_at or "9999")
    return groups


def span_of(group: list[ToolCall]) -> float | None:
    """How long a group of calls took from first start to last end, in ms."""
    starts = [parse_time(call.started_at) for call in group]
    ends = [parse_time(call.ended_at) for call in group if call.ended_at]
    if len(ends) < len(group) or None in starts or None in ends:
        return None
    return (max(filter(None, ends)) - min(filter(None, starts))).total_seconds() * 1000


def rest(left_out: int) -> str:
    """What is said at the end of a text that was shortened."""
    return f" … {count(left_out, 'more character')}" if left_out else ""
