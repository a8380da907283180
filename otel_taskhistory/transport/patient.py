# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP/1.1 for clients that are slow on purpose: heads take seconds, connections end.

uvicorn waits for the head of a request as long as it takes, and for as many clients as there are
file descriptors. (How long a body may take is for the application to say.)
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from otel_taskhistory.transport.listening import told_to_stop

HEAD_SECONDS: Final = 10.0
"""How long the head of a request may take, from the connection or the first byte of it."""

MOST_CONNECTIONS: Final = 256
"""Those beyond are closed at once; senders try again."""


class PatientProtocol(H11Protocol):
    """One connection."""

    head_seconds: float = HEAD_SECONDS
    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request have come."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_head()
        elif not self._is_between_requests():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone, or was sent away."""
        self._forget_head()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        """Whether nothing of the next request is there; uvicorn ends such connections itself."""
        return self.timeout_keep_alive_task is not None

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.head_seconds, self._too_slow)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        self._head = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.abort()


class _Server(uvicorn.Server):
    """A server that says when it begins to stop."""

    stopping: Callable[[], None] | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, letting requests finish."""
        if self.stopping is not None:
            self.stopping()
        await super().shutdown(sockets)


async def serve_until_told(
    app: Any,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    patience: int,
    stopping: Callable[[], None] | None = None,
    head_seconds: float = HEAD_SECONDS,
) -> None:
    """Serve an ASGI application until SIGINT or SIGTERM.

    Nothing is logged of requests: they hold tokens, and what was searched for.

    Args:
        app: the application.
        listening: a socket that accepts connections.
        ready: called when it is about to be served.
        patience: seconds that requests which have come get then.
        stopping: called when it was told to stop, before that.
        head_seconds: how long the head of a request may take.
    """
    protocol = type("Protocol", (PatientProtocol,), {"head_seconds": head_seconds})
    server = _Server(
        uvicorn.Config(
            app,
            http=protocol,
            access_log=False,
            lifespan="on",
            log_level="error",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=patience,
            ws="none",
        )
    )
    server.stopping = stopping
    with told_to_stop(server):
        ready()
        await server.serve(sockets=[listening])
