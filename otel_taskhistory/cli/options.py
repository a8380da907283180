# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.schema import SCHEMA_VERSION
from otel_taskhistory.units import parse_moment

F = TypeVar("F", bound=Callable[..., Any])
Form = Literal["text", "json", "csv"]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType
"""Base of our own types of options: click's, which is generic for type checkers only since 8.4."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which history a command is about, as given on the command line."""

    directory: str | None
    owner: str | None

    def open(self) -> TaskHistory:
        """The history, for reading; says so when a newer version has written it."""
        history = TaskHistory(self.directory, self.owner)
        if history.identity.schema_version > SCHEMA_VERSION:
            click.echo(
                "otel-taskhistory: a newer version wrote this history; what it added is not shown",
                err=True,
            )
        return history

    def settings(self) -> Settings:
        """Where it is, whether or not it exists."""
        return Settings.resolve(directory=self.directory, owner=self.owner)

    def command(self, *arguments: str) -> str:
        """A command line about the same history, to be pasted into a shell."""
        given = [] if self.directory is None else ["--directory", self.directory]
        given += [] if self.owner is None else ["--owner", self.owner]
        return shlex.join([*program("otel-taskhistory"), *arguments, *given])


def program(name: str) -> list[str]:
    """How to call a program of this Python environment: by its name where the shell finds it.

    Args:
        name: of the program, which is also that of a module of a package that is installed.
    """
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if found is not None and (not beside.exists() or os.path.samefile(found, beside)):
        return [name]
    if beside.exists():
        near = os.path.relpath(beside)
        return [near if len(near) < len(str(beside)) and not near.startswith("..") else str(beside)]
    return [sys.executable, "-m", name.replace("-", "_")]


def history_options(command: F) -> F:
    """``--directory`` and ``--owner``; the command gets them as `place`."""

    @click.option("--directory", metavar="PATH", help="The history; not its parent folder.")
    @click.option("--owner", metavar="NAME", help="Which component's history.")
    def with_place(*args: Any, directory: str | None, owner: str | None, **kwargs: Any) -> Any:
        return command(*args, place=Place(directory, owner), **kwargs)

    return _named(with_place, command)


def form_options(*, csv: bool) -> Callable[[F], F]:
    """``--json`` and, for lists, ``--csv``; the command gets them as `form`."""

    def decorate(command: F) -> F:
        @click.option("--json", "as_json", is_flag=True, help="One JSON document.")
        def with_form(*args: Any, as_json: bool, as_csv: bool = False, **kwargs: Any) -> Any:
            if as_json and as_csv:
                raise click.UsageError("--json and --csv exclude each other")
            form: Form = "json" if as_json else "csv" if as_csv else "text"
            return command(*args, form=form, **kwargs)

        decorated = _named(with_form, command)
        if csv:
            help_text = "CSV; cells that a spreadsheet would run as a formula begin with '."
            decorated = click.option("--csv", "as_csv", is_flag=True, help=help_text)(decorated)
        return decorated

    return decorate


def page_options(limit: int) -> Callable[[F], F]:
    """``--limit`` and ``--cursor``."""

    def decorate(command: F) -> F:
        command = click.option(
            "--cursor", metavar="CURSOR", help="Go on where the page before ended."
        )(command)
        return click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=limit,
            show_default=True,
            metavar="N",
            help="Rows per page.",
        )(command)

    return decorate


def _named(wrapper: Callable[..., Any], command: F) -> F:
    """`wrapper` in the place of `command`, with the options that were put on that before."""
    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    before = getattr(command, "__click_params__", [])
    wrapper.__click_params__ = [*before, *wrapper.__click_params__]  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


class When(ParamType):
    """A moment as `parse_moment` reads it; local unless it says a zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it.

        Raises:
            click.BadParameter: it is no moment.
        """
        if isinstance(value, datetime):
            return value
        try:
            return parse_moment(value)
        except SettingsError as error:
            self.fail(str(error), param, ctx)


def task_filters(command: F) -> F:
    """``--status``, ``--since``, ``--until``, ``--agent``, ``--kind`` and ``--all``."""
    for option in reversed(
        [
            click.option("--status", type=click.Choice(STATUSES), help="Only tasks in this state."),
            click.option(
                "--since",
                type=When(),
                metavar="WHEN",
                help="Begun then or later: a time (local unless it says a zone) such as 2026-11-30,"
                " today, yesterday, 10:00, '2026-11-30 14:00'; or 90m, 2h, 30d ago.",
            ),
            click.option("--until", type=When(), metavar="WHEN", help="Begun before that."),
            click.option("--agent", metavar="NAME", help="Only of this agent."),
            click.option(
                "--kind",
                type=click.Choice(["agent", "other"]),
                default="agent",
                show_default=True,
                help="What was traced: agents' tasks, or anything else (web requests, ...).",
            ),
            click.option("--all", "every_kind", is_flag=True, help="Of both kinds."),
        ]
    ):
        command = option(command)
    return command
