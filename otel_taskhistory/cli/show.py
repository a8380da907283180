# SPDX-License-Identifier: Apache-2.0
"""``show``: one task, step by step; or one step, whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import click

from otel_taskhistory.cli.options import (
    Form,
    Place,
    form_options,
    history_options,
    page_options,
)
from otel_taskhistory.cli.output import write_json, write_json_object
from otel_taskhistory.cli.step_page import print_step
from otel_taskhistory.cli.task_page import print_task
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.errors import TaskNotFound
from otel_taskhistory.history import Page, Step, Task, TaskHistory

_STEPS_AT_ONCE: Final = 10
"""Steps read at a time for JSON: each has its whole prompt."""


@click.command("show")
@click.argument("task")
@click.option(
    "--step", "which", metavar="N", help="Only this step, whole: its number, or the id of its span."
)
@page_options(100)
@form_options(csv=False)
@history_options
@click.pass_context
def show_command(
    context: click.Context,
    place: Place,
    form: Form,
    task: str,
    which: str | None,
    limit: int,
    cursor: str | None,
) -> None:
    """Show TASK step by step: an id, the beginning of one, or "latest".

    Of each step: what was new in its prompt and what the agent took out of it, the decision, tool
    calls, results, pictures. Long texts are shortened, and it says so; --step N has all of them.
    """
    given = context.get_parameter_source("limit") is not click.core.ParameterSource.DEFAULT
    if which is not None and (given or cursor is not None):
        raise click.UsageError("--step shows one step: --limit and --cursor are for the list")
    with place.open() as history:
        found = history.task(task)
        if which is not None:
            steps = _wanted(history, found, which)
            if form == "json":
                documents = [_whole_step(history, step) for step in steps]
                write_json(documents[0] if len(documents) == 1 else documents)
                return
            for step in steps:
                print_step(Screen(), history, found, step)
        elif form == "json":
            most = limit if given else None
            rows = _json_steps(history, found, most, cursor)
            write_json_object(as_dict(found), "steps", rows)
        else:
            page = history.steps(
                found.task_id, limit=limit, cursor=cursor, without=("prompt", "decision")
            )
            print_task(Screen(), history, place, found, page, beginning=cursor is None)


def _wanted(history: TaskHistory, task: Task, which: str) -> list[Step]:
    if which.isascii() and which.isdecimal() and len(which) < 10:
        steps = history.steps_with_index(task.task_id, int(which))
        if steps:
            return steps
        if len(which) < 4:
            raise TaskNotFound(
                f"task {task.task_id} has no step {int(which)}: it has {task.step_count} steps"
            )
    return [history.step(which, task_id=task.task_id)]


def as_dict(row: Any) -> dict[str, Any]:
    """The columns of a row."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _json_steps(
    history: TaskHistory, task: Task, most: int | None, cursor: str | None
) -> Iterator[dict[str, Any]]:
    """Every step with its prompt, and what belongs to it."""
    while most is None or most > 0:
        at_once = _STEPS_AT_ONCE if most is None else min(most, _STEPS_AT_ONCE)
        page: Page[Step] = history.steps(task.task_id, limit=at_once, cursor=cursor)
        for step in page:
            yield {
                **as_dict(step),
                "tool_calls": list(map(as_dict, history.tool_calls(task.task_id, step.step_id))),
                "screenshots": list(map(as_dict, history.screenshots(task.task_id, step.step_id))),
            }
        most = None if most is None else most - len(page)
        cursor = page.next
        if cursor is None:
            return


def _whole_step(history: TaskHistory, step: Step) -> dict[str, Any]:
    return {
        **as_dict(step),
        "model_calls": list(map(as_dict, history.model_calls(step.task_id, step.step_id))),
        "tool_calls": list(map(as_dict, history.tool_calls(step.task_id, step.step_id))),
        "screenshots": list(map(as_dict, history.screenshots(step.task_id, step.step_id))),
    }
