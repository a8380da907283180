# SPDX-License-Identifier: Apache-2.0
"""``watch``: what happens, one line an event, or the running tasks while they run."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import to_json_line
from otel_taskhistory.cli.tasks import lines_of_a_task, print_tasks
from otel_taskhistory.cli.terminal import MARKS, WHOLE_LINES, Piece, Screen
from otel_taskhistory.history import TaskHistory, TimelineRecord
from otel_taskhistory.store.watching import told_of
from otel_taskhistory.text import count, local_time, one_line, parse_time

_ENDED: Final = ("task.ended", "task.interrupted")
_TOLD: Final = 300
"""Characters of a goal or error on a line."""
_TOGETHER: Final = 0.1
"""Seconds between two frames at least."""
_HOME: Final = "\x1b[H\x1b[2J"


@click.command("watch")
@click.argument("task", required=False)
@click.option("--after", metavar="CURSOR", help="Go on after this record (its cursor, or number).")
@click.option("--new", is_flag=True, help="Only what comes from now on.")
@click.option("--running", is_flag=True, help="Show the running tasks instead, as they are now.")
@form_options(csv=False)
@history_options
def watch_command(
    place: Place, form: Form, task: str | None, after: str | None, new: bool, running: bool
) -> None:
    """Follow the timeline: what is there, then what comes, until interrupted.

    With TASK (an id, the beginning of one, or latest) only what happens to it, until it has ended.
    With --json one JSON document a line.
    """
    if running and (task or after or form != "text"):
        raise click.UsageError("--running goes with no other option")
    if new and after:
        raise click.UsageError("--new and --after exclude each other")
    with place.open() as history:
        if running:
            _watch_running(history)
            return
        after = history.timeline_end() if new else after
        # Ctrl-C is how one stops watching.
        with suppress(KeyboardInterrupt):
            _follow(history, task, after, form)


def _follow(history: TaskHistory, task: str | None, after: str | None, form: Form) -> None:
    task_id = history.task(task).task_id if task is not None else None
    printer = _Printer(history)
    watch = history.watch(after, task_id)
    while True:
        # A task that has ended may be resumed: over is what is over when nothing more is there.
        over = task_id is not None and printer.ended
        record = watch.wait(0 if over else 3600)
        if record is None:
            if over:
                return
            continue
        if form == "json":
            click.echo(to_json_line(_as_dict(record)))
            printer.ended = record.event in _ENDED
        else:
            printer.print(record)
        sys.stdout.flush()


class _Printer:
    """Prints records as lines, with a heading wherever another day or zone begins."""

    def __init__(self, history: TaskHistory) -> None:
        self.ended = False
        """Whether the last record said that a task has ended."""
        self._history = history
        # One line an event for other programs; on a terminal it is folded into its width.
        self._screen = Screen(piped=WHOLE_LINES)
        self._short: dict[str, str] = {}
        self._day = ("", "")

    def print(self, record: TimelineRecord) -> None:
        """Print one record."""
        self.ended = record.event in _ENDED
        day, clock, zone = _when(record.at)
        if day and (day, zone) != self._day:
            self._day = (day, zone)
            self._screen.line((f"{day} {zone}", "dim"))
        detail: dict[str, Any] = json.loads(record.detail)
        self._screen.line(
            (f"{record.seq:>6}  {clock:12}  ", "dim"),
            (f"{self._short_id(record.task_id):8}  ", "name"),
            (f"{record.event:20}  ", _style(record.event, detail)),
            (_said(record, detail), ""),
            *self._told(record, detail),
        )

    def _told(self, record: TimelineRecord, detail: dict[str, Any]) -> list[Piece]:
        """What was to be done, or what went wrong: the timeline itself holds no content."""
        failed = detail.get("status") == "failed"
        if record.event != "task.started" and not failed:
            return []
        told = self._history.read(lambda connection: told_of(connection, record))
        if not told:
            return []
        text = one_line(told)
        return [
            ("  ", ""),
            (
                f"{text[:_TOLD].rstrip()}…" if len(text) > _TOLD else text,
                "alarm" if failed else "bold",
            ),
        ]

    def _short_id(self, task_id: str | None) -> str:
        if task_id is None:
            return ""
        if task_id not in self._short:
            self._short[task_id] = self._history.short_ids([task_id]).get(task_id, task_id[:8])
        return self._short[task_id]


def _when(at: str) -> tuple[str, str, str]:
    """(day, time with milliseconds, zone), local."""
    moment = parse_time(at)
    if moment is None:
        return ("", "", "")
    day, _, rest = local_time(at).partition(" ")
    clock, _, zone = rest.partition(" ")
    return (day, f"{clock}.{moment.microsecond // 1000:03d}", zone)


def _style(event: str, detail: dict[str, Any]) -> str:
    if event in ("loss", "gap"):
        return "alarm"
    status = "interrupted" if event.endswith(".interrupted") else detail.get("status", "")
    return MARKS[status][1] if status in MARKS else ""


def _said(record: TimelineRecord, detail: dict[str, Any]) -> str:
    """The detail in words: ids, counts and sizes, never content."""
    if record.event == "gap" and detail["up_to"] <= detail["after"]:
        return f"{detail['reason']}; from its beginning:"
    if record.event == "gap":
        return f"records {detail['after'] + 1} to {detail['up_to']}: {detail['reason']}"
    shown = {key: value for key, value in detail.items() if key not in ("task_id", "span_id")}
    if record.step_id is not None:
        shown = {"step": record.step_id, **shown}
    return " ".join(
        f"{key}={value if isinstance(value, str | int | float) else json.dumps(value)}"
        for key, value in shown.items()
    )


def _as_dict(record: TimelineRecord) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "task_id": record.task_id,
        "step_id": record.step_id,
        "at": record.at,
        "event": record.event,
        "detail": json.loads(record.detail),
        "cursor": record.cursor,
    }


def _watch_running(history: TaskHistory) -> None:
    """Draw the running tasks, anew whenever something happens and each second."""
    screen = Screen()
    live = sys.stdout.isatty()
    watch = history.watch(history.timeline_end())
    with suppress(KeyboardInterrupt):
        while True:
            fit = max(screen.rows // lines_of_a_task(screen), 1)
            page = history.tasks(status="running", kind=None, limit=fit)
            total = history.count_tasks(status="running", kind=None)
            if live:
                click.echo(_HOME, nl=False)
            now = local_time(datetime.now(UTC).isoformat())
            screen.line((f"{count(total, 'task')} running", "bold"), (f" · {now}", "dim"))
            if page:
                print_tasks(screen, history, page)
            sys.stdout.flush()
            if not live:
                return
            watch.wait(1.0)
            time.sleep(_TOGETHER)  # events that come together are one frame
            while watch.wait(0) is not None:
                pass
