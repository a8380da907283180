# SPDX-License-Identifier: Apache-2.0
"""``demo``: a real Host Agent carries out real goals, then its history is shown."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from otel_taskhistory.cli.options import Place, history_options, program
from otel_taskhistory.cli.task_page import print_task
from otel_taskhistory.cli.tasks import print_tasks
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.text import count

_TASKS_SHOWN = 20


@click.command("demo")
@history_options
def demo_command(place: Place) -> None:
    """Let a Host Agent carry out some goals on this machine, and show what was recorded.

    It works with a model that needs no key, or with the one behind OPENAI_BASE_URL. A second run
    adds to the history of the first.
    """
    from otel_taskhistory.demo import run_demo  # brings the SDK, which no other command needs

    directory = None if place.directory is None else Path(place.directory)
    ids = run_demo(directory, place.owner, out=sys.stdout)
    screen = Screen()
    with place.open() as history:
        _heading(screen, place.command("tasks"))
        page = history.tasks(limit=_TASKS_SHOWN)
        print_tasks(screen, history, page)
        if page.next:
            total = history.count_tasks()
            screen.line((f"showing {count(len(page))} of {count(total)}", "dim"))
        chosen = _most_telling(history, ids)
        short = history.short_ids([chosen])[chosen]
        _heading(screen, place.command("show", short))
        task = history.task(chosen)
        steps = history.steps(chosen, limit=100, without=("prompt", "decision"))
        print_task(screen, history, place, task, steps, beginning=True)
        _how_to_go_on(screen, history, place, short)


def _most_telling(history: TaskHistory, ids: list[str]) -> str:
    """A task that failed, as there a history is needed most; else the last one."""
    failed = [task_id for task_id in ids if history.task(task_id).status == "failed"]
    return failed[-1] if failed else ids[-1]


def _heading(screen: Screen, command: str) -> None:
    screen.line()
    screen.line(("$ ", "dim"), (command, "title"))
    screen.line()


def _how_to_go_on(screen: Screen, history: TaskHistory, place: Place, short: str) -> None:
    database = str(history.settings.database)
    columns = ["step_index", "name", "status", "tool_name", "duration_ms"]
    chosen = [part for column in columns for part in ("-c", column)]
    rows = [*program("sqlite-utils"), "rows", database, "steps", *chosen, "--limit", "8", "-t"]
    screen.line()
    screen.line(("The history is in ", ""), (str(history.settings.directory), "bold"))
    browse = place.command("serve", "--open")
    if find_spec("datasette") is None:
        install = [sys.executable, "-m", "pip", "install", "otel-taskhistory[datasette]"]
        browse = f"{shlex.join(install)} && {browse}"
    for what, command in (
        ("a whole step, every message of its prompt", place.command("show", short, "--step", "1")),
        ("the same with sqlite-utils", shlex.join(rows)),
        ("in a browser", browse),
    ):
        screen.line((f"{what}:", "dim"))
        screen.whole(f"  {command}")
