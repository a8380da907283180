# SPDX-License-Identifier: Apache-2.0
"""What is still to be sent: nothing that was committed is passed over, nothing comes twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.errors import HistoryNotFound, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store import forwarding
from otel_taskhistory.store.database import connect
from otel_taskhistory.store.forward_place import ForwardPlace
from otel_taskhistory.store.forwarding import Destination, Due
from otel_taskhistory.store.pruning import remove_task
from tests.store.deliveries import own_step, own_task, span, span_id, store, write
from tests.store.keeping import ask, execute, task_spans, trace_id

HERE = Destination("http://127.0.0.1:4318/v1/traces", "ids_only")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def look(directory: Path, query: Callable[[sqlite3.Connection], Any]) -> Any:
    """What a query gives now."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        return query(connection)


def due(directory: Path, after: int = 0, *, spans: int = 1000, size: int = 10**9) -> list[Due]:
    """What is to be sent after a number."""
    return list(
        look(directory, lambda c: forwarding.next_batch(c, after, spans=spans, size=size)).due
    )


def names(directory: Path, found: list[Due]) -> list[str]:
    """The ids of these spans."""
    return [ask(directory, "SELECT span_id FROM _spans WHERE id = ?", one.span)[0] for one in found]


def place(directory: Path, **said: Any) -> ForwardPlace:
    """Somebody who forwards."""
    return ForwardPlace(Settings.resolve(directory=directory), HERE, **said)


def test_spans_are_due_when_they_have_ended_in_the_order_of_commits(directory: Path) -> None:
    """What runs is not sent; what ended is, in the order in which it was committed."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None)])
        assert due(directory) == []
        write(writer, [own_step(3)])
        write(writer, [own_step(2)])
        assert names(directory, due(directory)) == [span_id(3), span_id(2)]
        write(writer, [own_task(1)])
        assert names(directory, due(directory)) == [span_id(3), span_id(2), span_id(1)]
    assert all(one.left_ns is None for one in due(directory))


def test_a_better_version_is_due_again_a_worse_or_equal_one_is_not(directory: Path) -> None:
    """A span that was sent is sent again only when the ledger knows more of it."""
    with store(directory) as writer:
        write(writer, [span(1), span(2)])
        before = due(directory)
        write(writer, [span(1), replace(span(2), end_ns=span(2).start_ns)])
        assert due(directory) == before
        write(writer, [span(1, attributes={"more": "said"})])
        after = due(directory)
        assert names(directory, after) == [span_id(2), span_id(1)]
        assert after[-1].change > before[-1].change


def test_spans_of_every_kind_of_trace_are_due(directory: Path) -> None:
    """Also spans that are no step, of traces that make no task, and that came late."""
    with store(directory) as writer:
        write(writer, task_spans(1))
        done = due(directory)[-1].change
        write(writer, [span(50, 2, trace_id=trace_id(1)), span(1, trace_id=trace_id(2))])
        assert names(directory, due(directory, done)) == [span_id(50), span_id(1)]


def test_what_a_dead_process_left_open_is_due_with_the_time_it_was_seen(directory: Path) -> None:
    """An interrupted span can be sent: it has no end, but a time when its process was seen."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None), own_step(3)])
        assert names(directory, due(directory)) == [span_id(3)]
    (seen,) = ask(directory, "SELECT seen_ns FROM _processes")
    found = due(directory)
    assert names(directory, found) == [span_id(3), span_id(1), span_id(2)]
    assert [one.left_ns for one in found] == [None, seen, seen]


def test_what_runs_again_is_passed_over_until_it_ends(directory: Path) -> None:
    """A process that was taken for dead goes on: its spans come again when they end."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None)])
        execute(directory, "UPDATE _processes SET ended_ns = seen_ns")
        assert names(directory, due(directory)) == [span_id(1), span_id(2)]
        write(writer, [own_step(2)])  # signs in again
        assert names(directory, due(directory)) == [span_id(2)]
        batch = look(directory, lambda c: forwarding.next_batch(c, 0, spans=10, size=10**9))
        assert batch.up_to == look(directory, forwarding.last_change)
        write(writer, [own_task(1)])
        assert names(directory, due(directory, batch.up_to)) == [span_id(1)]


def test_spans_that_are_handed_to_an_ended_process_are_due(directory: Path) -> None:
    """However a span comes to be of a process that has ended, it can be sent."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None)])
        execute(
            directory,
            "INSERT INTO _processes (id, pid, host, started_ns, seen_ns, ended_ns)"
            " VALUES (99, 1, 'elsewhere', 1, 2, 3)",
        )
        execute(directory, "UPDATE _spans SET process = 99")
        assert [one.left_ns for one in due(directory)] == [3]


def test_spans_of_removed_tasks_are_not_due_and_leave_nothing(directory: Path) -> None:
    """What retention took out is not sent, from the commit on; nothing of it is left here."""
    with store(directory) as writer:
        write(writer, task_spans(1))
        write(writer, task_spans(2))
    execute(directory, "UPDATE _owners SET removed_ns = 1 WHERE id = 1")
    assert names(directory, due(directory)) == [span_id(1), span_id(2), span_id(3)]
    execute(directory, "UPDATE _owners SET removed_ns = NULL")
    remove_task(Settings.resolve(directory=directory), trace_id(1))
    assert len(due(directory)) == 3
    assert ask(directory, "SELECT count(*) FROM _changes") == [3]


def test_numbers_are_never_used_twice(directory: Path) -> None:
    """After retention has removed the newest span, a later one is not taken for it."""
    with store(directory) as writer:
        write(writer, [span(1)])
        last = due(directory)[-1].change
    remove_task(Settings.resolve(directory=directory), span(1).trace_id)
    with store(directory) as writer:
        write(writer, [span(1, trace_id=trace_id(2))])
    assert due(directory)[0].change > last
    assert len(due(directory, last)) == 1


def test_batches_are_bounded_and_one_large_span_goes_alone(directory: Path) -> None:
    """By number and by size; a span that is larger than the bound is a batch by itself."""
    with store(directory) as writer:
        write(writer, [span(n, attributes={"text": "x" * 100}) for n in range(1, 8)])
        write(writer, [span(8, attributes={"text": "y" * 5000}), span(9)])
    sizes = []
    after, more = 0, True
    while more:
        batch = look(
            directory,
            lambda c, after=after: forwarding.next_batch(c, after, spans=4, size=1000),  # type: ignore[misc]
        )
        sizes.append(len(batch.due))
        after, more = batch.up_to, batch.more
    assert sizes == [4, 3, 1, 1]
    assert look(directory, lambda c: forwarding.what_is_left(c, 0)) == forwarding.Left(9, 1)
    assert look(directory, lambda c: forwarding.what_is_left(c, after)) == forwarding.Left(0, 0)


def test_a_place_is_remembered_for_each_endpoint_and_policy(directory: Path) -> None:
    """How far one destination has got says nothing of another; asked again, it begins again."""
    with store(directory) as writer:
        write(writer, [span(1), span(2)])
    with closing(place(directory)) as here:
        assert here.change == 0
        here.acknowledge(1, sent=1)
        here.acknowledge(2, sent=0, refused=1)
    with closing(place(directory)) as here:
        assert here.change == 2
    other = ForwardPlace(Settings.resolve(directory=directory), replace(HERE, policy="scrub"))
    with closing(other) as there:
        assert there.change == 0
    with closing(place(directory, again=True)) as here:
        assert here.change == 0
    first, second = look(directory, forwarding.forwards)
    assert (first.sent, first.refused, first.change) == (1, 1, 0)
    assert (second.policy, second.sent) == ("scrub", 0)


def test_a_place_is_written_later_when_another_writer_is_in_the_way(directory: Path) -> None:
    """An agent that writes is not waited for: the place is remembered, and written down later."""
    with store(directory) as writer:
        write(writer, [span(1), span(2)])
    here = place(directory)
    with closing(connect(directory / "history.db", 1)) as agent:
        agent.execute("BEGIN IMMEDIATE")
        here.acknowledge(1, sent=1)
        assert here.change == 1
        agent.execute("ROLLBACK")
    assert look(directory, forwarding.forwards)[0].change == 0
    here.look_after()
    assert look(directory, forwarding.forwards)[0].change == 1
    here.close()
    assert look(directory, forwarding.forwards)[0].sent == 1


def test_a_place_that_cannot_be_written_down_says_what_follows(directory: Path) -> None:
    """At the end it is said that spans will be sent again."""
    with store(directory) as writer:
        write(writer, [span(1)])
    settings = Settings.resolve(directory=directory, busy_timeout=0.1)
    here = ForwardPlace(settings, HERE)
    with closing(connect(directory / "history.db", 1)) as agent:
        agent.execute("BEGIN IMMEDIATE")
        here.acknowledge(1, sent=1)
        with pytest.raises(TaskHistoryError, match="1 spans that were sent are sent again"):
            here.close()


def test_two_do_not_forward_the_same(directory: Path) -> None:
    """A second forwarder to the same destination is refused: everything would be sent twice."""
    with store(directory) as writer:
        write(writer, [span(1)])
    with closing(place(directory)), pytest.raises(TaskHistoryError, match="another process"):
        place(directory)
    place(directory).close()


def test_no_history_is_made(directory: Path) -> None:
    """Forwarding from a place where nothing was recorded says so, and makes nothing there."""
    with pytest.raises(HistoryNotFound):
        place(directory)
    assert not directory.exists()


def test_a_history_that_takes_the_place_of_another_tells_its_own_place(
    directory: Path, tmp_path: Path
) -> None:
    """When the files are exchanged, what the other history says counts from then on."""
    with store(tmp_path / "other") as writer:
        write(writer, [span(1)])
    with store(directory) as writer:
        write(writer, [span(1), span(2)])
    with closing(place(directory)) as here:
        here.acknowledge(2, sent=2)
        assert not here.look_after()
        directory.rename(tmp_path / "before")
        (tmp_path / "other").rename(directory)
        assert here.look_after()
        assert here.change == 0
        here.acknowledge(1, sent=1)
    assert look(directory, forwarding.forwards)[0].sent == 1
    assert look(tmp_path / "before", forwarding.forwards)[0].sent == 2


def test_a_history_that_is_taken_away_ends_it(directory: Path, tmp_path: Path) -> None:
    """It is said that there is none; no new one is made in its place."""
    with store(directory) as writer:
        write(writer, [span(1)])
    here = place(directory)
    here.acknowledge(1, sent=1)
    directory.rename(tmp_path / "before")
    with pytest.raises(HistoryNotFound):
        here.look_after()
    here.close()
    assert not directory.exists()


def test_what_died_meanwhile_is_called_interrupted(directory: Path) -> None:
    """Nobody else may ever open the history again: the forwarder looks whose process is gone."""
    with store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2, end=None)])
    execute(directory, "UPDATE _processes SET ended_ns = NULL, lock = NULL, pid = 999999999")
    execute(directory, "DELETE FROM _changes")
    with closing(place(directory)):
        assert names(directory, due(directory)) == [span_id(1), span_id(2)]


def test_what_retention_removes_before_it_is_sent_is_counted_and_told(directory: Path) -> None:
    """Spans that went unsent are told of once; those that had been sent are not."""
    with store(directory) as writer:
        write(writer, task_spans(1))
        write(writer, task_spans(2))
        write(writer, task_spans(3))
    settings = Settings.resolve(directory=directory)
    with closing(place(directory)) as here:
        assert here.take_removed() == 0
        here.acknowledge(3, sent=3)  # task 1
    remove_task(settings, trace_id(1))
    with closing(place(directory)) as here:
        assert here.take_removed() == 0
    remove_task(settings, trace_id(2))
    with closing(place(directory)) as here:
        assert here.take_removed() == 3
        remove_task(settings, trace_id(3))
        here.acknowledge(4, sent=0)
        assert here.take_removed() == 3
        assert here.take_removed() == 0
    with closing(place(directory)) as here:
        assert here.take_removed() == 0
    assert look(directory, forwarding.forwards)[0].removed == 6
