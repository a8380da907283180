# SPDX-License-Identifier: Apache-2.0
"""``mcp``: lets other agents look up what was done, over the Model Context Protocol."""

from __future__ import annotations

import sys

import click

from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.text import one_line


@click.command("mcp")
@history_options
def mcp_command(place: Place) -> None:
    """Serve the history to agents: a read-only MCP server on standard input and output.

    An MCP client starts this command itself, with --directory or --owner as it is to be. Needs
    otel-taskhistory[mcp].
    """
    from otel_taskhistory.mcp import serve  # brings the SDK, which no other command needs

    if sys.stdin.isatty():
        click.echo(
            "This speaks the Model Context Protocol on standard input: it is for an MCP client to"
            f" start, as: {place.command('mcp')}\nEnd it with Ctrl-D.",
            err=True,
        )
    serve(place.directory, place.owner, tell=_tell)


def _tell(text: str) -> None:
    click.echo(f"otel-taskhistory: {one_line(text)}", err=True)
