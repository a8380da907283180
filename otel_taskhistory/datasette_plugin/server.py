# SPDX-License-Identifier: Apache-2.0
"""One history behind one address, until it is told to stop.

The pages never write to it. With an endpoint for agents (``--receive``) this process has a writer
of the history as well, which only that endpoint leads to: everything else stays behind the `Guard`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final

from datasette.app import Datasette
from datasette.plugins import pm

from otel_taskhistory.datasette_plugin.database import HistoryDatabase
from otel_taskhistory.datasette_plugin.guard import PARAMETER, App, Guard, Receive, Scope, Send
from otel_taskhistory.settings import Settings
from otel_taskhistory.transport.listening import Place, listen
from otel_taskhistory.transport.patient import serve_until_told
from otel_taskhistory.transport.receiver.server import PATIENCE, endpoint_of, intake_of, written

if TYPE_CHECKING:
    from otel_taskhistory.store.writer import Writer
    from otel_taskhistory.transport.receiver.body import Limits
    from otel_taskhistory.transport.receiver.intake import Received, Rules

__all__ = ["Place", "Senders", "guarded", "make_datasette", "serve"]

DATABASE: Final = "history"
"""How Datasette calls the history: ``/history/tasks``."""

_SETTINGS: Final = {
    "allow_download": False,  # of a history that is in use, the file alone is not all of it
    "default_cache_ttl": 0,
    "sql_time_limit_ms": 3000,
    # Each suggestion is a query for each column of each page; ours are there without.
    "suggest_facets": False,
}
_PATIENCE: Final = 3
"""Seconds that answers which are on their way get when the server is told to stop."""


@dataclass(frozen=True, slots=True)
class Senders:
    """What agents may do that write into the history."""

    limits: Limits
    rules: Rules


def make_datasette(settings: Settings) -> Datasette:
    """A Datasette that has this history and nothing else."""
    _register()
    datasette = Datasette([], settings=_SETTINGS)
    datasette.add_database(HistoryDatabase(datasette, settings), name=DATABASE)
    datasette.remove_database("_memory")  # comes with having no files
    return datasette


def guarded(datasette: Datasette, place: Place, port: int, token: str | None) -> App:
    """Datasette's application behind the `Guard`."""
    return Guard(
        datasette.app(),
        names=place.names(),
        any_address=not place.is_loopback,
        token=token,
        # Cookies are shared by all ports of a host; each history has a port of its own.
        cookie=f"otel-taskhistory-{port}",
        start=str(datasette.urls.path("/-/taskhistory/")),
    )


def serve(
    settings: Settings,
    place: Place,
    ready: Callable[[Sequence[str], str | None], None],
    senders: Senders | None = None,
) -> Received | None:
    """Serve a history until SIGINT or SIGTERM; what was received, if that was wanted.

    Args:
        settings: where the history is; it may come, go, and be replaced meanwhile.
        place: where to listen.
        ready: called when connections are accepted with the addresses to be opened in a browser
            and the token that is needed.
        senders: agents may write into the history, which is made if it is not there.

    Raises:
        TaskHistoryError: the port is taken, or the address is none of this machine; with senders
            also: the history must not or cannot be used.
    """
    with ExitStack() as stack:
        listening = stack.enter_context(listen(place, "another serve"))
        if senders is None:
            asyncio.run(_serve(settings, place, listening, ready))
            return None
        writer = stack.enter_context(written(settings))
        return asyncio.run(_serve(settings, place, listening, ready, writer, senders))


async def _serve(
    settings: Settings,
    place: Place,
    listening: socket.socket,
    ready: Callable[[Sequence[str], str | None], None],
    writer: Writer | None = None,
    senders: Senders | None = None,
) -> Received | None:
    port = listening.getsockname()[1]
    token = place.wanted_token()
    datasette = make_datasette(settings)
    intake = None
    async with AsyncExitStack() as stack:
        stack.callback(_close, datasette)
        await datasette.invoke_startup()
        app = guarded(datasette, place, port, token)
        if writer is not None and senders is not None:
            intake = await stack.enter_async_context(
                intake_of(writer, senders.limits, senders.rules)
            )
            app = _beside(endpoint_of(intake, place, token), app)
        query = f"/?{PARAMETER}={token}" if token else "/"
        addresses = [f"{address}{query}" for address in place.addresses(port)]
        await serve_until_told(
            app,
            listening,
            ready=lambda: ready(addresses, token),
            patience=_PATIENCE if intake is None else PATIENCE,
            stopping=None if intake is None else intake.stop,
        )
    return None if intake is None else intake.received


def _beside(endpoint: App, pages: App) -> App:
    """The endpoint at its own paths, the pages at all others."""
    from otel_taskhistory.transport.receiver.app import PATHS

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent = scope["type"] == "http" and scope["path"] in PATHS
        await (endpoint if sent else pages)(scope, receive, send)

    return app


def _close(datasette: Datasette) -> None:
    """Give back files and threads."""
    if hasattr(datasette, "close"):  # 1.0, which also has a database of its own in a temporary file
        datasette.close()
        return
    for database in list(datasette.databases.values()):
        database.close()
    datasette.executor.shutdown()


def _register() -> None:
    """Make sure that Datasette knows the plugin, also where the package is not installed."""
    plugin: ModuleType = sys.modules["otel_taskhistory.datasette_plugin"]
    if not pm.is_registered(plugin):
        pm.register(plugin, name="taskhistory")
