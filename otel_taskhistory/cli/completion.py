# SPDX-License-Identifier: Apache-2.0
"""``completion``: the script that lets a shell complete commands, options and the ids of tasks.

Ids are looked up in the history that the line so far is about. That is a few index look-ups; where
there is no history, or none that can be read, nothing is offered and nothing is said.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.store.summaries import task_names
from otel_taskhistory.text import clip, one_line

PROGRAM: Final = "otel-taskhistory"
VARIABLE: Final = "_OTEL_TASKHISTORY_COMPLETE"
"""Where click looks for what a shell asks of a program of this name."""

SHELLS: Final = ("bash", "zsh", "fish")
OFFERED: Final = 50
"""Tasks at a time, the newest."""

_GOAL_COLUMNS: Final = 60
_ARGUMENTS: Final = ("task", "tasks", "task_id", "task_ids")
"""Names of parameters that take ids of tasks."""


_HOW: Final = """\b
bash, in ~/.bashrc:  eval "$(otel-taskhistory completion bash)"
zsh, in ~/.zshrc:    eval "$(otel-taskhistory completion zsh)"
fish, once:          otel-taskhistory completion fish > \\
                     ~/.config/fish/completions/otel-taskhistory.fish
"""


@click.command("completion", epilog=_HOW)
@click.argument("shell", type=click.Choice(SHELLS))
@history_options
def completion_command(place: Place, shell: str) -> None:
    """Print the script that completes this command in SHELL.

    Ids of tasks are completed too, with their goals where the shell shows such (zsh and fish): of
    the history that --directory and --owner on the line name, else of the default one.
    """
    root = click.get_current_context().find_root().command
    made_for = get_completion_class(shell)
    assert made_for is not None  # click knows all of SHELLS
    click.echo(made_for(root, {}, PROGRAM, VARIABLE).source(), nl=False)


class TaskId(click.types.StringParamType):
    """The id of a task as people type it: any text, completed with ids that there are."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Ids that begin with what was typed, the newest task first, and ``latest``."""
        place = Place(ctx.params.get("directory"), ctx.params.get("owner"))
        try:
            with place.open() as history:
                found = history.read(lambda c: task_names(c, incomplete.lower(), OFFERED))
                short = history.short_ids([task.task_id for task in found])
        except (TaskHistoryError, OSError, sqlite3.Error):
            return []  # a shell shows whatever is printed in the middle of the line being typed
        items = [
            CompletionItem(
                own
                if (own := short[task.task_id]).startswith(incomplete.lower())
                else task.task_id,
                help=clip(one_line(f"{task.status}: {task.goal or ''}"), _GOAL_COLUMNS),
            )
            for task in found
        ]
        if found and "latest".startswith(incomplete):
            items.insert(0, CompletionItem("latest", help="the newest task"))
        return items


TASK_ID: Final = TaskId()


def complete_ids(command: click.Command) -> None:
    """Let a command complete the parameters that take ids of tasks."""
    for parameter in command.params:
        if parameter.name in _ARGUMENTS and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = TASK_ID
