# SPDX-License-Identifier: Apache-2.0
"""A task on the screen, as somebody wants it who was woken by it: what failed comes first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from otel_taskhistory.cli.messages import (
    pictures_named,
)
from otel_taskhistory.cli.options import Place
from otel_taskhistory.cli.pieces import (
    LONG,
    MEDIUM,
    ROOM,
    error_text,
    rest,
    tokens_text,
)
from otel_taskhistory.cli.step_list import StepPrinter
from otel_taskhistory.cli.terminal import Screen, mark
from otel_taskhistory.history import (
    Page,
    Step,
    Task,
    TaskHistory,
)
from otel_taskhistory.text import (
    count,
    duration,
    local_time,
    milliseconds_since,
    one_line,
    shorten,
)

_FAILED_NAMED: Final = 3
"""Failed steps named at the top."""


def print_task(
    screen: Screen,
    history: TaskHistory,
    place: Place,
    task: Task,
    page: Page[Step],
    *,
    beginning: bool,
) -> None:
    """Print a task with one page of its steps.

    Args:
        beginning: it is the first page: the task itself is printed too.
    """
    short = history.short_ids([task.task_id])[task.task_id]
    if beginning:
        _print_head(screen, history, task)
    if page:
        StepPrinter(screen, history, place, task, short).print(page)
    total = task.step_count
    if page.next:
        following = place.command("show", short, "--cursor", page.next)
        screen.line()
        screen.line((f"showing {count(len(page))} of {count(total)} steps; next: ", ""))
        screen.whole(f"  {following}")


# --- the task -----------------------------------------------------------------------------------


def _print_head(screen: Screen, history: TaskHistory, task: Task) -> None:
    sign, style = mark(task.status)
    screen.block(
        task.goal or "(no goal)", "bold", label=(f"{sign} {task.status}", style), room=ROOM + 4
    )
    by_status, bad = history.step_outcomes(task.task_id)
    for step in bad[:_FAILED_NAMED]:
        _, step_style = mark(step.status)
        why = error_text(step) and f": {error_text(step)}"
        _print_short(screen, f"{step.status} at {_step_name(step)}{why}", MEDIUM, step_style)
    if len(bad) > _FAILED_NAMED:
        screen.line((f"… and {count(len(bad) - _FAILED_NAMED, 'more failed step')}", "bad"))
    if all(error_text(step) != error_text(task) for step in bad):
        _print_short(screen, error_text(task), LONG, "alarm")
    if task.result:
        text, left_out = shorten(pictures_named(task.result), *LONG)
        screen.block(text + rest(left_out), label=("result", "dim"), room=ROOM)
    screen.line()
    for label, text in _facts(task, by_status):
        screen.block(text, label=(label, "dim"), room=ROOM)
    if task.dropped:
        dropped = count(task.dropped, "attribute, event or link", "attributes, events or links")
        screen.block(
            f"the SDK's limits cut off {dropped}", "bad", label=("dropped", "bad"), room=ROOM
        )


def _facts(task: Task, by_status: dict[str, int]) -> Iterable[tuple[str, str]]:
    yield "task", task.task_id + (" · pinned" if task.pinned else "")
    yield from _said("agent", task.agent, task.model)
    took = task.duration_ms
    if task.ended_at and task.status == "interrupted":
        # Nobody knows when its process died: that was its last sign of life.
        when = f"{local_time(task.started_at)} → last seen {_end(task)} · after {duration(took)}"
    elif task.ended_at:
        when = f"{local_time(task.started_at)} → {_end(task)} · {duration(took)}"
    elif task.status == "running":
        since = milliseconds_since(task.started_at, datetime.now(UTC))
        when = f"{local_time(task.started_at)} · running for {duration(since)}"
    else:
        when = f"{local_time(task.started_at)} · no end is known"
    yield "when", when + (f" · attempt {task.attempt}" if task.attempt > 1 else "")
    yield from _said("tokens", tokens_text(task))
    kinds = [f"{number} {status}" for status, number in by_status.items()]
    steps = count(task.step_count) + (f" ({', '.join(kinds)})" if len(kinds) > 1 else "")
    yield "steps", steps
    yield from _said("in", task.conversation_id and f"conversation {task.conversation_id}")
    yield from _said("begun by", task.parent_task_id and f"task {task.parent_task_id}")
    yield from _said("key", task.key)


def _said(label: str, *texts: str | None) -> Iterable[tuple[str, str]]:
    given = [one_line(text) for text in texts if text]
    if given:
        yield label, " · ".join(given)


def _end(task: Task) -> str:
    started, ended = local_time(task.started_at), local_time(task.ended_at)
    same_day = started[:10] == ended[:10] and started[19:] == ended[19:]
    return ended[11:19] if same_day else ended


def _step_name(step: Step) -> str:
    name = one_line(step.name)
    named = name and name not in ("step", f"step {step.step_index}")
    return f"step {step.step_index} ({name})" if named else f"step {step.step_index}"


def _print_short(screen: Screen, text: str, limit: tuple[int, int], style: str) -> None:
    text, left_out = shorten(text, *limit)
    if text:
        screen.block(text + rest(left_out), style)
