# SPDX-License-Identifier: Apache-2.0
"""Sends what a history has committed since the last time: once, for ever, or only to be looked at.

What is committed while it runs is found as `watch` finds it, by the state of two files; a moment is
let pass then, so that steps which follow each other closely go together.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.forward_place import ForwardPlace
from otel_taskhistory.store.forwarding import (
    Destination,
    Left,
    forward_to,
    last_change,
    what_is_left,
)
from otel_taskhistory.store.processes import dead
from otel_taskhistory.store.reading import Reading
from otel_taskhistory.store.watching import state_of
from otel_taskhistory.transport.forwarder.outbound import (
    Load,
    Outbound,
    encoded,
    load,
    load_left_open,
)
from otel_taskhistory.transport.forwarder.posting import Answer
from otel_taskhistory.transport.forwarder.sending import Sender, Told, Unusable

if TYPE_CHECKING:
    from otel_taskhistory.redaction import Policy

_LOOK_SECONDS: Final = 0.25
_ANYWAY_SECONDS: Final = 2.0
_GATHER_SECONDS: Final = 0.5
_REST_SECONDS: Final = 60.0
"""How long it stays away from an endpoint that has taken spans before and now wants none."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Who is told what; each gets one sentence without a full stop.

    Attributes:
        problem: what is in the way, or was lost.
        progress: how many spans are done with.
    """

    problem: Callable[[str], None]
    progress: Callable[[int], None] = field(default=lambda done: None)


class Forwarder:
    """Forwards from one place in a history to one endpoint.

    Args:
        place: the history; closed by whoever opened it.
        database: its file.
        post: sends one request; as `Poster.post`.
        policy: what may leave, and as what.
        voice: who is told.
        patience: seconds without success before it gives up; None never does.
        pause: waits so many seconds; whether somebody wants it to stop.

    Attributes:
        withheld: spans that the policy did not let through.
    """

    def __init__(
        self,
        place: ForwardPlace,
        database: Path,
        post: Callable[[bytes], Answer],
        policy: Policy,
        voice: Voice,
        *,
        patience: float | None,
        pause: Callable[[float], bool],
    ) -> None:
        self.withheld = 0
        self._place = place
        self._database = database
        self._policy = policy
        self._voice = voice
        self._pause = pause
        self._done = 0
        self._position = place.change
        """All up to this number was tried; what of it was refused may not be decided yet."""
        self._sender = Sender(
            post,
            encoded,
            acknowledge=self._acknowledge,
            refused=self._refused,
            tell=voice.problem,
            patience=patience,
            pause=pause,
        )

    @property
    def sent(self) -> int:
        """Spans that the endpoint has taken."""
        return self._sender.counts.sent

    @property
    def refused(self) -> int:
        """Spans that it did not want, or that could not be sent to anybody."""
        return self._sender.counts.refused

    def left(self) -> Left:
        """What is still to be sent."""
        return self._place.read(lambda connection: what_is_left(connection, self._place.change))

    def once(self) -> None:
        """Send all that is committed now.

        Raises:
            Stop: that was not possible.
            Told: somebody wants it to stop.
            TaskHistoryError: the history cannot be read.
        """
        self._send_until(self._place.read(last_change))
        self._sender.settle(self._position)
        self._tell_removed()

    def follow(self) -> None:
        """Send what is committed, and then what comes, until somebody wants it to stop.

        Raises:
            Unusable: the endpoint cannot be used, and has never been in this run.
            TaskHistoryError: the history cannot be read, or is gone.
        """
        try:
            while True:
                real = os.path.realpath(self._database)
                state = state_of(real)  # first: a commit in between is seen next time
                self._look_after()
                try:
                    self._send_until(self._place.read(last_change))
                    if self._sender.accepted:
                        self._sender.settle(self._position)
                except Unusable as error:
                    if not self._sender.accepted:
                        raise
                    self._voice.problem(f"{error}; trying again in {_REST_SECONDS:.0f} s")
                    self._begin_again()
                    if self._pause(_REST_SECONDS):
                        return
                    continue
                self._tell_removed()
                self._await_commit(real, state)
        except Told:
            return

    def _await_commit(self, real: str, state: tuple[object, ...]) -> None:
        until = time.monotonic() + _ANYWAY_SECONDS
        while state_of(real) == state:
            if time.monotonic() >= until:
                return
            if self._pause(_LOOK_SECONDS):
                raise Told
        if self._pause(_GATHER_SECONDS):
            raise Told

    def _send_until(self, end: int) -> None:
        """Send all up to a number, and what is committed with it."""
        more = True
        while more and self._position < end:
            if self._pause(0):
                raise Told
            loaded = self._place.read(
                partial(
                    load,
                    read_artifact=self._place.read_artifact,
                    policy=self._policy,
                    after=self._position,
                )
            )
            for which, why in loaded.failed:
                self._voice.problem(f"{which} was left out: {why}")
            self._sender.leave_out(len(loaded.failed))
            self._sender.deliver(loaded.spans, loaded.up_to)
            self.withheld += loaded.withheld
            self._position, more = loaded.up_to, loaded.more
            self._look_after()

    def _look_after(self) -> None:
        if self._place.look_after():
            # Another history is in its place.
            self._begin_again()

    def _begin_again(self) -> None:
        self._position = self._place.change
        self._sender.begin_again()

    def _acknowledge(self, up_to: int, sent: int, refused: int) -> None:
        self._place.acknowledge(up_to, sent=sent, refused=refused)
        self._done += sent + refused
        self._voice.progress(self._done)

    def _refused(self, span: Outbound, why: str) -> None:
        record = span.record
        self._voice.problem(f"span {record.span_id} of trace {record.trace_id} was left out: {why}")

    def _tell_removed(self) -> None:
        removed = self._place.take_removed()
        if removed:
            self._voice.problem(
                f"retention removed {removed} spans before they were sent: forward more often, use"
                " --hold, or raise the limits"
            )


def what_would_leave(
    settings: Settings, destination: Destination, policy: Policy, *, again: bool = False
) -> Iterator[Load]:
    """Request by request what `Forwarder.once` would send now; changes nothing.

    That includes what dead processes left open: to send it, they would be called ended.

    Raises:
        TaskHistoryError: there is no history, or it cannot be read.
    """
    owner = settings.owner if settings.owner_explicit else None
    folder = ArtifactFolder(settings.artifacts)
    with closing(Reading(settings.database, owner=owner)) as reading:
        found = reading.read(lambda connection: forward_to(connection, destination))
        after = 0 if again or found is None else found.change
        committed = partial(load, read_artifact=folder.read, policy=policy)

        def left_open(connection: sqlite3.Connection, after: int) -> Load:
            processes = dead(connection, settings.database)
            return load_left_open(connection, folder.read, policy, processes, after)

        for look, position in ((committed, after), (left_open, 0)):
            more = True
            while more:
                loaded = reading.read(partial(look, after=position))
                yield loaded
                position, more = loaded.up_to, loaded.more
