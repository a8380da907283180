# SPDX-License-Identifier: Apache-2.0
"""``backup``: a verified copy of a history in use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.store.backup import BackupReport
from otel_taskhistory.store.backup import backup as make_backup
from otel_taskhistory.text import count
from otel_taskhistory.units import format_size


@click.command()
@click.argument("target", metavar="DIRECTORY", type=click.Path(path_type=Path))
@form_options(csv=False)
@history_options
@click.pass_context
def backup(context: click.Context, place: Place, form: Form, target: Path) -> None:
    """Copy the history, in use or not, to DIRECTORY, and verify the copy.

    DIRECTORY must not exist yet, or be empty. It is then a history of its own, to be opened with
    --directory. Exit status 1 when pictures are missing; the rest is there.
    """
    with Progress() as progress:
        report = make_backup(place.settings(), target, progress.tell)
    if form == "json":
        write_json(_facts(report))
    else:
        _print(report)
    context.exit(0 if report.whole else 1)


def _facts(report: BackupReport) -> dict[str, Any]:
    return {**asdict(report), "directory": str(report.directory), "whole": report.whole}


def _print(report: BackupReport) -> None:
    screen = Screen()
    what = f"{count(report.tasks, 'task')} and {count(report.artifacts, 'picture')}"
    size = format_size(report.database_bytes + report.artifact_bytes)
    screen.whole(f"{what}, {size}: {report.directory}")
    if report.removed:
        screen.block(
            f"{count(len(report.removed), 'picture')} went with tasks that the history itself has"
            " removed while it was copied",
            "dim",
        )
    for problem in report.problems:
        screen.block(problem, label=("!", "busy"), room=2)
    if report.missing:
        screen.block(
            f"{count(len(report.missing), 'picture')} could not be copied:",
            label=("✗", "alarm"),
            room=2,
        )
        for picture in report.missing:
            screen.block(f"{picture.path}: {picture.why}", "dim", indent=2)
