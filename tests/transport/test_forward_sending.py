# SPDX-License-Identifier: Apache-2.0
"""What is sent again, halved and left out: the rules, without a network and without waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.redaction import policy_named
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.forward_place import ForwardPlace
from otel_taskhistory.store.forwarding import Destination
from otel_taskhistory.transport.forwarder.forwarder import Forwarder, Voice
from otel_taskhistory.transport.forwarder.outbound import Outbound
from otel_taskhistory.transport.forwarder.posting import Answer, Kind
from otel_taskhistory.transport.forwarder.sending import (
    LARGEST,
    SUSPECTS,
    GaveUp,
    Sender,
    Told,
    Unusable,
)
from tests.store.deliveries import span, store, write

ACCEPTED = Answer(Kind.ACCEPTED)
REFUSED = Answer(Kind.REFUSED, "it answered 400")
BROKEN = Answer(Kind.BROKEN, "it answered 500")
AWAY = Answer(Kind.LATER, "nothing listens there")
DENIED = Answer(Kind.WRONG, "it answered 401")


def spans(*numbers: int) -> list[Outbound]:
    """Spans, each at the place of its number."""
    return [Outbound(number, span(number)) for number in numbers]


@dataclass
class World:
    """An endpoint, the time, and what the sender told.

    Attributes:
        answer: what the endpoint says to the spans of a request.
        posted: what came, in order.
        arrived: what it has taken, in order.
        acknowledged: up to which number, how many sent, how many refused.
        paused: how long was waited each time.
    """

    answer: Callable[[list[int]], Answer]
    patience: float | None = 60.0
    stops_after: int = 1000
    posted: list[list[int]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)
    now: float = 0.0
    bytes_each: int = 10

    def sender(self) -> Sender:
        """Somebody who sends there."""
        return Sender(
            self.post,
            self.encode,
            acknowledge=lambda up_to, sent, refused: self.acknowledged.append(
                (up_to, sent, refused)
            ),
            refused=lambda one, why: self.refused.append(one.change),
            tell=self.told.append,
            patience=self.patience,
            pause=self.pause,
            monotonic=lambda: self.now,
        )

    def encode(self, part: Sequence[Outbound]) -> bytes:
        numbers = [one.change for one in part]
        if any(one.record.name == "unspeakable" for one in part):
            raise ValueError("no such time")
        return b",".join(b"%d" % number for number in numbers).ljust(self.bytes_each * len(numbers))

    def post(self, body: bytes) -> Answer:
        numbers = [int(part) for part in body.split(b",")]
        self.posted.append(numbers)
        answer = self.answer(numbers)
        if answer.kind is Kind.ACCEPTED:
            self.arrived += numbers
        return answer

    def pause(self, seconds: float) -> bool:
        self.paused.append(seconds)
        self.now += seconds
        return len(self.paused) >= self.stops_after

    @property
    def up_to(self) -> int:
        """All up to this number was acknowledged."""
        return max((up_to for up_to, _, _ in self.acknowledged), default=0)


def answers(*said: Answer) -> Callable[[list[int]], Answer]:
    """These answers, one after the other, and then the last one for ever."""
    left = list(said)
    return lambda numbers: left.pop(0) if len(left) > 1 else left[0]


def poisoned(*bad: int, answer: Answer = REFUSED) -> Callable[[list[int]], Answer]:
    """Refuses requests with one of these."""
    return lambda numbers: answer if set(bad) & set(numbers) else ACCEPTED


def test_what_is_accepted_is_acknowledged_once() -> None:
    """One request, one acknowledgement, which also covers what does not leave."""
    world = World(answers(ACCEPTED))
    sender = world.sender()
    sender.deliver(spans(3, 4), 9)
    sender.settle(9)
    assert (world.posted, world.acknowledged) == ([[3, 4]], [(4, 2, 0), (9, 0, 0)])
    assert sender.counts.sent == 2


def test_an_endpoint_that_is_away_gets_the_same_request_again() -> None:
    """It waits longer and longer, says so once, and goes on."""
    world = World(answers(*[AWAY] * 5, ACCEPTED))
    world.sender().deliver(spans(1, 2), 2)
    assert world.posted == [[1, 2]] * 6
    assert len(world.paused) == 5
    assert world.paused[-1] > 2 * world.paused[0]
    assert world.told == ["nothing listens there; trying again"]


def test_an_endpoint_is_given_the_time_it_asks_for() -> None:
    """It is not asked again before that."""
    busy = Answer(Kind.LATER, "it answered 429", wait=20.0)
    world = World(answers(busy, busy, ACCEPTED))
    world.sender().deliver(spans(1), 1)
    assert world.paused == [20.0, 20.0]


def test_patience_ends_from_the_last_success_on() -> None:
    """Each success renews it; then it gives up, having acknowledged what was accepted."""
    world = World(answers(*[AWAY] * 4, ACCEPTED, AWAY), patience=30.0)
    sender = world.sender()
    sender.deliver(spans(1), 1)
    since = world.now
    with pytest.raises(GaveUp, match="nothing listens there"):
        sender.deliver(spans(2), 2)
    assert 15 < world.now - since <= 30
    assert world.up_to == 1


def test_a_wait_that_is_longer_than_patience_is_not_begun() -> None:
    """Who asks for an hour is not asked again, and the user is not kept waiting for nothing."""
    world = World(answers(Answer(Kind.LATER, "it answered 503", wait=300.0)))
    with pytest.raises(GaveUp, match="it answered 503 and asks for 300 s"):
        world.sender().deliver(spans(1), 1)
    assert world.paused == []


def test_without_an_end_to_patience_it_tries_for_ever_until_told() -> None:
    """Following, it never gives up; told to stop it does at the next pause."""
    world = World(answers(AWAY), patience=None, stops_after=500)
    with pytest.raises(Told):
        world.sender().deliver(spans(1), 1)
    assert len(world.posted) == 500
    assert max(world.paused) <= 30
    assert world.acknowledged == []


@pytest.mark.parametrize("bad", [(1,), (8,), (16,), (1, 16), (7, 8, 9), (2, 4, 6, 8, 10, 12)])
def test_spans_that_are_refused_keep_no_other_back(bad: tuple[int, ...]) -> None:
    """Those to blame are found and told; all others arrive once, in order."""
    world = World(poisoned(*bad))
    sender = world.sender()
    sender.deliver(spans(*range(1, 17)), 16)
    sender.settle(16)
    assert world.arrived == [number for number in range(1, 17) if number not in bad]
    assert world.refused == list(bad)
    assert world.up_to == 16
    assert sum(refused for _, _, refused in world.acknowledged) == len(bad)
    assert (sender.counts.sent, sender.counts.refused) == (16 - len(bad), len(bad))


def test_an_endpoint_that_refuses_everything_acknowledges_nothing() -> None:
    """It is taken for wrong itself, after a bounded number of tries."""
    world = World(answers(REFUSED))
    with pytest.raises(Unusable, match="it answered 400, and so for 50 spans"):
        world.sender().deliver(spans(*range(1, 513)), 512)
    assert world.acknowledged == []
    assert world.refused == []
    assert len(world.posted) < 3 * SUSPECTS


def test_one_span_that_is_refused_and_nothing_else_is_kept() -> None:
    """There is no telling whether it is the span or the endpoint."""
    world = World(answers(REFUSED))
    sender = world.sender()
    sender.deliver(spans(1), 1)
    with pytest.raises(Unusable, match="nothing else was there to be sent"):
        sender.settle(1)
    assert world.acknowledged == []


def test_a_last_span_that_is_refused_after_others_were_accepted_is_done_with() -> None:
    """The endpoint has shown in this run that it takes spans."""
    world = World(poisoned(3))
    sender = world.sender()
    sender.deliver(spans(1, 2, 3), 3)
    assert world.up_to == 2
    sender.settle(3)
    assert (world.up_to, world.refused) == (3, [3])


def test_an_endpoint_that_begins_to_refuse_everything_loses_nothing() -> None:
    """What was accepted before stays acknowledged, what came then is to be sent again."""
    world = World(lambda numbers: ACCEPTED if max(numbers) <= 100 else REFUSED)
    sender = world.sender()
    sender.deliver(spans(*range(1, 101)), 100)
    with pytest.raises(Unusable):
        sender.deliver(spans(*range(101, 301)), 300)
    assert world.up_to == 100
    assert world.refused == []


def test_an_endpoint_that_breaks_is_tried_again_before_the_spans_are_blamed() -> None:
    """An error of the endpoint's own may pass; if not, the span that does it is found."""
    world = World(answers(BROKEN, BROKEN, ACCEPTED))
    world.sender().deliver(spans(1, 2), 2)
    assert world.posted == [[1, 2]] * 3
    world = World(poisoned(2, answer=BROKEN))
    sender = world.sender()
    sender.deliver(spans(1, 2, 3, 4), 4)
    assert world.posted[:3] == [[1, 2, 3, 4]] * 3
    assert (world.arrived, world.refused) == ([1, 3, 4], [2])


def test_credentials_that_never_worked_end_it_at_once() -> None:
    """Somebody has to change a setting: nothing is waited for, nothing acknowledged."""
    world = World(answers(DENIED), patience=None)
    with pytest.raises(Unusable, match="it answered 401"):
        world.sender().deliver(spans(1), 1)
    assert (world.paused, world.acknowledged) == ([], [])


def test_credentials_that_stop_working_are_waited_for() -> None:
    """A proxy in front of it may be set up anew: what worked a moment ago may again."""
    world = World(answers(ACCEPTED, DENIED, DENIED, ACCEPTED))
    sender = world.sender()
    sender.deliver(spans(1), 1)
    sender.deliver(spans(2), 2)
    assert world.arrived == [1, 2]


def test_spans_that_an_endpoint_does_not_keep_are_told_and_not_sent_again() -> None:
    """Partial success: counted as refused; what it says is passed on."""
    world = World(answers(Answer(Kind.ACCEPTED, rejected=2, message="too old")))
    sender = world.sender()
    sender.deliver(spans(1, 2, 3), 3)
    assert len(world.posted) == 1
    assert world.acknowledged[0] == (3, 1, 2)
    assert (sender.counts.sent, sender.counts.refused) == (1, 2)
    assert world.told == [
        'it kept all but 2 of 3 spans and says "too old"; they are not sent again'
    ]


def test_a_message_beside_success_is_passed_on() -> None:
    """An endpoint may warn although it keeps everything."""
    world = World(answers(Answer(Kind.ACCEPTED, message="deprecated")))
    world.sender().deliver(spans(1), 1)
    assert world.told == ['it kept all of 1 spans and says "deprecated"']


def test_a_request_that_would_be_too_large_is_halved_before_it_is_sent() -> None:
    """One span alone is sent however large it is."""
    world = World(answers(ACCEPTED), bytes_each=LARGEST - 1)
    world.sender().deliver(spans(1, 2, 3), 3)
    assert world.posted == [[1], [2], [3]]
    world = World(answers(ACCEPTED), bytes_each=20 * LARGEST)
    world.sender().deliver(spans(1), 1)
    assert world.posted == [[1]]


def test_a_span_that_cannot_be_written_keeps_no_other_back() -> None:
    """It is told and counted, and is not sent."""
    bad = [Outbound(2, span(2, name="unspeakable"))]
    world = World(answers(ACCEPTED))
    sender = world.sender()
    sender.deliver([*spans(1), *bad, *spans(3)], 3)
    assert (world.arrived, world.refused, world.up_to) == ([1, 3], [2], 3)
    assert sum(refused for _, _, refused in world.acknowledged) == 1


@given(
    poison=st.sets(st.integers(1, 40), max_size=12),
    fates=st.lists(st.sampled_from(["ok", "ok", "lost", "killed", "away", "broken"]), max_size=60),
    size=st.integers(1, 12),
)
def test_whatever_happens_nothing_is_lost_and_only_what_was_on_its_way_comes_twice(
    poison: set[int], fates: list[str], size: int
) -> None:
    """Any mix of refused spans, lost answers, deaths and absences, with any size of batch."""
    left = list(fates)
    on_its_way: set[int] = set()
    place = broken = 0

    class Killed(Exception):
        pass

    def answer(numbers: list[int]) -> Answer:
        nonlocal broken
        fate = left.pop(0) if left else "ok"
        # What breaks again and again is to blame.
        broken = broken + 1 if fate == "broken" else 0
        fate = "ok" if broken > 2 else fate
        if fate == "away":
            return AWAY
        if fate == "broken":
            return BROKEN
        if poison & set(numbers):
            return REFUSED
        if fate in ("lost", "killed"):
            world.arrived.extend(numbers)
            on_its_way.update(numbers)
            if fate == "killed":
                raise Killed
            return AWAY
        return ACCEPTED

    world = World(answer, patience=None)
    # Another span after all: so it shows each time that the endpoint takes spans.
    everything = list(range(1, 42))
    while place < 41:
        world.acknowledged.clear()
        sender = world.sender()
        try:
            waiting = [number for number in everything if number > place]
            while waiting:
                part, waiting = waiting[:size], waiting[size:]
                sender.deliver(spans(*part), part[-1])
            sender.settle(41)
        except Killed:
            pass
        finally:
            place = max(place, world.up_to)
    wanted = set(everything) - poison
    assert set(world.arrived) == wanted
    twice = {number for number in world.arrived if world.arrived.count(number) > 1}
    assert twice <= on_its_way
    first = sorted(wanted, key=world.arrived.index)
    assert first == sorted(wanted)


def test_told_to_stop_it_ends_between_two_requests(tmp_path: Path) -> None:
    """However much is still to be sent, and however well that goes."""
    settings = Settings.resolve(directory=tmp_path / "history")
    with store(settings.directory) as writer:
        write(writer, [span(1), span(2)])
    posted: list[bytes] = []
    told = iter([False, True])

    def post(body: bytes) -> Answer:
        posted.append(body)
        with store(settings.directory) as writer:
            write(writer, [span(10 + len(posted))])
        return ACCEPTED

    with closing(ForwardPlace(settings, Destination("http://x", "everything"))) as place:
        forwarder = Forwarder(
            place,
            settings.database,
            post,
            policy_named("everything"),
            Voice(lambda why: None),
            patience=60.0,
            pause=lambda seconds: next(told),
        )
        forwarder.once()
        assert (len(posted), forwarder.sent) == (1, 2)  # and not what came meanwhile
        with pytest.raises(Told):
            forwarder.once()
        assert len(posted) == 1
