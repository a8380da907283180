# SPDX-License-Identifier: Apache-2.0
"""Spans to an endpoint, in order and at least once: what to try again, and what to leave out.

* An endpoint that is away, or asks for time, gets the same request again.
* A request that is refused is halved until the spans are found that are to blame, so that one
  of them keeps no other back. Whether it is the spans or the endpoint that is wrong shows by the
  others: a refused span counts as refused, and is done with, only when the endpoint has taken
  another one after it, or in the same run before it and none is left. One that refuses everything
  acknowledges nothing.
* What is acknowledged is told at once, so that it is never sent again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.transport.forwarder.outbound import Outbound
from otel_taskhistory.transport.forwarder.posting import Answer, Kind

LARGEST: Final = 4 * 2**20
"""Bytes of a request with several spans, before compression; one span alone may be larger."""

SUSPECTS: Final = 50
"""Spans that are refused one after the other, and the endpoint is to blame."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_TRIES: Final = 3
_TRIES_OF_ONE: Final = 5
"""How often a request is sent that an endpoint breaks over (500) before it is halved, and one span
before it is taken for the reason: the endpoint may have been restarted meanwhile."""


class Stop(Exception):
    """Nothing more can be sent now; the text says why."""


class GaveUp(Stop):
    """The endpoint was not available for longer than is waited."""


class Unusable(Stop):
    """Nothing can arrive there until somebody changes something."""


class Told(Exception):
    """Somebody wants it to stop."""


@dataclass(slots=True)
class Counts:
    """What became of spans so far."""

    sent: int = 0
    refused: int = 0
    """Those that the endpoint did not want, or that could not be written."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    span: Outbound
    why: str


class Sender:
    """Sends to one endpoint.

    Args:
        post: sends one request; as `Poster.post`.
        encode: makes one; as `encoded`.
        acknowledge: called with (up to which number, spans sent, spans refused).
        refused: told of each span that is not sent: (span, why).
        tell: told in one sentence what is in the way, and of what the endpoint wants to say.
        patience: seconds without any success before it gives up; None never does.
        pause: waits so many seconds; whether somebody wants it to stop.
        monotonic: seconds, from any beginning.
    """

    def __init__(
        self,
        post: Callable[[bytes], Answer],
        encode: Callable[[Sequence[Outbound]], bytes],
        *,
        acknowledge: Callable[[int, int, int], None],
        refused: Callable[[Outbound, str], None],
        tell: Callable[[str], None],
        patience: float | None,
        pause: Callable[[float], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        self.accepted = False
        """Whether the endpoint has taken anything in this run: it is one, and knows us."""
        self._post = post
        self._encode = encode
        self._acknowledge = acknowledge
        self._refused = refused
        self._tell = tell
        self._patience = patience
        self._pause = pause
        self._monotonic = monotonic
        self._suspects: list[_Suspect] = []
        self._left_out = 0
        self._since = monotonic()
        self._told = ""

    def deliver(self, spans: Sequence[Outbound], up_to: int) -> None:
        """Send spans, in order; what was acknowledged is acknowledged even if it then stops.

        Args:
            spans: may be none.
            up_to: with them all up to this number is done with.

        Raises:
            Stop: see its kinds.
            Told: somebody wants it to stop.
        """
        waiting = [list(spans)] if spans else []
        while waiting:
            part = waiting.pop()
            try:
                body = self._encode(part)
            except ValueError as error:
                if len(part) == 1:
                    # Acknowledged with what comes next: nothing before it may be passed over.
                    self._refused(part[0], f"it cannot be written as OTLP ({error})")
                    self.leave_out(1)
                else:
                    waiting += _halves(part)
                continue
            if len(body) > LARGEST and len(part) > 1:
                waiting += _halves(part)
                continue
            answer = self._until_decided(body, _TRIES if len(part) > 1 else _TRIES_OF_ONE)
            if answer.kind is Kind.ACCEPTED:
                self._arrived(part, answer)
            elif len(part) > 1:
                waiting += _halves(part)
            else:
                self._suspect(_Suspect(part[0], answer.why))
        if not self._suspects:
            self._acknowledge(up_to, 0, self._take_left_out())

    def leave_out(self, number: int) -> None:
        """So many spans of what is delivered next are not sent to anybody."""
        self.counts.refused += number
        self._left_out += number

    def settle(self, up_to: int) -> None:
        """There is nothing more to be sent: what becomes of spans that were refused last.

        Args:
            up_to: all up to this number was tried.

        Raises:
            Unusable: nothing but them was sent, so they may not be what is wrong.
        """
        if not self._suspects:
            return
        if not self.accepted:
            raise Unusable(
                f"{self._suspects[0].why}, and nothing else was there to be sent, so it may be the"
                " endpoint that is wrong"
            )
        self._acknowledge(up_to, 0, self._convict() + self._take_left_out())

    def begin_again(self) -> None:
        """What was not acknowledged is given once more from its beginning."""
        self._suspects.clear()
        self._left_out = 0
        self._since = self._monotonic()

    def _arrived(self, part: Sequence[Outbound], answer: Answer) -> None:
        self.accepted = True
        self._since = self._monotonic()
        self._told = ""
        rejected = min(answer.rejected, len(part))
        refused = self._convict() + rejected
        self.counts.sent += len(part) - rejected
        self.counts.refused += rejected
        if rejected or answer.message:
            kept = "all" if not rejected else f"all but {rejected}"
            said = f' and says "{answer.message}"' if answer.message else ""
            lost = "; they are not sent again" if rejected else ""
            self._tell(f"it kept {kept} of {len(part)} spans{said}{lost}")
        self._acknowledge(part[-1].change, len(part) - rejected, refused + self._take_left_out())

    def _convict(self) -> int:
        """The endpoint is right, so these spans are what is wrong; how many they are."""
        number = len(self._suspects)
        for suspect in self._suspects:
            self._refused(suspect.span, suspect.why)
        self._suspects.clear()
        self.counts.refused += number
        return number

    def _suspect(self, suspect: _Suspect) -> None:
        self._suspects.append(suspect)
        if len(self._suspects) >= SUSPECTS:
            raise Unusable(
                f"{suspect.why}, and so for {SUSPECTS} spans one after the other: see what it wants"
            )

    def _take_left_out(self) -> int:
        number, self._left_out = self._left_out, 0
        return number

    def _until_decided(self, body: bytes, tries: int) -> Answer:
        """Post until the answer says something about what was sent."""
        pause = _FIRST_PAUSE
        broken = 0
        while True:
            answer = self._post(body)
            if answer.kind in (Kind.ACCEPTED, Kind.REFUSED):
                return answer
            if answer.kind is Kind.WRONG and not self.accepted:
                raise Unusable(answer.why)
            broken += answer.kind is Kind.BROKEN
            if broken >= tries:
                return Answer(Kind.REFUSED, answer.why)
            wait = max(answer.wait or 0.0, pause * random.uniform(0.5, 1.0))
            waited = self._monotonic() - self._since
            if self._patience is not None and waited + wait > self._patience:
                asked = f" and asks for {answer.wait:.0f} s" if answer.wait else ""
                raise GaveUp(f"{answer.why}{asked}")
            if answer.why != self._told:
                self._told = answer.why
                self._tell(f"{answer.why}; trying again")
            if self._pause(wait):
                raise Told
            pause = min(2 * pause, _LONGEST_PAUSE)


def _halves(part: list[Outbound]) -> list[list[Outbound]]:
    """Two parts, to be taken from the end: the first half comes first."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]]
