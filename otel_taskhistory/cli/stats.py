# SPDX-License-Identifier: Apache-2.0
"""``stats`` and ``path``: what a history holds, how much room it takes, where it is."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.settings import Retention
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.text import count, local_time
from otel_taskhistory.units import format_duration, format_size


@click.command("stats")
@form_options(csv=False)
@history_options
def stats_command(place: Place, form: Form) -> None:
    """Say what the history holds and how much room it takes."""
    with place.open() as history:
        facts = _facts(history)
    if form == "json":
        write_json(facts)
    else:
        _print(facts, history.settings.retention)


def _facts(history: TaskHistory) -> dict[str, Any]:
    settings, identity = history.settings, history.identity
    artifacts = [info.st_size for _, info in ArtifactFolder(settings.artifacts).walk()]
    database = _size(settings.database)
    wal = _size(settings.database.with_name(f"{settings.database.name}-wal"))
    limits = settings.retention
    usage = history.usage()
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
        "content_bytes": usage.content,
        "free_bytes": usage.free,
        "late_spans": history.late_spans(),
        "removals": [asdict(record) for record in history.retention_records(10)],
        "max_age_seconds": limits.max_age.total_seconds() if limits.max_age else None,
        "max_tasks": limits.max_tasks,
        "max_bytes": limits.max_bytes,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _print(facts: dict[str, Any], limits: Retention) -> None:
    screen = Screen()
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
        "content": format_size(facts["content_bytes"])
        + (f" of {format_size(limits.max_bytes)}" if limits.max_bytes else "")
        + f", {format_size(facts['free_bytes'])} free within the database",
        "removed": _removed(facts["removals"]),
        "late": count(facts["late_spans"], "span") + " came after their task was removed"
        if facts["late_spans"]
        else "",
    }
    for label, text in rows.items():
        if text:
            screen.block(text, label=(label, "dim"), room=10)


def _removed(removals: list[dict[str, Any]]) -> str:
    """The last of what retention did."""
    if not removals:
        return ""
    last = removals[0]
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
