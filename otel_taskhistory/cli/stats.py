# SPDX-License-Identifier: Apache-2.0
"""``stats`` and ``path``: what a history holds, how much room it takes, where it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.summaries import (
    period_options,
    print_summaries,
    read_summaries,
    summaries_json,
)
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.settings import Retention
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.forwarding import Forward, Left, destinations
from otel_taskhistory.store.retention import others_of
from otel_taskhistory.store.times import iso
from otel_taskhistory.text import count, local_time
from otel_taskhistory.units import format_duration, format_size


@click.command("stats")
@period_options
@form_options(csv=False)
@history_options
def stats_command(place: Place, form: Form, since: datetime | None, until: datetime | None) -> None:
    """Say what the history holds, what agents, models and tools did, and how much room it takes.

    With --since and --until, what agents, models and tools did is of the tasks that began then.
    """
    with place.open() as history:
        facts = _facts(history)
        figures = read_summaries(history, since, until)
        if form == "json":
            write_json({**facts, "period": summaries_json(figures)})
        else:
            screen = Screen()
            _print(screen, facts, history.settings.retention)
            print_summaries(screen, history, figures)


def _facts(history: TaskHistory) -> dict[str, Any]:
    settings, identity = history.settings, history.identity
    artifacts = [info.st_size for _, info in ArtifactFolder(settings.artifacts).walk()]
    database = _size(settings.database)
    wal = _size(settings.database.with_name(f"{settings.database.name}-wal"))
    limits = settings.retention
    usage = history.usage()
    standing = asdict(history.standing())
    return {
        "directory": str(settings.directory),
        "database": str(settings.database),
        "artifacts": str(settings.artifacts),
        "owner": identity.owner,
        "history_id": identity.history_id,
        "service_name": identity.service_name,
        "created_at": identity.created_at,
        "schema_version": identity.schema_version,
        "sqlite_version": sqlite3.sqlite_version,
        **asdict(history.stats()),
        "database_bytes": database,
        "wal_bytes": wal,
        "artifact_bytes": sum(artifacts),
        "artifact_files": len(artifacts),
        "total_bytes": database + wal + sum(artifacts),
        "free_bytes": usage.free,
        **{f"limits_{name}": standing.pop(name) for name in ("agent_tasks", "other_tasks")},
        **standing,
        "forwards": [_forward(*found) for found in history.read(destinations)],
        "removals": [asdict(record) for record in history.retention_records(10)],
        "max_age_seconds": limits.max_age.total_seconds() if limits.max_age else None,
        "max_tasks": limits.max_tasks,
        "max_bytes": limits.max_bytes,
    }


def _forward(forward: Forward, left: Left) -> dict[str, Any]:
    """How far a destination has got."""
    hold = forward.hold_until_ns
    return {
        "endpoint": forward.endpoint,
        "policy": forward.policy,
        "sent": forward.sent,
        "left": left.spans,
        "left_traces": left.traces,
        "refused": forward.refused,
        "removed": forward.removed,
        "seen_at": iso(forward.seen_ns),
        "hold_until": None if hold is None else iso(hold),
    }


def _forwarded(forward: dict[str, Any]) -> str:
    left = count(forward["left"], "span") + " to be sent" if forward["left"] else "all sent"
    lost = [
        f"{count(forward[name])} {name}" + (" before they were sent" if name == "removed" else "")
        for name in ("refused", "removed")
        if forward[name]
    ]
    told = ", ".join([left, *lost, f"last run {local_time(forward['seen_at'])}"])
    return f"{forward['endpoint']} ({forward['policy']}): {told}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _print(screen: Screen, facts: dict[str, Any], limits: Retention) -> None:
    by_status: dict[str, int] = facts["tasks"]
    kinds = [f"{count(by_status[name])} {name}" for name in STATUSES if by_status.get(name)]
    total = sum(by_status.values())
    tokens = f"{count(facts['input_tokens'])} in · {count(facts['output_tokens'])} out"
    rows = {
        "history": facts["directory"],
        "owner": facts["owner"] + (f" · {facts['service_name']}" if facts["service_name"] else ""),
        "id": f"{facts['history_id']} · since {local_time(facts['created_at'])}",
        "tasks": f"{count(total)}" + (f" ({', '.join(kinds)})" if kinds else ""),
        "others": count(facts["other_tasks"], "trace") + " without agent or model"
        if facts["other_tasks"]
        else "",
        "first": local_time(facts["first_task_at"]),
        "last": local_time(facts["last_task_at"]),
        "steps": " · ".join(
            [
                count(facts["steps"]),
                count(facts["model_calls"], "model call"),
                count(facts["tool_calls"], "tool call"),
                count(facts["screenshots"], "picture"),
                count(facts["spans"], "span"),
            ]
        ),
        "tokens": tokens,
        "on disk": f"{format_size(facts['total_bytes'])}: database"
        f" {format_size(facts['database_bytes'])}, write-ahead log"
        f" {format_size(facts['wal_bytes'])}, {count(facts['artifact_files'], 'picture')}"
        f" {format_size(facts['artifact_bytes'])}",
        "limits": ", ".join(
            [
                format_duration(limits.max_age) if limits.max_age else "any age",
                count(limits.max_tasks, "task") if limits.max_tasks else "any number of tasks",
                format_size(limits.max_bytes) if limits.max_bytes else "any size",
            ]
        ),
        "used": _used(facts, limits),
        "removed": _removed(facts["removals"]),
        **{
            f"sent to {number}": _forwarded(forward)
            for number, forward in enumerate(facts["forwards"], start=1)
        },
        "late": count(facts["late_spans"], "span") + " came after their task was removed"
        if facts["late_spans"]
        else "",
        "rules": f"{count(facts['older_rules'], 'trace')} read by older rules:"
        " otel-taskhistory reproject reads them again"
        if facts["older_rules"]
        else "",
    }
    for label, text in rows.items():
        if text:
            screen.block(text, label=(label, "dim"), room=10)
    for trouble in _troubles(facts):
        screen.block(trouble, label=("!", "busy"), room=10)


def _used(facts: dict[str, Any], limits: Retention) -> str:
    """What there is that the limits are about, in the order of the limits."""
    stay = [f"{count(facts[name])} {name}" for name in ("running", "pinned") if facts[name]]
    others = count(facts["limits_other_tasks"], "trace")
    if limits.max_tasks:
        others += f" without agent (of {count(others_of(limits.max_tasks))})"
    free = f" ({format_size(facts['free_bytes'])} free beside it)" if facts["free_bytes"] else ""
    return ", ".join(
        [
            f"oldest {_ago(facts['oldest_at'])}" if facts["oldest_at"] else "nothing that may go",
            count(facts["limits_agent_tasks"], "task")
            + (f" (besides {' and '.join(stay)})" if stay else ""),
            *([others] if facts["limits_other_tasks"] else []),
            format_size(facts["content_bytes"]) + free,
        ]
    )


def _ago(at: str) -> str:
    """How long ago that was, in the largest unit."""
    passed = max(datetime.now(UTC) - datetime.fromisoformat(at), timedelta())
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if passed >= unit:
            return format_duration(passed // unit * unit)
    return format_duration(timedelta(seconds=passed // timedelta(seconds=1)))


def _troubles(facts: dict[str, Any]) -> Iterator[str]:
    """What is in the way of the limits."""
    if at := facts["blocked_at"]:
        yield (
            f"a program read in one transaction that did not end ({local_time(at)}): space is given"
            " back when it does"
        )
    if at := facts["too_large_at"]:
        yield f"all that may go is gone, and it is still too large ({local_time(at)})"
    if facts["undeletable"]:
        yield count(facts["undeletable"], "file") + " of removed tasks cannot be deleted: doctor"


def _removed(removals: list[dict[str, Any]]) -> str:
    """The last of what retention did."""
    last = next((one for one in removals if one["agent_tasks"] or one["other_tasks"]), None)
    if last is None:
        return ""
    tasks = count(last["agent_tasks"] + last["other_tasks"], "task")
    return (
        f"{tasks}, {format_size(max(last['bytes'], 0))} at {local_time(last['at'])}"
        f" ({last['reason']})"
    )


@click.command("path")
@click.option("--database", "what", flag_value="database", help="The SQLite file instead.")
@click.option("--artifacts", "what", flag_value="artifacts", help="The folder of pictures instead.")
@history_options
def path_command(place: Place, what: str | None) -> None:
    """Print where the history is, whether or not it exists: cd "$(otel-taskhistory path)"."""
    # As it is, not made printable: it is for programs.
    click.echo(str(getattr(place.settings(), what or "directory")))
