# SPDX-License-Identifier: Apache-2.0
"""``tasks``: the list of tasks, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from datetime import UTC, datetime
from typing import Any, Final

import click

from otel_taskhistory.cli.options import (
    Form,
    Place,
    form_options,
    history_options,
    page_options,
    task_filters,
)
from otel_taskhistory.cli.output import write_csv, write_json
from otel_taskhistory.cli.terminal import NARROW, WHOLE_LINES, Piece, Screen, mark
from otel_taskhistory.history import Page, Task, TaskHistory
from otel_taskhistory.text import (
    clip,
    count,
    duration,
    local_time,
    milliseconds_since,
    one_line,
    parse_time,
    width,
    wrap,
    zone_name,
)

_GOAL_ROOM: Final = 24
"""Columns a goal should have before other columns are left out."""

_NARROW_GOAL: Final = 2
"""Lines of a goal where there is no room for columns."""

_LESS_IMPORTANT: Final = ("agent", "tokens", "steps", "duration", "started")
"""Columns in the order in which a narrow screen does without them."""


@click.command("tasks")
@task_filters
@page_options(50)
@form_options(csv=True)
@history_options
def tasks_command(
    place: Place,
    form: Form,
    limit: int,
    cursor: str | None,
    kind: str,
    every_kind: bool,
    **filters: Any,
) -> None:
    """List tasks, newest first."""
    filters["kind"] = None if every_kind else kind
    if filters["since"] and filters["until"] and filters["since"] >= filters["until"]:
        raise click.UsageError("--since is not before --until: there is no time between them")
    with place.open() as history:
        page = history.tasks(**filters, limit=limit, cursor=cursor)
        total = history.count_tasks(**filters) if page.next or cursor else len(page)
        if form == "json":
            write_json([_as_dict(task) for task in page])
        elif form == "csv":
            write_csv([field.name for field in fields(Task)], map(astuple, page))
        elif page:
            print_tasks(Screen(piped=WHOLE_LINES), history, page)
        else:
            click.echo(_nothing(history, filters, cursor))
        if page.next:
            click.echo(
                f"showing {count(len(page))} of {count(total)}; next page: --cursor {page.next}",
                err=form != "text",
            )


def print_tasks(screen: Screen, history: TaskHistory, page: Page[Task] | Sequence[Task]) -> None:
    """Print a table of tasks, as wide as the screen."""
    short = history.short_ids([task.task_id for task in page])
    now = datetime.now(UTC)
    zone = _zone(page[0].started_at)
    rows = [_row(task, short[task.task_id], zone, now) for task in page]
    if screen.columns < NARROW:
        for row in rows:
            _print_narrow(screen, row)
        return
    headers = {
        "id": "id",
        "status": "status",
        "started": f"started ({zone})",
        "duration": "took",
        "steps": "steps",
        "tokens": "tokens",
        "agent": "agent",
        "goal": "goal",
    }
    columns = [name for name in headers if any(row[name][0] for row in rows) or name == "goal"]
    for dispensable in _LESS_IMPORTANT:
        used = sum(
            2 + max(len(headers[name]), *(len(row[name][0]) for row in rows))
            for name in columns[:-1]
        )
        if screen.columns - used >= _GOAL_ROOM:
            break
        columns = [name for name in columns if name != dispensable]
    screen.table(
        [headers[name] for name in columns],
        [[row[name] for name in columns] for row in rows],
        right={columns.index(name) for name in ("duration", "steps", "tokens") if name in columns},
    )


def lines_of_a_task(screen: Screen) -> int:
    """How many lines `print_tasks` needs for a task on this screen, at most."""
    return 1 if screen.columns >= NARROW else 1 + _NARROW_GOAL


def _print_narrow(screen: Screen, row: dict[str, Piece]) -> None:
    """A task on a screen too narrow for columns: what it is called, what became of it, its goal."""
    mark, style = row["status"]
    name, how = row["id"]
    status = clip(mark, max(screen.columns - width(name) - 1, 1))
    screen.line((name, how), (" ", ""), (status, style))
    goal = wrap(row["goal"][0], screen.columns - 2)
    if len(goal) > _NARROW_GOAL:
        goal = [
            *goal[: _NARROW_GOAL - 1],
            clip(" ".join(goal[_NARROW_GOAL - 1 :]), screen.columns - 2),
        ]
    for line in goal:
        screen.line((line, ""), indent=2)


def _row(task: Task, short: str, zone: str, now: datetime) -> dict[str, Piece]:
    sign, style = mark(task.status)
    # A row from the other side of a change of the clocks says its own zone.
    started = local_time(task.started_at, zone=_zone(task.started_at) != zone)
    took = task.duration_ms
    if task.status == "running":
        took = milliseconds_since(task.started_at, now)
    tokens = [task.input_tokens, task.output_tokens]
    agent = one_line(task.agent or "")
    return {
        "id": (short, "name"),
        "status": (f"{sign} {task.status}", style),
        "started": (started, ""),
        "duration": (duration(took), ""),
        "steps": (count(task.step_count), ""),
        "tokens": (count(sum(n or 0 for n in tokens)) if any(tokens) else "", ""),
        "agent": (agent if len(agent) <= 20 else f"{agent[:19]}…", ""),
        "goal": (one_line(task.goal or ""), ""),
    }


def _zone(stored: str) -> str:
    moment = parse_time(stored)
    try:
        return "" if moment is None else zone_name(moment.astimezone())
    except (OverflowError, ValueError, OSError):
        return ""


def _as_dict(row: Task) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _nothing(history: TaskHistory, filters: dict[str, Any], cursor: str | None) -> str:
    """Why a list is empty."""
    if cursor:
        return "no more tasks"
    if not history.count_tasks(kind=None):
        return f"no task is recorded yet in {history.settings.directory}"
    of_any_kind = history.count_tasks(**{**filters, "kind": None}) if filters["kind"] else 0
    others = f"; {count(of_any_kind, 'trace')} of the other kind: --all" if of_any_kind else ""
    asked = any(value is not None for name, value in filters.items() if name != "kind")
    return ("no task matches" if asked else "no task of this kind") + others
