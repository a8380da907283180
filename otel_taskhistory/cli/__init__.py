# SPDX-License-Identifier: Apache-2.0
"""The command ``otel-taskhistory``: one module per group of commands.

Exit status: 0 done, 1 failed (one line on stderr says what and what to do), 2 wrong usage.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from otel_taskhistory._version import __version__
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.text import one_line, printable

__all__ = ["COMMANDS", "cli", "main"]

_INTERRUPTED = 130


COMMANDS: Final = {
    "tasks": "tasks:tasks_command",
    "show": "show:show_command",
    "search": "search:search_command",
    "watch": "watch:watch_command",
    "serve": "serve:serve_command",
    "export": "export:export_command",
    "stats": "stats:stats_command",
    "path": "stats:path_command",
    "backup": "backup:backup",
    "doctor": "doctor:doctor",
    "demo": "demo:demo_command",
    "prune": "prune:prune_command",
    "pin": "prune:pin_command",
    "unpin": "prune:unpin_command",
    "import": "import_:import_command",
    "reproject": "reproject:reproject_command",
    "forward": "forward:forward_command",
    "receive": "receive:receive_command",
    "completion": "completion:completion_command",
    "mcp": "mcp:mcp_command",
}
"""Each command, and where it is: only the one that is asked for is imported."""


class _Group(click.Group):
    """Turns every failure into one line and an exit status; imports a command when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            from otel_taskhistory.cli.completion import complete_ids

            module, _, name = COMMANDS[cmd_name].partition(":")
            command = getattr(import_module(f"{__name__}.{module}"), name)
            complete_ids(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a locale that lacks a character is no failure
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().main(args, prog_name, complete_var, False, **extra)
        except click.UsageError as error:
            _usage(error)
        except click.ClickException as error:
            _fail(error.format_message())
        except (click.Abort, KeyboardInterrupt):
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            # Who read the output has seen enough. Nothing is left to be flushed at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (TaskHistoryError, OSError, sqlite3.Error) as error:
            _fail(str(error), error)
        except Exception as error:  # a bug; users get a line, not our insides
            _fail(f"internal error ({type(error).__name__}: {error}); --debug shows more", error)
        sys.exit(status if isinstance(status, int) else 0)


def _usage(error: click.UsageError) -> NoReturn:
    if error.ctx is not None:
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"Try '{error.ctx.command_path} --help' for help.", err=True)
    click.echo(f"Error: {printable(error.format_message())}", err=True)
    sys.exit(2)


def _fail(message: str, error: Exception | None = None) -> NoReturn:
    if error is not None and _debug:
        raise error
    click.echo(f"otel-taskhistory: {one_line(message)}", err=True)
    sys.exit(1)


_debug = False


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    global _debug
    _debug = value


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="otel-taskhistory")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="On failure show the stack trace.",
)
def cli() -> None:
    """The history of a Host Agent's tasks, step by step."""


def main() -> None:
    """Run the command; the console script."""
    cli()
