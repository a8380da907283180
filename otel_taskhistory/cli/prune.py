# SPDX-License-Identifier: Apache-2.0
"""``prune``, ``pin`` and ``unpin``: what goes, and what stays whatever the limits say."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, Final

import click

from otel_taskhistory.cli.options import Form, ParamType, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.history import Pruned, TaskHistory
from otel_taskhistory.settings import (
    ENV_MAX_AGE,
    ENV_MAX_BYTES,
    ENV_MAX_TASKS,
    Retention,
    Settings,
)
from otel_taskhistory.store.pruning import NO_LIMITS
from otel_taskhistory.store.times import iso
from otel_taskhistory.text import clip, count, local_time, one_line
from otel_taskhistory.units import format_duration, format_size

_SHOWN: Final = 20
"""Tasks that are named before they go."""

_WHY: Final = {
    "max_age": "older than {age}",
    "max_tasks": "beyond the newest {tasks}",
    "max_bytes": "for a history within {bytes}",
}


class _Limit(ParamType):
    """A limit as the environment takes it; ``none`` lifts it.

    Args:
        name: of the argument of `Retention`.
        variable: of the environment, which is read in the same way.
    """

    def __init__(self, name: str, variable: str) -> None:
        self.name = name
        self._variable = variable

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """The limit as an argument of `Retention`.

        Raises:
            click.BadParameter: it makes no sense.
        """
        if isinstance(value, dict):
            return value
        option = f"--{self.name.replace('_', '-')}"
        if not value.strip():
            self.fail("is empty", param, ctx)
        try:
            # Any place will do: it is about the limit only.
            said = Settings.resolve(directory=".", environ={self._variable: value})
        except SettingsError as error:
            self.fail(str(error).replace(self._variable, option), param, ctx)
        return {self.name: getattr(said.retention, self.name)}


@click.command("prune")
@click.option(
    "--max-age",
    type=_Limit("max_age", ENV_MAX_AGE),
    metavar="AGE",
    help="Remove what is older: 30d, 12h.",
)
@click.option(
    "--max-tasks",
    type=_Limit("max_tasks", ENV_MAX_TASKS),
    metavar="N",
    help="Keep the newest N tasks.",
)
@click.option(
    "--max-bytes",
    type=_Limit("max_bytes", ENV_MAX_BYTES),
    metavar="SIZE",
    help="Keep the history below this size: 500MB, 2GiB.",
)
@click.option("--task", metavar="ID", help="Remove this task and no other.")
@click.option("--dry-run", is_flag=True, help="Say what would go; changes not a byte.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--purge",
    is_flag=True,
    help="Rewrite the database, so that nothing deleted can be found in the files.",
)
@form_options(csv=False)
@history_options
def prune_command(
    place: Place,
    form: Form,
    max_age: dict[str, Any] | None,
    max_tasks: dict[str, Any] | None,
    max_bytes: dict[str, Any] | None,
    task: str | None,
    dry_run: bool,
    yes: bool,
    purge: bool,
) -> None:
    """Remove tasks that are past the limits, whole and oldest first.

    Without limits on the command line, those of the environment count (as an agent applies them
    itself). A limit given here replaces that one only; "none" lifts it. Running and pinned tasks
    stay. Safe while agents write.
    """
    given = [limit for limit in (max_age, max_tasks, max_bytes) if limit is not None]
    if task is not None and given:
        raise click.UsageError("--task and limits exclude each other")
    if dry_run and purge:
        raise click.UsageError("--dry-run and --purge exclude each other")
    with place.open() as history:
        retention = history.settings.retention
        for limit in given:
            retention = replace(retention, **limit)
        if task is not None:
            _prune_task(history, task, form, dry_run=dry_run, yes=yes)
        else:
            _prune(history, retention, form, dry_run=dry_run, yes=yes)
        if purge and not history.purge():
            raise click.ClickException(
                "a program reads the history in a transaction that does not end: what was deleted"
                " is gone from the database, but not from its write-ahead log. Run this again when"
                " that program has ended"
            )


def _prune(
    history: TaskHistory, retention: Retention, form: Form, *, dry_run: bool, yes: bool
) -> None:
    plan = history.prune(retention, dry_run=True)
    if form == "text":
        _print_plan(history, plan, retention)
    if dry_run:
        if form == "json":
            write_json(_facts(plan, dry_run=True))
        return
    if plan.planned:
        _confirm(f"Remove {count(plan.tasks, 'task')}?", yes=yes, form=form)
    elif not yes:
        # Space is given back all the same; but a task that is past a limit a moment later is not
        # removed unasked.
        retention = NO_LIMITS
    with Progress() as progress:
        done = history.prune(
            retention,
            progress=lambda so_far: progress.tell(
                f"removed {count(so_far.tasks)} of {count(plan.tasks, 'task')}", 0, 0
            ),
        )
    if form == "text":
        _print_done(done)
    else:
        write_json(_facts(done, dry_run=False))


def _prune_task(history: TaskHistory, text: str, form: Form, *, dry_run: bool, yes: bool) -> None:
    task = history.task(text)
    what = f"{task.task_id} {clip(one_line(task.goal or ''), 60)}".rstrip()
    if dry_run:
        planned = {"dry_run": True, "task_id": task.task_id, "goal": task.goal}
        if form == "json":
            write_json(planned)
        else:
            Screen().line((f"would remove {what}", ""))
        return
    _confirm(f"Remove {what}?", yes=yes, form=form)
    done = history.remove(task.task_id)
    if form == "json":
        write_json({"task_id": task.task_id, **_facts(done, dry_run=False)})
    else:
        _print_done(done)


def _confirm(question: str, *, yes: bool, form: Form) -> None:
    if yes:
        return
    if form == "json" or not _is_interactive():
        raise click.UsageError("nobody is there to be asked: add --yes, or --dry-run to only look")
    click.confirm(question, abort=True)


def _is_interactive() -> bool:
    return sys.stdin.isatty()


def _facts(pruned: Pruned, *, dry_run: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dry_run": dry_run,
        "agent_tasks": pruned.agent_tasks,
        "other_tasks": pruned.other_tasks,
        "bytes": pruned.bytes,
        "too_large": pruned.too_large,
    }
    if not dry_run:
        return {**facts, "files": pruned.files, "blocked": pruned.blocked}
    tasks = [
        {
            "task_id": one.candidate.task_id,
            "kind": one.candidate.kind,
            "goal": one.candidate.goal,
            "last_commit_at": iso(one.candidate.committed_ns),
            "bytes": one.candidate.bytes,
            "reason": one.reason,
        }
        for one in pruned.planned
    ]
    return {**facts, "tasks": tasks}


def _print_plan(history: TaskHistory, plan: Pruned, retention: Retention) -> None:
    screen = Screen()
    if not plan.planned:
        screen.line((f"nothing is past the limits ({_limits(retention)})", ""))
    else:
        _print_planned(screen, history, plan, retention)
    if plan.too_large:
        screen.block(
            "what is left is larger than the limit, but runs or is pinned",
            label=("!", "busy"),
            room=2,
        )


def _print_planned(
    screen: Screen, history: TaskHistory, plan: Pruned, retention: Retention
) -> None:
    shown = plan.planned[:_SHOWN]
    short = history.short_ids([one.candidate.task_id for one in shown])
    screen.table(
        ("TASK", "LAST COMMIT", "SIZE", "WHY", "GOAL"),
        [
            (
                (short[one.candidate.task_id], "name"),
                (local_time(iso(one.candidate.committed_ns)), ""),
                (format_size(one.candidate.bytes), ""),
                (_why(one.reason, retention), "dim"),
                (one_line(one.candidate.goal or f"({one.candidate.kind})"), ""),
            )
            for one in shown
        ],
        {2},
    )
    if len(plan.planned) > len(shown):
        screen.line((f"… and {count(len(plan.planned) - len(shown), 'more task')}", "dim"))
    others = f", {count(plan.other_tasks)} of them without an agent" if plan.other_tasks else ""
    screen.line(
        (f"{count(plan.tasks, 'task')}{others}, about {format_size(plan.bytes)}", "bold"),
    )


def _why(reason: str, retention: Retention) -> str:
    return _WHY[reason].format(
        age=format_duration(retention.max_age) if retention.max_age else "",
        tasks=retention.max_tasks,
        bytes=format_size(retention.max_bytes) if retention.max_bytes else "",
    )


def _limits(retention: Retention) -> str:
    return ", ".join(
        [
            format_duration(retention.max_age) if retention.max_age else "any age",
            count(retention.max_tasks, "task") if retention.max_tasks else "any number of tasks",
            format_size(retention.max_bytes) if retention.max_bytes else "any size",
        ]
    )


def _print_done(done: Pruned) -> None:
    screen = Screen()
    if done.tasks or done.files or done.bytes:
        pictures = f" and {count(done.files, 'picture')}" if done.files else ""
        screen.line(
            (f"removed {count(done.tasks, 'task')}{pictures}, {format_size(done.bytes)}", "")
        )
    if done.blocked:
        screen.block(
            "a program reads the history in a transaction that does not end: the space comes back"
            " when that has ended",
            label=("!", "busy"),
            room=2,
        )


@click.command("pin")
@click.argument("task")
@history_options
def pin_command(place: Place, task: str) -> None:
    """Keep TASK whatever the limits say, until it is unpinned.

    TASK is an id, the beginning of one, or "latest".
    """
    with place.open() as history:
        _say_pinned(history.pin(task).task_id, "pinned")


@click.command("unpin")
@click.argument("task")
@history_options
def unpin_command(place: Place, task: str) -> None:
    """Let the limits apply to TASK again."""
    with place.open() as history:
        _say_pinned(history.unpin(task).task_id, "not pinned any more")


def _say_pinned(task_id: str, what: str) -> None:
    Screen().line((task_id, "name"), (f" is {what}", ""))
