# SPDX-License-Identifier: Apache-2.0
"""``serve``: look at the history in a browser."""

from __future__ import annotations

import importlib.util
import webbrowser
from collections.abc import Sequence

import click

from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.cli.receive import (
    Given,
    refuse_sender_options,
    sender_options,
    tell_received,
    tell_senders,
)
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
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
@click.option(
    "--receive",
    is_flag=True,
    help="Let agents write into the history, too, as `receive` does: at /v1/traces and /v1/logs.",
)
@sender_options
@history_options
@click.pass_context
def serve_command(
    context: click.Context,
    place: Place,
    host: str,
    port: int,
    open_browser: bool,
    token: str | None,
    hosts: tuple[str, ...],
    receive: bool,
    given: Given,
) -> None:
    """Show the history in a browser, with Datasette, while agents write to it.

    Nothing is written, unless by agents that send to it (--receive). The address is printed; Ctrl-C
    ends it.
    """
    if not receive:
        refuse_sender_options(context)
    if importlib.util.find_spec("datasette") is None:
        raise TaskHistoryError("serve needs Datasette: pip install 'otel-taskhistory[datasette]'")
    from otel_taskhistory.datasette_plugin import server
    from otel_taskhistory.transport.receiver.server import check_installed

    senders = None
    if receive:
        check_installed("serve --receive")
        senders = server.Senders(given.limits(), given.rules())
        settings, owner = place.settings(), place.settings().owner
    else:
        settings, owner = _existing(place)
    where = server.Place(host, port, token, hosts)

    def ready(addresses: Sequence[str], needed: str | None) -> None:
        click.echo(f"the history of {owner} at {settings.directory}; Ctrl-C ends it", err=True)
        for address in addresses:
            # A token that somebody has chosen is known to him, and stays out of logs.
            click.echo(address.partition("?")[0] if token else address)
        if token:
            click.echo("in the first address add ?token= and your token", err=True)
        if receive:
            tell_senders(addresses[0].partition("/?")[0].rstrip("/"), needed, chosen=bool(token))
        if open_browser and not webbrowser.open(addresses[0]):
            click.echo("no browser could be opened: open the address yourself", err=True)

    received = server.serve(settings, where, ready, senders)
    if received is not None:
        tell_received(received)


def _existing(place: Place) -> tuple[Settings, str]:
    """Where the history is, and its owner; says so when it is a newer version's."""
    with place.open() as history:
        settings, identity = history.settings, history.identity
    if identity.schema_version > SCHEMA_VERSION:
        click.echo(
            f"otel-taskhistory: a newer version has written this history (schema"
            f" {identity.schema_version}, this one knows {SCHEMA_VERSION}): what it has added is"
            " not shown",
            err=True,
        )
    return settings, identity.owner
