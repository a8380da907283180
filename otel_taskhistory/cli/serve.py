# SPDX-License-Identifier: Apache-2.0
"""``serve``: look at the history in a browser."""

from __future__ import annotations

import importlib.util
import webbrowser
from collections.abc import Sequence

import click

from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.store.schema import SCHEMA_VERSION

TOKEN_VARIABLE = "OTEL_TASKHISTORY_SERVE_TOKEN"


@click.command("serve")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen. Elsewhere than on this machine a token is needed.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8001,
    show_default=True,
    metavar="N",
    help="0 takes any that is free.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open a browser.")
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    metavar="TEXT",
    help=f"What browsers must show once, also on this machine. Better given as {TOKEN_VARIABLE}:"
    " other users can see command lines.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name that this machine is called by. May be repeated.",
)
@history_options
def serve_command(
    place: Place,
    host: str,
    port: int,
    open_browser: bool,
    token: str | None,
    hosts: tuple[str, ...],
) -> None:
    """Show the history in a browser, with Datasette, while agents write to it.

    Nothing is written. The address is printed; Ctrl-C ends it.
    """
    if importlib.util.find_spec("datasette") is None:
        raise TaskHistoryError("serve needs Datasette: pip install 'otel-taskhistory[datasette]'")
    from otel_taskhistory.datasette_plugin import server

    with place.open() as history:
        settings, identity = history.settings, history.identity
    if identity.schema_version > SCHEMA_VERSION:
        click.echo(
            f"otel-taskhistory: a newer version has written this history (schema"
            f" {identity.schema_version}, this one knows {SCHEMA_VERSION}): what it has added is"
            " not shown",
            err=True,
        )
    where = server.Place(host, port, token, hosts)

    def ready(addresses: Sequence[str]) -> None:
        click.echo(
            f"the history of {identity.owner} at {settings.directory}; Ctrl-C ends it", err=True
        )
        for address in addresses:
            # A token that somebody has chosen is known to him, and stays out of logs.
            click.echo(address.partition("?")[0] if token else address)
        if token:
            click.echo("in the first address add ?token= and your token", err=True)
        if open_browser and not webbrowser.open(addresses[0]):
            click.echo("no browser could be opened: open the address yourself", err=True)

    server.serve(settings, where, ready)
