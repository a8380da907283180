# SPDX-License-Identifier: Apache-2.0
"""One history behind one address, until it is told to stop; the history is never written to."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Final

import uvicorn
from datasette.app import Datasette
from datasette.plugins import pm

from otel_taskhistory.datasette_plugin.database import HistoryDatabase
from otel_taskhistory.datasette_plugin.guard import PARAMETER, App, Guard
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings

DATABASE: Final = "history"
"""How Datasette calls the history: ``/history/tasks``."""

SHORTEST_TOKEN: Final = 16

_SETTINGS: Final = {
    "allow_download": False,  # of a history that is in use, the file alone is not all of it
    "default_cache_ttl": 0,
    "sql_time_limit_ms": 3000,
    # Each suggestion is a query for each column of each page; ours are there without.
    "suggest_facets": False,
}
_PATIENCE: Final = 3
"""Seconds that answers which are on their way get when the server is told to stop."""

_EVERYWHERE: Final = ("0.0.0.0", "::", "")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen, and to whom.

    Raises:
        TaskHistoryError: the token is too easy to guess.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    """0 takes any that is free."""
    token: str | None = field(default=None, repr=False)
    """What was given; see `wanted_token`."""
    hosts: tuple[str, ...] = ()
    """More names by which this machine is called."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise TaskHistoryError(
                f"a token of {len(self.token)} characters can be guessed: use {SHORTEST_TOKEN} or"
                " more, or none and a random one is made"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def wanted_token(self) -> str | None:
        """What requests must show: the given one; elsewhere than on loopback, else a random one."""
        if self.token is not None or self.is_loopback:
            return self.token
        return secrets.token_urlsafe(32)

    def names(self) -> list[str]:
        """The names by which one may call this server."""
        own = [] if self.is_loopback else [socket.gethostname()]
        return ["localhost", _in_url(self.host), *own, *self.hosts]


def listen(place: Place) -> socket.socket:
    """A socket that accepts connections from now on.

    Raises:
        TaskHistoryError: the port is taken, or the address is none of this machine.
    """
    try:
        found = socket.getaddrinfo(
            place.host or None, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        where = f"{_in_url(place.host)}:{place.port}"
        if error.errno == errno.EADDRINUSE:
            raise TaskHistoryError(
                f"port {place.port} is in use (another serve?): choose another with --port, or"
                " --port 0 for any that is free"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise TaskHistoryError(
                f"not allowed to listen at {where}: choose a --port from 1024 on"
            ) from error
        raise TaskHistoryError(
            f"cannot listen at {where} ({error.strerror}): --host must be an address of this"
            " machine"
        ) from error


def addresses(place: Place, port: int, token: str | None) -> list[str]:
    """The addresses to be opened in a browser, the one for this machine first."""
    query = f"?{PARAMETER}={token}" if token else ""
    if place.host in _EVERYWHERE:
        hosts = ["127.0.0.1", socket.gethostname()]
    else:
        hosts = [_in_url(place.host)]
    return [f"http://{host}:{port}/{query}" for host in hosts]


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
    ready: Callable[[Sequence[str]], None],
) -> None:
    """Serve a history until SIGINT or SIGTERM.

    Args:
        settings: where the history is; it may come, go, and be replaced meanwhile.
        place: where to listen.
        ready: called with the addresses when connections are accepted.

    Raises:
        TaskHistoryError: the port is taken, or the address is none of this machine.
    """
    with listen(place) as listening:
        asyncio.run(_serve(settings, place, listening, ready))


async def _serve(
    settings: Settings,
    place: Place,
    listening: socket.socket,
    ready: Callable[[Sequence[str]], None],
) -> None:
    port = listening.getsockname()[1]
    token = place.wanted_token()
    datasette = make_datasette(settings)
    try:
        await datasette.invoke_startup()
        server = uvicorn.Server(
            uvicorn.Config(
                guarded(datasette, place, port, token),
                access_log=False,  # it would hold tokens and what was searched for
                log_level="warning",
                lifespan="on",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_PATIENCE,
                ws="none",
            )
        )
        with _told_to_stop(server):
            ready(addresses(place, port, token))
            await server.serve(sockets=[listening])
    finally:
        _close(datasette)


def _close(datasette: Datasette) -> None:
    """Give back files and threads."""
    if hasattr(datasette, "close"):  # 1.0, which also has a database of its own in a temporary file
        datasette.close()
        return
    for database in list(datasette.databases.values()):
        database.close()
    datasette.executor.shutdown()


@contextmanager
def _told_to_stop(server: uvicorn.Server) -> Iterator[None]:
    """A signal ends the server, and nothing else: uvicorn sends it to itself again afterwards."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _register() -> None:
    """Make sure that Datasette knows the plugin, also where the package is not installed."""
    plugin: ModuleType = sys.modules["otel_taskhistory.datasette_plugin"]
    if not pm.is_registered(plugin):
        pm.register(plugin, name="taskhistory")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
