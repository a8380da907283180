# SPDX-License-Identifier: Apache-2.0
"""A place to listen, for ``serve`` and ``receive``: the socket, its names, its token, its end."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Final

from otel_taskhistory.errors import TaskHistoryError

if TYPE_CHECKING:
    import uvicorn

SHORTEST_TOKEN: Final = 16

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
        return ["localhost", in_url(self.host), *own, *self.hosts]

    def addresses(self, port: int) -> list[str]:
        """``http://HOST:PORT`` for each way to reach it, the one for this machine first."""
        if self.host in _EVERYWHERE:
            hosts = ["127.0.0.1", socket.gethostname()]
        else:
            hosts = [in_url(self.host)]
        return [f"http://{host}:{port}" for host in hosts]


def listen(place: Place, perhaps: str) -> socket.socket:
    """A socket that accepts connections from now on.

    Args:
        place: where.
        perhaps: who may have the port already.

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
        where = f"{in_url(place.host)}:{place.port}"
        if error.errno == errno.EADDRINUSE:
            raise TaskHistoryError(
                f"port {place.port} is in use ({perhaps}?): choose another with --port, or"
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


@contextmanager
def told_to_stop(server: uvicorn.Server) -> Iterator[None]:
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


def in_url(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host
