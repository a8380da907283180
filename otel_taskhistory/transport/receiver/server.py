# SPDX-License-Identifier: Apache-2.0
"""``receive``: one history behind one OTLP/HTTP endpoint, until it is told to stop."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.writer import Writer
from otel_taskhistory.transport.listening import Place, listen

if TYPE_CHECKING:
    from otel_taskhistory.transport.receiver.app import Endpoint
    from otel_taskhistory.transport.receiver.body import Limits
    from otel_taskhistory.transport.receiver.intake import Intake, Received, Rules

PORT: Final = 4318
"""Where senders of OTLP/HTTP send to unless they are told otherwise."""

PATIENCE: Final = 15
"""Seconds that requests get which have come when the server is told to stop: a commit may have to
wait for another program's lock."""

_NEEDED: Final = ("uvicorn", "starlette", "google.protobuf", "opentelemetry.proto")


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known when connections are accepted."""

    addresses: tuple[str, ...]
    token: str | None
    """What senders must show."""


def check_installed(command: str) -> None:
    """See to it that what is needed is there.

    Raises:
        TaskHistoryError: it is not; it says how to get it.
    """
    for name in _NEEDED:
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # the package that it would be in
            there = False
        if not there:
            raise TaskHistoryError(f"{command} needs {name}: pip install 'otel-taskhistory[otlp]'")


def receive(
    settings: Settings,
    place: Place,
    limits: Limits,
    rules: Rules,
    ready: Callable[[Ready], None],
) -> Received:
    """Receive into a history until SIGINT or SIGTERM; what was taken.

    Args:
        settings: where the history is; it is made if it is not there.
        place: where to listen.
        limits: what a sender may ask for.
        rules: who may write.
        ready: called when connections are accepted.

    Raises:
        TaskHistoryError: the history must not or cannot be used, the port is taken, or the address
            is none of this machine.
    """
    with (
        listen(place, "another receive, or an OpenTelemetry Collector") as listening,
        written(settings) as writer,
    ):
        return asyncio.run(_receive(writer, place, listening, limits, rules, ready))


@contextmanager
def written(settings: Settings) -> Iterator[Writer]:
    """A writer of the history, which closes it in the end.

    It says no ``service.name``: those who send have theirs, and it was decided, by starting the
    receiver on this history, that all of them may write it.

    Raises:
        TaskHistoryError: the history must not or cannot be used.
    """
    writer = Writer(settings)
    try:
        yield writer
    finally:
        writer.close()


@asynccontextmanager
async def intake_of(writer: Writer, limits: Limits, rules: Rules) -> AsyncIterator[Intake]:
    """What takes requests, as long as the event loop's task is in here."""
    from otel_taskhistory.transport.receiver.intake import Intake

    intake = Intake(writer, limits, rules)
    watching = asyncio.create_task(intake.watch_silence())
    try:
        yield intake
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        intake.close()


def endpoint_of(intake: Intake, place: Place, token: str | None) -> Endpoint:
    """The application that hands requests to `intake`."""
    from otel_taskhistory.transport.access import Names
    from otel_taskhistory.transport.receiver.app import Endpoint

    names = Names(place.names(), any_address=not place.is_loopback)
    return Endpoint(intake, names=names, token=token)


async def _receive(
    writer: Writer,
    place: Place,
    listening: socket.socket,
    limits: Limits,
    rules: Rules,
    ready: Callable[[Ready], None],
) -> Received:
    from otel_taskhistory.transport.patient import HEAD_SECONDS, serve_until_told

    port, token = listening.getsockname()[1], place.wanted_token()
    async with intake_of(writer, limits, rules) as intake:
        addresses = tuple(place.addresses(port))
        await serve_until_told(
            endpoint_of(intake, place, token),
            listening,
            ready=lambda: ready(Ready(addresses, token)),
            patience=PATIENCE,
            stopping=intake.stop,
            head_seconds=min(HEAD_SECONDS, limits.seconds),
        )
    return intake.received
