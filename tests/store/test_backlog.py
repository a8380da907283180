# SPDX-License-Identifier: Apache-2.0
"""What waits in memory is counted by what it adds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.store import commit
from otel_taskhistory.store.backlog import Backlog
from otel_taskhistory.store.commit import Job
from tests.test_faults import Agent


def job(size: int, **texts: int) -> Job:
    """A job that holds `size` bytes of its own, and these texts."""
    numbered = {ord(name): length for name, length in texts.items()}
    return Job([], durable=False, size=size, texts=numbered)


def test_a_string_counts_once_until_its_last_holder_goes() -> None:
    """However many checkpoints hold it."""
    backlog = Backlog()
    first, second = job(1, a=100), job(2, a=100, b=50)
    backlog.add(first)
    backlog.add(second)
    assert backlog.bytes == 153
    backlog.add(second)  # is counted already
    assert backlog.bytes == 153
    backlog.remove(first)
    assert backlog.bytes == 152
    backlog.remove(first)
    backlog.add(first)  # is gone for good
    assert backlog.bytes == 152
    backlog.remove(second)
    assert backlog.bytes == 0


@given(
    st.lists(st.dictionaries(st.integers(0, 5), st.just(10), max_size=4), max_size=8),
    st.randoms(),
)
def test_nothing_is_left_when_all_have_gone(held: list[dict[int, int]], random: object) -> None:
    """In whatever order they come and go, and some without having come."""
    jobs = [Job([], durable=False, size=7, texts=texts) for texts in held]
    backlog = Backlog()
    for one in jobs[::2]:
        backlog.add(one)
    waiting = {text for one in jobs[::2] for text in one.texts}
    assert backlog.bytes == 7 * len(jobs[::2]) + 10 * len(waiting)
    random.shuffle(jobs)  # type: ignore[attr-defined]
    for one in jobs:
        backlog.remove(one)
    assert backlog.bytes == 0


def test_checkpoints_of_a_long_prompt_do_not_fill_the_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step with a prompt of a tenth of the bound tells many things, and nothing is lost."""
    bound = 2**20
    monkeypatch.setattr(commit, "BACKLOG_BYTES", bound)
    agent = Agent(tmp_path / "history", 0)
    agent.step("before")
    with closing(sqlite3.connect(agent.directory / "history.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with agent.tasks.task("long") as task, task.step() as step:
            step.prompt("x" * (bound // 10))
            for number in range(30):
                step.decision(f"decision {number}")
        stats = agent.stats
        assert stats["lost"] == 0
        assert stats["waiting"] > 30
        assert bound // 10 < stats["waiting_bytes"] < bound
        other.execute("ROLLBACK")
    assert agent.exporter.force_flush()
    assert agent.stats["waiting_bytes"] == 0
    assert agent.goals == ["before", "long"]
    agent.provider.shutdown()
