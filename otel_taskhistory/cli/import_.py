# SPDX-License-Identifier: Apache-2.0
"""``import``: recorded telemetry, to be looked at like a history that was written live."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.text import count, one_line

if TYPE_CHECKING:
    from otel_taskhistory.store.importing import Imported, Importer

_STDIN: Final = "-"


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--as-new", is_flag=True, help="Give the tasks of archives new ids, beside the originals."
)
@form_options(csv=False)
@history_options
@click.pass_context
def import_command(
    context: click.Context, place: Place, form: Form, files: Sequence[str], as_new: bool
) -> None:
    """Put recorded telemetry into the history.

    FILE holds spans or log records as OTLP: JSON, an export request a line or one document over
    many lines, or protobuf; as the OpenTelemetry Collector and `export` write them; plain or
    compressed with gzip or zstd. Or it is an archive that `export` has written. "-" is standard
    input. Files may come in any order and again: what is there already stays as it is. What was
    left unfinished in a recording is interrupted.

    Exit status 1 when a line, a span or a log record could not be kept; the rest is in then.
    """
    # Only who writes needs sqlite-utils.
    from otel_taskhistory.store.importing import Importer
    from otel_taskhistory.store.writer import Writer

    for name in files:
        if name != _STDIN and (not Path(name).exists() or Path(name).is_dir()):
            raise TaskHistoryError(f"there is no file {name}")
    writer = Writer(place.settings())
    importer = Importer(writer)
    began = datetime.now(UTC)
    try:
        with Progress() as progress:
            reading = _Reading(importer, progress, files)
            for name in files:
                reading.file(name, as_new=as_new)
            done = importer.finish()
    finally:
        importer.close()
    if form == "json":
        write_json({**asdict(done), "passed_over": dict(done.passed_over)})
    else:
        _print(done)
        _tell_of_limits(place, began)
    context.exit(0 if done.whole else 1)


class _Reading:
    """Reads file by file, says how far it is, and what cannot be kept."""

    def __init__(self, importer: Importer, progress: Progress, files: Sequence[str]) -> None:
        self._importer = importer
        self._progress = progress
        known = all(name != _STDIN and Path(name).is_file() for name in files)
        self._total = sum(Path(name).stat().st_size for name in files) if known else 0
        self._before = 0

    def file(self, name: str, *, as_new: bool = False) -> None:
        from otel_taskhistory.spans.otlp_file import read_file
        from otel_taskhistory.transport.archive_read import import_archive, is_archive

        with _opened(name) as file:
            if is_archive(file):
                tell = partial(self._progress.tell, "importing", shown=count)
                self._importer.finish()  # a conflict may be with what the files before had
                try:
                    found = import_archive(file, self._importer, as_new=as_new, tell=tell)
                except TaskHistoryError as error:
                    raise TaskHistoryError(f"{name}: {error}") from error
                was_there = f", {count(found.known)} of them the same before" if found.known else ""
                click.echo(
                    f"{name}: {count(found.tasks, 'task')}{was_there},"
                    f" {count(found.pictures, 'picture')}",
                    err=True,
                )
                return
            if as_new:
                raise TaskHistoryError(f"{name} is no archive: --as-new is for archives")
            for placed in read_file(file):
                why = self._importer.take(placed.item)
                if why is not None:
                    _complain(f"{name}:{placed.line}: {why}")
                if self._total:
                    self._progress.tell("importing", self._before + file.tell(), self._total)
                else:
                    self._progress.tell("importing", 0, 0)
            self._before += file.tell() if self._total else 0


def _complain(text: str) -> None:
    line = one_line(text)
    # Over the line that says how far it is.
    click.echo(f"\r{line:<60}" if sys.stderr.isatty() else line, err=True)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == _STDIN:
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file


def _tell_of_limits(place: Place, began: datetime) -> None:
    """Say how many tasks the history's limits have removed meanwhile."""
    with place.open() as history:
        records = history.retention_records(limit=1_000)
    gone = sum(
        record.agent_tasks + record.other_tasks
        for record in records
        if datetime.fromisoformat(record.at) >= began
    )
    if gone:
        Screen().block(
            f"{count(gone, 'task')} past the limits of this history went, the oldest first: see"
            " `otel-taskhistory stats`, and set OTEL_TASKHISTORY_MAX_TASKS or the like for more",
            label=("!", "busy"),
            room=2,
        )


def _print(done: Imported) -> None:
    screen = Screen()
    what = f"{count(done.spans, 'span')} and {count(done.logs, 'log record')}"
    screen.line((f"imported {what}", ""))
    for name, number in sorted(done.passed_over.items()):
        screen.block(f"{count(number)} × {name}: passed over, not part of any span", "dim")
    if done.late:
        screen.block(
            f"{count(done.late)} of them belong to tasks that were removed not long ago, and were"
            " dropped",
            label=("!", "busy"),
            room=2,
        )
    if done.rejected:
        screen.block(f"{count(done.rejected)} could not be kept", label=("✗", "alarm"), room=2)
