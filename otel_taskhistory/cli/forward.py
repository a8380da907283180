# SPDX-License-Identifier: Apache-2.0
"""``forward``: what was recorded goes on to where traces are collected, through a policy."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from otel_taskhistory.cli.options import Place, history_options
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.errors import SettingsError, TaskHistoryError
from otel_taskhistory.text import count, one_line

if TYPE_CHECKING:
    from otel_taskhistory.redaction import Policy, PolicyName
    from otel_taskhistory.store.forwarding import Destination
    from otel_taskhistory.transport.forwarder.endpoint import Compression, Endpoint
    from otel_taskhistory.transport.forwarder.forwarder import Forwarder

POLICIES: Final = ("ids_only", "no_images", "scrub", "everything")


@click.command("forward")
@click.option(
    "--endpoint",
    metavar="URL",
    help="Where OTLP/HTTP is spoken; /v1/traces is added. By default OTEL_EXPORTER_OTLP_ENDPOINT.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="To be sent with each request. May be repeated. Secret ones are better given in"
    " OTEL_EXPORTER_OTLP_HEADERS: other users can see command lines.",
)
@click.option(
    "--compression",
    type=click.Choice(["gzip", "none"]),
    help="Of what is sent; by default OTEL_EXPORTER_OTLP_COMPRESSION, else gzip.",
)
@click.option(
    "--ca-file",
    metavar="FILE",
    help="Certificates to trust instead of the usual ones; by default"
    " OTEL_EXPORTER_OTLP_CERTIFICATE.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the endpoint may say nothing.",
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="ids_only",
    show_default=True,
    help="What may leave: identifiers, structure, times and sizes; also content but for pictures;"
    " content with secrets masked; all of it.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="TEXT",
    help="Something to be masked wherever it stands. May be repeated.",
)
@click.option(
    "--secrets-file",
    metavar="FILE",
    help="Likewise, one a line.",
)
@click.option(
    "--retry-for",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an endpoint that is away is waited for, from the last success on.",
)
@click.option("--follow", is_flag=True, help="Go on with what comes, and wait as long as it takes.")
@click.option(
    "--hold",
    is_flag=True,
    help="Let retention wait for what is not sent yet, within bounds: up to twice the age and four"
    " times the number, never more room.",
)
@click.option("--again", is_flag=True, help="Send all that is there once more.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would leave, as OTLP/JSON, a request a line; send and change nothing.",
)
@history_options
@click.pass_context
def forward_command(
    context: click.Context,
    place: Place,
    endpoint: str | None,
    headers: Sequence[str],
    compression: Compression | None,
    ca_file: str | None,
    timeout: float,
    policy: PolicyName,
    secrets: Sequence[str],
    secrets_file: str | None,
    retry_for: float,
    follow: bool,
    hold: bool,
    again: bool,
    dry_run: bool,
) -> None:
    """Send what was recorded since the last time to an OpenTelemetry endpoint, through a policy.

    Spans go when they have ended, in the order in which they were committed, and count as sent when
    the endpoint has said so: an interruption at any moment loses nothing, and repeats at most the
    request that was on its way. How far an endpoint has got, by each policy, is kept in the
    history.

    Exit status 1 when something is still to be sent, or was refused by the endpoint.
    """
    # Imported here: none of the other commands needs it.
    from otel_taskhistory.redaction import policy_named
    from otel_taskhistory.store.forwarding import Destination
    from otel_taskhistory.transport.forwarder.endpoint import resolve

    if dry_run and (follow or hold):
        raise click.UsageError("--dry-run goes neither with --follow nor with --hold")
    to = resolve(endpoint, headers, compression=compression, ca_file=ca_file)
    what = policy_named(policy, secrets=[*secrets, *_secrets_of(secrets_file)])
    destination = Destination(to.name, policy)
    if dry_run:
        _print_what_would_leave(place, destination, what, again)
        return
    patience = None if follow else retry_for
    whole = _forward(place, to, destination, what, timeout, patience, hold=hold, again=again)
    context.exit(0 if whole else 1)


def _forward(
    place: Place,
    to: Endpoint,
    destination: Destination,
    policy: Policy,
    timeout: float,
    patience: float | None,
    *,
    hold: bool,
    again: bool,
) -> bool:
    """Send; whether the endpoint wanted all of it."""
    from otel_taskhistory.store.forward_place import ForwardPlace
    from otel_taskhistory.transport.forwarder.forwarder import Forwarder, Voice
    from otel_taskhistory.transport.forwarder.posting import Poster
    from otel_taskhistory.transport.forwarder.sending import Stop, Told

    settings = place.settings()
    follow = patience is None
    with (
        closing(Poster(to, timeout)) as poster,
        closing(ForwardPlace(settings, destination, hold=hold, again=again)) as here,
        _until_told() as told,
        Progress() as progress,
    ):
        total = 0

        def show(done: int) -> None:
            if not follow:
                progress.tell(f"forwarded {done} of {total} spans", 0, 0)

        forwarder = Forwarder(
            here,
            settings.database,
            poster.post,
            policy,
            Voice(problem=lambda why: _say(to, why), progress=show),
            patience=patience,
            pause=told.wait,
        )
        if sys.stderr.isatty() and not follow:  # counting takes a moment
            total = forwarder.left().spans
        try:
            if follow:
                click.echo(
                    f"forwarding to {to.name} ({destination.policy}); Ctrl-C ends it", err=True
                )
                forwarder.follow()
            else:
                forwarder.once()
        except Stop as error:
            raise _failure(to, forwarder, str(error)) from None
        except Told:
            raise _failure(to, forwarder, "it was told to stop") from None
    _tell(to, destination, forwarder)
    return not forwarder.refused


def _failure(to: Endpoint, forwarder: Forwarder, why: str) -> TaskHistoryError:
    left = forwarder.left()
    spans, traces = count(left.spans, "span"), count(left.traces, "trace")
    sent = f"; {count(forwarder.sent, 'span')} went through before" if forwarder.sent else ""
    return TaskHistoryError(
        f"forwarding to {to.name} ended: {why}; {spans} of {traces} wait to be sent{sent}"
    )


def _tell(to: Endpoint, destination: Destination, forwarder: Forwarder) -> None:
    said = f"sent {count(forwarder.sent, 'span')} to {to.name} ({destination.policy})"
    if forwarder.withheld:
        said += f", {count(forwarder.withheld)} withheld by the policy"
    if forwarder.refused:
        said += f", {count(forwarder.refused)} refused"
    click.echo(said)


def _say(to: Endpoint, why: str) -> None:
    click.echo(f"otel-taskhistory: {to.name}: {one_line(why)}", err=True)


def _print_what_would_leave(
    place: Place, destination: Destination, policy: Policy, again: bool
) -> None:
    from otel_taskhistory.spans.otlp_write import to_line
    from otel_taskhistory.transport.forwarder.forwarder import what_would_leave
    from otel_taskhistory.transport.forwarder.outbound import document

    spans = withheld = 0
    for loaded in what_would_leave(place.settings(), destination, policy, again=again):
        if loaded.spans:
            click.echo(to_line(document(loaded.spans)), nl=False)
        spans += len(loaded.spans)
        withheld += loaded.withheld
        for which, why in loaded.failed:
            click.echo(f"{which} would be left out: {why}", err=True)
    also = f", {count(withheld)} withheld by the policy" if withheld else ""
    click.echo(
        f"{count(spans, 'span')} would be sent to {destination.endpoint}"
        f" ({destination.policy}){also}",
        err=True,
    )


def _secrets_of(file: str | None) -> list[str]:
    if file is None:
        return []
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--secrets-file cannot be read ({error}): give a text file") from error
    return [line.strip() for line in lines if line.strip()]


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """An event that SIGTERM and the first SIGINT set; a second SIGINT interrupts as usual."""
    told = threading.Event()

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {one: signal.signal(one, tell) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
