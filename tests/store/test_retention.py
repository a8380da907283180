# SPDX-License-Identifier: Apache-2.0
"""Which task goes next, decided without any store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.settings import Retention
from otel_taskhistory.store.retention import (
    Candidate,
    Choice,
    Holding,
    Kept,
    Kind,
    Limits,
    choose,
    is_stale,
    plan,
)
from otel_taskhistory.store.space import divide

NOW = 1_790_000_000 * 10**9
NOTHING = Kept(0, 0, None)
MIB = 2**20


def holding(
    agent: Kept = NOTHING, other: Kept = NOTHING, content: int = 0, now: int = NOW
) -> Holding:
    """What there is."""
    return Holding(now, other, agent, content)


def only(**limit: Any) -> Limits:
    """One limit, the others lifted."""
    return Limits.of(Retention(**({"max_age": None, "max_tasks": None, "max_bytes": None} | limit)))


@pytest.mark.parametrize(("ns", "goes"), [(1, False), (0, False), (-1, True)])
@pytest.mark.parametrize("kind", ["agent", "other"])
def test_a_task_goes_when_it_is_older_than_the_limit(kind: Kind, ns: int, goes: bool) -> None:
    """One of exactly the limit stays, of one nanosecond more goes; every time it is asked."""
    oldest = Kept(1, 0, NOW - 60 * 10**9 + ns)
    limits = only(max_age=timedelta(seconds=60))
    expected = Choice(kind, "max_age") if goes else None
    for _ in range(10):
        assert choose(limits, holding(**{kind: oldest})) == expected


@pytest.mark.parametrize(("tasks", "goes"), [(99, False), (100, False), (101, True)])
def test_as_many_tasks_as_allowed_stay(tasks: int, goes: bool) -> None:
    """The limit itself is not past the limit."""
    found = choose(only(max_tasks=100), holding(agent=Kept(tasks, 0, NOW)))
    assert found == (Choice("agent", "max_tasks") if goes else None)


@pytest.mark.parametrize(("limit", "share"), [(1000, 100), (19, 1), (3, 1)])
def test_others_have_a_tenth_of_the_number_of_tasks(limit: int, share: int) -> None:
    """Web requests do not push agents' tasks out; one at least is kept."""
    limits = only(max_tasks=limit)
    assert choose(limits, holding(other=Kept(share, 0, NOW))) is None
    assert choose(limits, holding(other=Kept(share + 1, 0, NOW))) == Choice("other", "max_tasks")


def test_others_have_a_tenth_of_the_bytes() -> None:
    """Also while the history as a whole is far from its limit."""
    limits = only(max_bytes=100 * MIB)
    assert choose(limits, holding(other=Kept(5, 10 * MIB, NOW))) is None
    found = choose(limits, holding(other=Kept(5, 10 * MIB + 1, NOW)))
    assert found == Choice("other", "max_bytes")


def test_others_go_before_agents() -> None:
    """Whatever the limit, and however old the agents' tasks are."""
    agent, other = Kept(50, 0, NOW - 90 * 10**9), Kept(50, 0, NOW - 70 * 10**9)
    everything = holding(agent, other, content=200 * MIB)
    for limits, reason in (
        (only(max_age=timedelta(seconds=60)), "max_age"),
        (only(max_tasks=10), "max_tasks"),
        (only(max_bytes=100 * MIB), "max_bytes"),
    ):
        found = choose(limits, everything)
        assert found is not None
        assert (found.kind, found.reason) == ("other", reason)


def test_where_there_are_no_others_agents_tasks_go() -> None:
    """By size too."""
    found = choose(only(max_bytes=100 * MIB), holding(Kept(1, 0, NOW), content=200 * MIB))
    assert found == Choice("agent", "max_bytes")


def test_nothing_goes_when_nothing_may() -> None:
    """All that is there runs or is pinned: it is kept, however much it is."""
    limits = Limits.of(Retention(timedelta(seconds=1), 1, MIB))
    assert choose(limits, holding(Kept(9, MIB, None), Kept(9, MIB, None), content=9 * MIB)) is None


def test_no_limit_is_no_limit() -> None:
    """What is None does not count."""
    limits = Limits.of(Retention(None, None, None))
    assert choose(limits, holding(Kept(10**9, 10**15, 0), content=10**15)) is None


def test_the_limit_of_content_leaves_room_for_log_and_free_pages() -> None:
    """Content within its limit, log and free pages within theirs: together below the limit."""
    for size in (2 * MIB, 20 * 10**6, 2**31, 2**40):
        parts = divide(size)
        assert parts.content is not None
        assert parts.content + 2 * parts.log + parts.free <= size
        assert parts.content > size * 3 // 5


def test_a_rootless_task_is_taken_for_running_for_an_hour() -> None:
    """Its root may still come; exactly an hour is not yet more than an hour."""
    hour = 3600 * 10**9
    assert not is_stale(NOW - hour, NOW)
    assert is_stale(NOW - hour - 1, NOW)


ages = st.lists(st.integers(min_value=0, max_value=100), max_size=12).map(sorted)


@given(
    agents=ages,
    others=ages,
    sizes=st.lists(st.integers(0, 3 * MIB), min_size=24, max_size=24),
    max_age=st.none() | st.integers(1, 100),
    max_tasks=st.none() | st.integers(1, 12),
    max_bytes=st.none() | st.integers(1, 40).map(lambda n: n * MIB),
)
def test_a_plan_ends_exactly_where_everything_is_within_the_limits(
    agents: list[int],
    others: list[int],
    sizes: list[int],
    max_age: int | None,
    max_tasks: int | None,
    max_bytes: int | None,
) -> None:
    """Each task goes at most once, oldest first in its kind, and none that was within them."""
    limits = Limits.of(
        Retention(None if max_age is None else timedelta(seconds=max_age), max_tasks, max_bytes)
    )
    tasks: dict[Kind, list[Candidate]] = {
        kind: [
            Candidate(f"{kind}{n}", kind, None, NOW - (100 - at) * 10**9, sizes[n + 12 * offset])
            for n, at in enumerate(when)
        ]
        for offset, (kind, when) in enumerate((("agent", agents), ("other", others)))
    }

    def held(gone: int, other_gone: int) -> Holding:
        left = {"agent": tasks["agent"][gone:], "other": tasks["other"][other_gone:]}
        kept = {
            kind: Kept(
                len(some), sum(t.bytes for t in some), some[0].committed_ns if some else None
            )
            for kind, some in left.items()
        }
        content = sum(kept[kind].bytes for kind in kept)
        return holding(kept["agent"], kept["other"], content)

    gone = {"agent": 0, "other": 0}
    for planned in plan(limits, held(0, 0), {kind: iter(some) for kind, some in tasks.items()}):
        kind = planned.candidate.kind
        assert choose(limits, held(gone["agent"], gone["other"])) == Choice(kind, planned.reason)
        assert planned.candidate == tasks[kind][gone[kind]]
        gone[kind] += 1
    assert choose(limits, held(gone["agent"], gone["other"])) is None


def test_a_plan_changes_nothing_it_was_given() -> None:
    """What there is stays what it was."""
    before = holding(Kept(3, 30, NOW), content=9)
    again = replace(before)
    one = Candidate("1", "agent", None, NOW, 10)
    list(plan(only(max_tasks=1), before, {"agent": [one, one, one], "other": []}))
    assert before == again
