# SPDX-License-Identifier: Apache-2.0
"""The page of the command line: the help of each command, as it prints it."""

from __future__ import annotations

from typing import Final

import click

from otel_taskhistory.cli import COMMANDS, cli

_PROGRAM: Final = "otel-taskhistory"
_INTRODUCTION: Final = """\
`otel-taskhistory COMMAND --help` says what stands here. `python -m otel_taskhistory` is the same
program. Exit status: 0 done, 1 failed (one line on standard error says what, and what to do), 2
wrong usage.
"""

_WIDTH: Final = 100


def page() -> str:
    """Every command and its ``--help``."""
    parts = [
        "# Command line",
        _INTRODUCTION,
        f"```text\n{_help(cli, _PROGRAM)}\n```",
    ]
    with click.Context(cli, info_name=_PROGRAM) as context:
        for name in sorted(COMMANDS):
            command = cli.get_command(context, name)
            assert command is not None
            parts.append(f"## {name}\n\n```text\n{_help(command, f'{_PROGRAM} {name}')}\n```")
    return "\n\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command,
        info_name=name,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    with context:
        return command.get_help(context).rstrip()
