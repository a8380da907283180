# SPDX-License-Identifier: Apache-2.0
"""Which task goes next, and because of which limit: pure functions of what is there.

A task is past ``max_age`` when its last local commit is *older* than the limit (one of exactly
that age stays), past ``max_tasks`` when more tasks of its kind are newer than the limit allows, and
past ``max_bytes`` as long as live pages and artifacts take more than is allowed.

Tasks of kind ``other`` go before those of agents, and have limits of a tenth of their own. Among
tasks of a kind the one whose last commit is oldest goes first. Neither a running task nor a pinned
one ever goes, and neither counts.

A task that is held, for something of it is still to be sent elsewhere, may become `HOLD_AGE` times
as old, and there may be `HOLD_TASKS` times as many; ``max_bytes`` stays what it is. What is sent
goes in about the order in which tasks would be removed: when the oldest one is held, so are those
after it, and none of them is looked at.

Spans of a trace may come without its root, which then never comes (it was sampled away, or is in
another service). Such a task says ``running`` for ever. It is taken for one that really runs until
nothing was heard of it for `ROOTLESS_NS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from otel_taskhistory.settings import Retention
from otel_taskhistory.store.space import divide

Kind = Literal["other", "agent"]
Reason = Literal["max_age", "max_tasks", "max_bytes", "asked"]

KINDS: Final[tuple[Kind, ...]] = ("other", "agent")
"""In the order in which they go."""

OTHER_SHARE: Final = 10
"""Tasks of kind ``other`` may take one part in so many of ``max_tasks`` and ``max_bytes``."""

HOLD_AGE: Final = 2
HOLD_TASKS: Final = 4
"""How many times the limits a hold reaches, at most."""

ROOTLESS_NS: Final = 3600 * 10**9
"""One hour without news, and a task whose root is missing is not running any more."""


def others_of(max_tasks: int) -> int:
    """How many tasks of kind ``other`` are kept; one at least."""
    return max(max_tasks // OTHER_SHARE, 1)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is there of one kind, running and pinned tasks left out."""

    tasks: int
    bytes: int
    """About: what each task has added to the history."""
    oldest_ns: int | None
    """When the task that would go first was committed last; None when none may go."""
    held: bool = False
    """Whether that one is held."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A `Retention` in the units of the store."""

    age_ns: int | None
    tasks: int | None
    other_tasks: int | None
    content: int | None
    """Bytes of live pages and artifacts together."""
    other_bytes: int | None

    @classmethod
    def of(cls, retention: Retention) -> Limits:
        """The limits that `retention` sets."""
        tasks, size = retention.max_tasks, retention.max_bytes
        return cls(
            None if retention.max_age is None else _ns(retention.max_age),
            tasks,
            None if tasks is None else others_of(tasks),
            divide(size).content,
            None if size is None else size // OTHER_SHARE,
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """What decides, at one moment."""

    now_ns: int
    """One reading of the clock for a whole pass."""
    other: Kept
    agent: Kept
    content: int
    """Bytes of live pages and artifacts together."""
    held_after: int | None = None
    """What changed after this number is held; None when nothing is."""

    def of(self, kind: Kind) -> Kept:
        """What is there of one kind."""
        return self.other if kind == "other" else self.agent

    def with_(self, kind: Kind, kept: Kept) -> Holding:
        """The same with another number of one kind."""
        return replace(self, other=kept) if kind == "other" else replace(self, agent=kept)


@dataclass(frozen=True, slots=True)
class Choice:
    """The oldest task of this kind goes."""

    kind: Kind
    reason: Reason


def choose(limits: Limits, holding: Holding) -> Choice | None:
    """Which task goes next; None when what may go is within the limits."""
    for kind in KINDS:
        kept = holding.of(kind)
        if kept.oldest_ns is None:
            continue
        longer, more = (HOLD_AGE, HOLD_TASKS) if kept.held else (1, 1)
        if limits.age_ns is not None and kept.oldest_ns < holding.now_ns - longer * limits.age_ns:
            return Choice(kind, "max_age")
        most = limits.other_tasks if kind == "other" else limits.tasks
        if most is not None and kept.tasks > more * most:
            return Choice(kind, "max_tasks")
        if kind == "other" and limits.other_bytes is not None and kept.bytes > limits.other_bytes:
            return Choice(kind, "max_bytes")
    if limits.content is not None and holding.content > limits.content:
        for kind in KINDS:
            if holding.of(kind).oldest_ns is not None:
                return Choice(kind, "max_bytes")
    return None


def is_stale(committed_ns: int, now_ns: int) -> bool:
    """Whether a task whose root is missing is not running any more."""
    return committed_ns < now_ns - ROOTLESS_NS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that may go, as a plan lists it."""

    task_id: str
    kind: Kind
    goal: str | None
    committed_ns: int
    bytes: int
    held: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A task that is to go, and why."""

    candidate: Candidate
    reason: Reason


def plan(
    limits: Limits, holding: Holding, oldest_first: dict[Kind, Iterable[Candidate]]
) -> Iterator[Planned]:
    """All that `choose` would choose, one after the other.

    What a task takes is known only about, as it shares contents with others; so where ``max_bytes``
    is the reason, so is how many tasks go.
    """
    waiting = {kind: iter(oldest_first[kind]) for kind in KINDS}
    heads = {kind: next(waiting[kind], None) for kind in KINDS}
    while True:
        holding = _with_heads(holding, heads)
        choice = choose(limits, holding)
        if choice is None:
            return
        gone = heads[choice.kind]
        assert gone is not None
        yield Planned(gone, choice.reason)
        heads[choice.kind] = next(waiting[choice.kind], None)
        kept = holding.of(choice.kind)
        less = replace(kept, tasks=kept.tasks - 1, bytes=kept.bytes - gone.bytes)
        holding = replace(holding, content=holding.content - gone.bytes).with_(choice.kind, less)


def _with_heads(holding: Holding, heads: dict[Kind, Candidate | None]) -> Holding:
    for kind, head in heads.items():
        kept = replace(
            holding.of(kind),
            oldest_ns=None if head is None else head.committed_ns,
            held=head is not None and head.held,
        )
        holding = holding.with_(kind, kept)
    return holding


def _ns(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1) * 1000
