# SPDX-License-Identifier: Apache-2.0
"""``export``: a task as a file that can be sent to somebody who has no history."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

import click

from otel_taskhistory.cli.export_many import MANY
from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.cli.output import to_json, to_json_line
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.pages.animation import animation
from otel_taskhistory.pages.data import step_facts, task_facts
from otel_taskhistory.pages.markdown import markdown
from otel_taskhistory.pages.single import single_page
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.text import count, one_line
from otel_taskhistory.units import format_size

Tell = Callable[[int], None]
"""Called with the number of each step that is done."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a format wrote, beside its bytes: lines to be told on standard error."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Attributes:
        about: for the help.
        write: writes a task; returns what there is to say about it.
        is_text: may go to standard output.
        shows_contents: nothing is left of it without contents.
    """

    about: str
    write: Callable[[WholeTask, BinaryIO, Tell], Written]
    is_text: bool = True
    shows_contents: bool = False


def _html(whole: WholeTask, file: BinaryIO, tell: Tell) -> Written:
    return _pieces(single_page(whole, tell), file)


def _markdown(whole: WholeTask, file: BinaryIO, tell: Tell) -> Written:
    return _pieces(markdown(whole, tell), file)


def _json(whole: WholeTask, file: BinaryIO, tell: Tell) -> Written:
    """One object; its steps are written as they are read, one a line."""
    head = task_facts(whole.history, whole.task_id, redact=whole.redact)
    opening = to_json({**head, "steps": []})
    file.write((opening[: opening.rindex("[]")] + "[").encode())
    separator = "\n"
    steps = step_facts(whole.history, whole.task_id, redact=whole.redact)
    for number, step in enumerate(steps, start=1):
        file.write(f"{separator}    {to_json_line(step)}".encode())
        separator = ",\n"
        tell(number)
    file.write(b"]\n}\n" if separator == "\n" else b"\n  ]\n}\n")
    once = "each message of its prompts is written once: docs/looking.md says how to read them"
    return Written((once,) if head["prompts"] == "once" and not whole.redact else ())


def _animated(kind: Literal["GIF", "WEBP"]) -> Callable[[WholeTask, BinaryIO, Tell], Written]:
    def write(whole: WholeTask, file: BinaryIO, tell: Tell) -> Written:
        made = animation(whole, kind, progress=tell)
        if made is None:
            raise TaskHistoryError(
                f"task {whole.task_id} has no screenshot that could be read: export it as .html"
            )
        file.write(made.data)
        notes = [f"{count(made.frames, 'picture')}, {format_size(len(made.data))}"]
        if made.left_out:
            total = made.frames + made.left_out + made.unreadable
            notes.append(
                f"{count(made.left_out)} of {count(total)} pictures were left out for size"
            )
        if made.unreadable:
            notes.append(f"{count(made.unreadable, 'picture')} could not be read")
        return Written(tuple(notes))

    return write


def _pieces(pieces: Iterable[str], file: BinaryIO) -> Written:
    file.writelines(piece.encode("utf-8", "backslashreplace") for piece in pieces)
    return Written()


FORMATS: Final[dict[str, Format]] = {
    "html": Format("one page with everything in it", _html),
    "md": Format("Markdown, for an issue", _markdown),
    "json": Format("all columns, nothing cut", _json),
    "gif": Format("the screenshots, animated", _animated("GIF"), False, True),
    "webp": Format("the same, smaller", _animated("WEBP"), False, True),
}
"""By suffix."""

_SAME: Final = {"htm": "html", "markdown": "md", "jsonl": "otlp-jsonl", "zip": "archive"}


@click.command("export")
@click.argument("tasks", metavar="TASK", nargs=-1)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    required=True,
    help="Where to; its suffix says as what. - is standard output, with --format.",
)
@click.option("--format", "form", type=click.Choice([*FORMATS, *MANY]), help="As what.")
@click.option("--all", "all_", is_flag=True, help="All tasks, for otlp-jsonl, archive and parquet.")
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out contents: goals, prompts, decisions, arguments, results, errors, pictures.",
)
@click.option("--prompts", is_flag=True, help="With each prompt as it was sent, for parquet.")
@click.option("--force", is_flag=True, help="Write over FILE if it is there.")
@history_options
def export_command(
    place: Place,
    tasks: tuple[str, ...],
    target: str,
    form: str | None,
    all_: bool,
    redact: bool,
    prompts: bool,
    force: bool,
) -> None:
    """Write TASK to FILE, to be looked at without a history: an id, its beginning, or "latest".

    .html is the task's page with its steps and pictures in one file that needs no server and no
    network; .md is Markdown; .json is every column; .gif and .webp are the screenshots as an
    animation.

    Any number of tasks, or --all, can be taken elsewhere: .jsonl is OpenTelemetry's OTLP/JSON,
    complete and for any receiver; .zip is an archive with the pictures; both can be imported.
    --format parquet writes a folder of tables for DuckDB and its like. Only you can read what is
    written.
    """
    name = _format_of(target, form)
    if all_ == bool(tasks):
        raise click.UsageError("name tasks, or say --all" if tasks else "which TASK? or --all")
    if prompts and not (name in MANY and MANY[name].with_prompts):
        raise click.UsageError("--prompts is for parquet: the other forms have them")
    if name in MANY:
        if redact:
            raise click.UsageError("--redact is for .html, .md and .json")
        with place.open() as history, Progress() as progress:
            named = dict.fromkeys(history.task(task).task_id for task in tasks)
            ids = None if all_ else list(named)
            write = (MANY[name].with_prompts if prompts else None) or MANY[name].write
            notes = write(history, ids, target, _into(target, force=force), progress)
        for note in notes:
            click.echo(one_line(note), err=True)
        return
    if len(tasks) != 1:
        raise click.UsageError("this kind of file holds one task: name only one")
    _export_one(place, tasks[0], target, FORMATS[name], redact=redact, force=force)


def _export_one(
    place: Place, name: str, target: str, chosen: Format, *, redact: bool, force: bool
) -> None:
    if redact and chosen.shows_contents:
        raise click.UsageError("without contents there are no pictures: use .html, .md or .json")
    if target == "-" and not chosen.is_text:
        raise click.UsageError("pictures do not go to standard output: use -o FILE")
    with place.open() as history, Progress() as progress:
        task = history.task(name)
        whole = WholeTask(history, task.task_id, redact)
        steps = count(task.step_count)

        def tell(number: int) -> None:
            progress.tell(f"step {count(number)} of {steps}", 0, 0)

        with _into(target, force=force)() as file:
            written = chosen.write(whole, file, tell)
    for note in written.notes:
        click.echo(one_line(note), err=True)


def _into(target: str, *, force: bool) -> Callable[[], AbstractContextManager[BinaryIO]]:
    """Opens where to write: a new file, or standard output."""
    return lambda: _standard_output() if target == "-" else _new_file(Path(target), force=force)


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _format_of(target: str, form: str | None) -> str:
    if form is not None:
        return form
    known = ", ".join(f".{name}" for name in (*FORMATS, "jsonl", "zip"))
    if target == "-":
        raise click.UsageError(f"-o - needs --format: one of {', '.join((*FORMATS, *MANY))}")
    suffix = Path(target).suffix.lower().removeprefix(".")
    suffix = _SAME.get(suffix, suffix)
    if suffix not in (*FORMATS, *MANY):
        raise click.UsageError(f"{target!r} does not say as what: use {known}, or --format")
    return suffix


@contextmanager
def _new_file(target: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that only its user can read, in its place once it is whole; else nothing is left."""
    if not force and os.path.lexists(target):
        raise TaskHistoryError(f"{target} is there already: --force writes over it")
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileNotFoundError:
        raise TaskHistoryError(f"there is no folder {target.parent}: make it first") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        _move(beside, target, force=force)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _move(beside: Path, target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise TaskHistoryError(f"{target} is a folder: name a file in it")
    if force:
        os.replace(beside, target)
        return
    try:
        os.link(beside, target)  # unlike a rename it never writes over what came meanwhile
    except FileExistsError:
        raise TaskHistoryError(f"{target} is there already: --force writes over it") from None
    except OSError:  # a file system without links
        os.rename(beside, target)
        return
    beside.unlink()
