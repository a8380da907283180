# SPDX-License-Identifier: Apache-2.0
"""``export`` of any number of tasks, to be taken elsewhere whole: OTLP, archives, Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import click

from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.text import count

Into = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens the file to write, or standard output."""

Write = Callable[[TaskHistory, Sequence[str] | None, str, Into, Progress], list[str]]


@dataclass(frozen=True, slots=True)
class Many:
    """A form that holds any number of tasks.

    Attributes:
        about: for the help.
        write: gets the history, whole ids or None for all, the target as it was given, how to open
            it as a file, and where to say how far it is; returns what there is to say in the end.
        with_prompts: the same with prompts, where that is not always so.
    """

    about: str
    write: Write
    with_prompts: Write | None = None


def _otlp(
    history: TaskHistory, ids: Sequence[str] | None, target: str, into: Into, progress: Progress
) -> list[str]:
    from otel_taskhistory.transport.otlp_lines import write_otlp_lines

    with into() as file:
        done = write_otlp_lines(history, ids, file, _tell(progress))
    said = [count(done.tasks, "task"), count(done.spans, "span"), count(done.logs, "log record")]
    notes = [", ".join(said)]
    if done.missing:
        notes.append(f"{count(done.missing, 'span')} with pictures whose files are not there")
    return notes


def _archive(
    history: TaskHistory, ids: Sequence[str] | None, target: str, into: Into, progress: Progress
) -> list[str]:
    from otel_taskhistory.transport.archive import write_archive

    with into() as file:
        return write_archive(history, ids, file, _tell(progress)).notes


def _parquet(
    history: TaskHistory,
    ids: Sequence[str] | None,
    target: str,
    into: Into,
    progress: Progress,
    *,
    prompts: bool = False,
) -> list[str]:
    from otel_taskhistory.transport.parquet import write_parquet

    if target == "-":
        raise click.UsageError("Parquet is a folder of files: use -o FOLDER")
    return write_parquet(history, ids, Path(target), _tell(progress), prompts=prompts).notes


def _tell(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: progress.tell("exporting", done, total, count)


MANY: Final[dict[str, Many]] = {
    "otlp-jsonl": Many("OTLP/JSON, an export request a line, for any receiver", _otlp),
    "archive": Many("a zip with everything, pictures too", _archive),
    "parquet": Many("a folder of tables", _parquet, partial(_parquet, prompts=True)),
}
"""By the name that --format takes."""
