# SPDX-License-Identifier: Apache-2.0
"""``receive``: let agents in any language write into the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import click
from click.core import ParameterSource

from otel_taskhistory.cli.options import ParamType, Place, history_options
from otel_taskhistory.text import count
from otel_taskhistory.units import format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from otel_taskhistory.transport.receiver.body import Limits
    from otel_taskhistory.transport.receiver.intake import Received, Rules
    from otel_taskhistory.transport.receiver.server import Ready

F = TypeVar("F", bound=Callable[..., Any])

TOKEN_VARIABLE: Final = "OTEL_TASKHISTORY_RECEIVE_TOKEN"

_BODY: Final = 32 * 2**20
_DECOMPRESSED: Final = 64 * 2**20
_SECONDS: Final = 20.0
_SILENT: Final = "1h"
_OF_SENDERS: Final = ("max_body", "max_decompressed", "timeout", "services", "silent_after")
_NEVER: Final = ("none", "never")


@dataclass(frozen=True, slots=True)
class Given:
    """What was said of senders on the command line."""

    body: int
    decompressed: int
    seconds: float
    services: tuple[str, ...]
    silent: float | None

    def limits(self) -> Limits:
        """What a sender may ask for."""
        from otel_taskhistory.transport.receiver.body import Limits

        return Limits(self.body, self.decompressed, self.seconds)

    def rules(self) -> Rules:
        """Who may write."""
        from otel_taskhistory.transport.receiver.intake import Rules

        return Rules(frozenset(self.services), self.silent)


class _Size(ParamType):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = (
            value
            if isinstance(value, int)
            else parse_size(value, name=param.opts[0] if param else None)
        )
        if size < 1:
            self.fail("that would let nothing in", param, ctx)
        return size


class _Silence(ParamType):
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not isinstance(value, str):
            return float(value)
        if value.lower() in _NEVER:
            return float("inf")
        return parse_duration(value, name=param.opts[0] if param else None).total_seconds()


def sender_options(command: F) -> F:
    """What senders may do; the command gets it as `given`."""

    @click.option(
        "--max-body",
        type=_Size(),
        default=_BODY,
        show_default=format_size(_BODY).replace(" ", ""),
        metavar="SIZE",
        help="How large a request may be as it is sent.",
    )
    @click.option(
        "--max-decompressed",
        type=_Size(),
        default=_DECOMPRESSED,
        show_default=format_size(_DECOMPRESSED).replace(" ", ""),
        metavar="SIZE",
        help="How much it may hold when it is decompressed.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(0.1, 3600),
        default=_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="How long a request may take to come; large ones get more.",
    )
    @click.option(
        "--service",
        "services",
        multiple=True,
        metavar="NAME",
        help="Take spans of this service.name only. May be repeated. By default those of all.",
    )
    @click.option(
        "--silent-after",
        type=_Silence(),
        default=_SILENT,
        show_default=True,
        metavar="DURATION",
        help="When nothing has come of an unfinished task for so long, it is interrupted; or none.",
    )
    def with_given(
        *args: Any,
        max_body: int,
        max_decompressed: int,
        timeout: float,
        services: tuple[str, ...],
        silent_after: float,
        **kwargs: Any,
    ) -> Any:
        silent = None if silent_after == float("inf") else silent_after
        given = Given(max_body, max_decompressed, timeout, services, silent)
        return command(*args, given=given, **kwargs)

    with_given.__name__ = command.__name__
    with_given.__doc__ = command.__doc__
    before = getattr(command, "__click_params__", [])
    with_given.__click_params__ = [*before, *with_given.__click_params__]  # type: ignore[attr-defined]
    return with_given  # type: ignore[return-value]


@click.command("receive")
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
    default=4318,
    show_default=True,
    metavar="N",
    help="0 takes any that is free.",
)
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    metavar="TEXT",
    help=f"What senders must show, also on this machine. Better given as {TOKEN_VARIABLE}:"
    " other users can see command lines.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name that this machine is called by. May be repeated.",
)
@sender_options
@history_options
def receive_command(
    place: Place,
    host: str,
    port: int,
    token: str | None,
    hosts: tuple[str, ...],
    given: Given,
) -> None:
    """Let agents in any language write into the history, by OTLP over HTTP.

    Takes spans at /v1/traces and log records of spans at /v1/logs, as protobuf or JSON, plain or
    compressed. What was answered with 200 is in the history. The address is printed; Ctrl-C ends
    it, after what has come is committed.
    """
    from otel_taskhistory.transport import listening
    from otel_taskhistory.transport.receiver import server

    server.check_installed("receive")
    settings = place.settings()
    where = listening.Place(host, port, token, hosts)

    def ready(found: Ready) -> None:
        click.echo(f"receiving into {settings.directory}; Ctrl-C ends it", err=True)
        for address in found.addresses:
            click.echo(address)
        tell_senders(found.addresses[0], found.token, chosen=token is not None)

    tell_received(server.receive(settings, where, given.limits(), given.rules(), ready))


def refuse_sender_options(context: click.Context) -> None:
    """Say so when an option is of no use, as nobody can send.

    Raises:
        click.UsageError: one was given.
    """
    for parameter in context.command.params:
        source = parameter.name and context.get_parameter_source(parameter.name)
        if parameter.name in _OF_SENDERS and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} needs --receive")


def tell_senders(address: str, token: str | None, *, chosen: bool) -> None:
    """Say what senders are to be told; a token that somebody has chosen stays out of logs."""
    click.echo(f"for senders: OTEL_EXPORTER_OTLP_ENDPOINT={address}", err=True)
    if token is not None:
        shown = "TOKEN" if chosen else quote(token, safe="")
        click.echo(
            f"             OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{shown}", err=True
        )


def tell_received(received: Received) -> None:
    """Say at the end what was taken."""
    what = count(received.records, "span or log record", "spans and log records")
    rejected = f", {count(received.rejected)} rejected" if received.rejected else ""
    click.echo(f"received {what} in {count(received.requests, 'request')}{rejected}", err=True)
