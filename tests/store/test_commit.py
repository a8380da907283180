# SPDX-License-Identifier: Apache-2.0
"""`GroupCommit`: who waits for what, and that no job is lost, forgotten or written out of order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from otel_taskhistory.store import commit
from otel_taskhistory.store.commit import (
    BACKLOG_PARTS,
    GROUP,
    GroupCommit,
    Job,
    StoreAway,
    Wait,
)

PATIENCE = 60.0


class NotedWork:
    """Keeps what it is to write; can be made slow, away and faulty."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.durable: list[bool] = []
        self.patient: list[bool] = []
        self.reasons: list[Exception] = []
        self.lost: list[Any] = []
        self.closed = 0
        self.away = False
        self.refuses = False
        self.raises: BaseException | None = None
        self.entered = threading.Semaphore(0)
        self.gate: threading.Semaphore | None = None
        """When set, each write waits for it."""
        self.while_writing: Any = None

    def write(self, entries: list[Any], durable: bool, patient: bool) -> bool:
        self.entered.release()
        self.patient.append(patient)
        if self.gate is not None:
            assert self.gate.acquire(timeout=PATIENCE)
        if self.while_writing is not None:
            self.while_writing()
        if self.raises is not None:
            error, self.raises = self.raises, None
            raise error
        if self.away:
            raise StoreAway("not now")
        self.groups.append(list(entries))
        self.durable.append(durable)
        return not self.refuses

    def went_away(self, reason: Exception) -> None:
        self.reasons.append(reason)

    def rest(self) -> bool:
        return False

    def gave_up(self, entries: list[Any]) -> None:
        self.lost += entries

    def close(self) -> None:
        self.closed += 1

    @property
    def written(self) -> list[Any]:
        return [entry for group in self.groups for entry in group]


def job(*entries: Any, durable: bool = False, size: int = 1) -> Job:
    """A job of small entries."""
    return Job(list(entries), durable=durable, size=size)


@pytest.fixture
def work() -> NotedWork:
    """What the group commit of the test writes to."""
    return NotedWork()


@pytest.fixture
def group(work: NotedWork) -> Iterator[GroupCommit]:
    """One that is closed at the end, whatever the test did to it."""
    group = GroupCommit(work)
    yield group
    work.away = False
    if work.gate is not None:
        work.gate.release(1000)
    group.close(PATIENCE)


def begin_slow_commit(work: NotedWork, group: GroupCommit) -> None:
    """Have the thread stand in the middle of a commit, until ``work.gate`` lets it through."""
    work.gate, work.entered = threading.Semaphore(0), threading.Semaphore(0)
    group.submit(job("slow"), Wait.NOT)
    assert work.entered.acquire(timeout=PATIENCE)


def test_a_job_is_committed_when_submit_returns(group: GroupCommit, work: NotedWork) -> None:
    """The wait ends after the commit, and the job says that it is stored."""
    one = job("a", "b")
    group.submit(one)
    assert (one.done, one.stored) == (True, True)
    assert work.groups == [["a", "b"]]
    assert work.patient == [True]


def test_all_that_comes_during_a_commit_shares_the_next_one(
    group: GroupCommit, work: NotedWork
) -> None:
    """Thirty threads that wait at once cost one commit, durable if one of them needs that."""
    begin_slow_commit(work, group)
    jobs = [job(number, durable=number == 7) for number in range(30)]
    threads = [threading.Thread(target=group.submit, args=(one,)) for one in jobs]
    for thread in threads:
        thread.start()
    while len(group._queue) < len(jobs):
        pass
    assert work.gate is not None
    work.gate.release(2)
    for thread in threads:
        thread.join(PATIENCE)
    assert all(one.stored for one in jobs)
    assert len(work.groups) == 2
    assert sorted(work.groups[1]) == list(range(30))
    assert work.durable == [False, True]


def test_a_group_is_bounded(
    group: GroupCommit, work: NotedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By entries and by bytes, but a job is never cut in two."""
    monkeypatch.setattr(commit, "GROUP", 4)
    monkeypatch.setattr(commit, "GROUP_BYTES", 100)
    begin_slow_commit(work, group)
    for number in range(3):
        group.submit(job(number, number, number), Wait.NOT)
    group.submit(job("large", size=1000), Wait.NOT)
    last = job("last")
    assert work.gate is not None
    work.gate.release(100)
    group.submit(last)
    assert work.groups[1:] == [[0, 0, 0, 1, 1, 1], [2, 2, 2, "large"], ["last"]]


def test_a_checkpoint_waits_only_when_nothing_is_being_committed(
    group: GroupCommit, work: NotedWork
) -> None:
    """An idle writer commits it at once; a busy one takes it into its next group."""
    group.submit(job("thread is up"))
    while not group._idle:
        pass
    at_once = job("idle")
    group.submit(at_once, Wait.IF_IDLE)
    assert at_once.stored
    begin_slow_commit(work, group)
    later = job("busy")
    group.submit(later, Wait.IF_IDLE)  # returns although the commit stands still
    assert not later.done
    assert work.gate is not None
    work.gate.release(2)
    group.submit(job("end"))
    assert later.stored


def test_when_done_calls_back_once_the_fate_is_known(group: GroupCommit, work: NotedWork) -> None:
    """Before and after; it is how an event loop waits."""
    begin_slow_commit(work, group)
    one, called = job("a"), threading.Event()
    group.submit(one, Wait.NOT)
    one.when_done(called.set)
    assert not called.is_set()
    assert work.gate is not None
    work.gate.release(10)
    assert called.wait(PATIENCE)
    late = threading.Event()
    one.when_done(late.set)
    assert late.is_set()


def test_while_the_store_is_away_nobody_waits_and_the_order_is_kept(
    group: GroupCommit, work: NotedWork
) -> None:
    """The first one waits once; the others return at once; all is written when it is back."""
    work.away = True
    first = job(0)
    group.submit(first)
    assert (first.done, first.stored) == (True, False)
    assert group.away
    assert [str(reason) for reason in work.reasons] == ["not now"]
    jobs = [job(number) for number in range(1, 20)]
    for one in jobs:
        group.submit(one)
        assert (one.done, one.stored) == (True, False)
    assert group.waiting == (20, 20)
    work.away = False
    assert group.flush(PATIENCE)
    assert work.written == list(range(20))
    assert all(one.stored for one in jobs)
    assert not group.away
    assert group.waiting == (0, 0)
    assert work.patient[0] is True
    assert not any(work.patient[1:])  # nobody but the retries waited
    assert len(work.reasons) == 1


def test_a_submitter_that_is_slower_than_the_thread_miscounts_nothing(
    group: GroupCommit, work: NotedWork
) -> None:
    """It saw the circuit open, and by the time it says so its job is written."""
    late = job("late", size=100)
    group.submit(late)
    group._let_go(late)
    assert late.stored
    assert group.waiting == (0, 0)


def test_whoever_waits_for_a_later_group_is_let_go_too(group: GroupCommit, work: NotedWork) -> None:
    """When the circuit opens, all that waited return, not only those of the failed group."""
    begin_slow_commit(work, group)
    jobs = [job(number) for number in range(8)]
    threads = [threading.Thread(target=group.submit, args=(one,)) for one in jobs]
    for thread in threads:
        thread.start()
    while len(group._queue) < len(jobs):
        pass
    work.away = True
    assert work.gate is not None
    work.gate.release(1000)
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not any(one.stored for one in jobs)
    work.away = False
    assert group.flush(PATIENCE)
    assert work.written[0] == "slow"
    assert sorted(work.written[1:]) == list(range(8))


def test_a_full_backlog_gives_up_the_oldest_and_says_how_many(
    group: GroupCommit, work: NotedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is on bytes; what is lost is told, and the rest is written in order."""
    monkeypatch.setattr(commit, "BACKLOG_BYTES", 1000)
    work.away = True
    for number in range(25):
        group.submit(job(number, size=100))
    waiting, size = group.waiting
    assert size <= 1000
    assert waiting <= 10
    work.away = False
    assert group.flush(PATIENCE)
    assert work.lost + work.written == list(range(25))
    assert len(work.written) >= 9
    group.submit(job("large", size=10**6))  # alone it may be as large as it is
    assert work.written[-1] == "large"


def test_a_backlog_is_worked_off_in_small_groups(group: GroupCommit, work: NotedWork) -> None:
    """After each of them retention makes room: one large group might fill the disk again."""
    work.away = True
    for number in range(600):
        group.submit(job(number))
    work.away = False
    assert group.flush(PATIENCE)
    assert work.written == list(range(600))
    assert max(len(entries) for entries in work.groups) <= GROUP // BACKLOG_PARTS


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(1), MemoryError()]
)
def test_no_error_ends_the_writing_thread(
    group: GroupCommit, work: NotedWork, error: BaseException
) -> None:
    """Whatever comes out of a write, the job is written after all and the next ones too."""
    work.raises = error
    first = job("first")
    group.submit(first)
    assert first.done
    assert group.flush(PATIENCE)
    assert len(work.reasons) == 1
    second = job("second")
    group.submit(second)
    assert second.stored
    assert work.written == ["first", "second"]


def test_a_callback_that_exits_does_not_end_the_thread(
    group: GroupCommit, work: NotedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it keep others from being told or written."""

    def leave(reason: Exception) -> None:
        sys.exit(3)

    monkeypatch.setattr(work, "went_away", leave)
    work.away = True
    group.submit(job("a"))
    work.away = False
    assert group.flush(PATIENCE)
    assert work.written == ["a"]


def test_entries_that_must_not_be_written_are_not_tried_again(
    group: GroupCommit, work: NotedWork
) -> None:
    """The job is done and not stored."""
    work.refuses = True
    one = job("a")
    group.submit(one)
    assert (one.done, one.stored) == (True, False)
    work.refuses = False
    group.submit(job("b"))
    assert work.groups == [["a"], ["b"]]


def test_who_submits_from_the_writing_thread_does_not_wait_for_himself(
    group: GroupCommit, work: NotedWork
) -> None:
    """A log handler that ends a span within a commit; its span comes with the next group."""
    inner = job("inner")

    def log_handler() -> None:
        work.while_writing = None
        group.submit(inner)
        assert not group.flush(PATIENCE)

    work.while_writing = log_handler
    group.submit(job("outer"))
    assert group.flush(PATIENCE)
    assert inner.stored
    assert work.groups == [["outer"], ["inner"]]


def test_a_signal_handler_may_submit_at_any_moment(group: GroupCommit, work: NotedWork) -> None:
    """Two hundred handlers that come while their thread submits; nothing hangs, all is written."""
    handled: list[Job] = []

    def handler(number: int, frame: FrameType | None) -> None:
        handled.append(job(f"handler {len(handled)}"))
        group.submit(handled[-1])

    before = signal.signal(signal.SIGALRM, handler)
    submitted = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while len(handled) < 200:
            group.submit(job(f"main {submitted}"))
            submitted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert group.flush(PATIENCE)
    assert all(one.stored for one in handled)
    mains = [entry for entry in work.written if entry.startswith("main")]
    assert mains == [f"main {number}" for number in range(submitted)]
    assert len(work.written) == submitted + len(handled)


@pytest.mark.parametrize("away", [False, True])
def test_a_signal_handler_may_submit_at_each_line_of_a_submit(
    group: GroupCommit, work: NotedWork, away: bool
) -> None:
    """Whatever the code that it interrupts holds: nothing hangs, nothing is lost."""
    nested: list[Job] = []

    def at_all_places() -> None:
        busy = False
        before = sys.gettrace()

        def interrupt(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal busy
            if event == "line" and not busy:
                busy = True
                nested.append(job(f"nested {len(nested)}"))
                group.submit(nested[-1])
                busy = False
            return interrupt

        sys.settrace(interrupt)
        try:
            for wait in Wait:
                group.submit(job(f"outer {wait.name}"), wait)
            group.flush(0.01)
        finally:
            sys.settrace(before)

    group.submit(job("the thread is up"))
    work.away = away
    thread = threading.Thread(target=at_all_places, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    work.away = False
    assert group.flush(PATIENCE)
    assert len(nested) > 20
    assert all(one.stored for one in nested)
    assert len(work.written) == 1 + len(nested) + len(Wait)


@pytest.mark.parametrize("away", [False, True])
def test_ctrl_c_at_each_line_of_a_submit_leaves_nothing_behind(
    group: GroupCommit, work: NotedWork, away: bool
) -> None:
    """The next job is written, and the one that was interrupted too if it had been handed over."""

    def interrupted_at(number: int) -> bool:
        lines = 0
        before = sys.gettrace()  # that of a coverage tool

        def interrupt(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal lines
            if frame.f_code.co_filename != commit.__file__:
                return None  # not ours: a finalizer, say, which would swallow the interrupt
            lines += event == "line"
            if lines == number:
                sys.settrace(before)
                raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            group.submit(job(number))
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    group.submit(job("the thread is up"))
    work.away = away
    number = 1
    while interrupted_at(number):
        number += 1
    assert number > 10
    work.away = False
    assert group.flush(PATIENCE)
    after = job("after")
    group.submit(after)
    assert after.stored
    assert work.written[-2:] == [number, "after"]
    assert group.waiting == (0, 0)


def test_an_interrupted_wait_loses_nothing(group: GroupCommit, work: NotedWork) -> None:
    """Ctrl-C while a thread waits for its commit: it leaves, the commit happens."""
    begin_slow_commit(work, group)
    one = job("a")

    def interrupt() -> None:
        while not group._queue:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        group.submit(one)
    helper.join(PATIENCE)
    assert work.gate is not None
    work.gate.release(100)
    assert group.flush(PATIENCE)
    assert work.written == ["slow", "a"]


def test_flush_honours_its_timeout(group: GroupCommit, work: NotedWork) -> None:
    """A commit that stands still, or a store that is away, is not waited for."""
    begin_slow_commit(work, group)
    assert not group.flush(0.01)
    work.away = True
    assert work.gate is not None
    work.gate.release(1000)
    assert not group.flush(0.01)
    work.away = False
    assert group.flush(PATIENCE)


def test_close_is_bounded_and_what_then_comes_is_refused(
    group: GroupCommit, work: NotedWork
) -> None:
    """It returns though a commit stands still; that one ends, then the store is closed, once."""
    begin_slow_commit(work, group)
    waiting = job("too late")
    group.submit(waiting, Wait.NOT)
    group.close(0.01)
    assert work.closed == 0
    after = job("after the end")
    group.submit(after)
    assert (after.done, after.stored) == (True, False)
    assert work.gate is not None
    work.gate.release(1000)
    group.close(PATIENCE)
    group.close(PATIENCE)
    assert work.closed == 1
    # Of what waited, all was written or told to be lost.
    assert work.written + work.lost == ["slow", "too late"]


def test_close_without_any_work_closes_the_store(work: NotedWork) -> None:
    """No thread was ever started for it."""
    group = GroupCommit(work)
    before = threading.active_count()
    group.close(PATIENCE)
    assert work.closed == 1
    assert threading.active_count() == before


def test_where_no_thread_can_be_started_the_caller_writes(
    group: GroupCommit, work: NotedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the interpreter, or when there are too many threads."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        one = job("a")
        group.submit(one)
        assert one.stored
        later = job("b")
        group.submit(later, Wait.NOT)
        assert later.stored
    group.submit(job("c"))
    assert work.written == ["a", "b", "c"]


def test_a_fork_finds_no_thread_in_the_middle_of_a_commit(
    group: GroupCommit, work: NotedWork
) -> None:
    """The thread ends what it does and leaves before the fork; afterwards work goes on."""
    group.submit(job("before"))
    commit._pause_all()
    assert not any(thread.name == "otel-taskhistory" for thread in threading.enumerate())
    meanwhile = job("meanwhile")
    group.submit(meanwhile)  # by what else is done before a fork
    assert not meanwhile.done
    commit._resume_all()
    group.submit(job("after"))
    assert work.written == ["before", "meanwhile", "after"]


def test_a_fork_does_not_wait_for_ever(
    group: GroupCommit, work: NotedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that stands still for longer is left alone."""
    monkeypatch.setattr(commit, "_FORK_SECONDS", 0.01)
    begin_slow_commit(work, group)
    group.pause()
    group.resume()
    assert work.gate is not None
    work.gate.release(1000)
    group.submit(job("after"))
    assert work.written == ["slow", "after"]


def test_two_threads_never_write_at_once(work: NotedWork) -> None:
    """Though several may be started at the same moment."""
    group = GroupCommit(work)
    inside: list[int] = []
    most: list[int] = []

    def note() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    work.while_writing = note
    barrier = threading.Barrier(16)

    def begin(number: int) -> None:
        barrier.wait(PATIENCE)
        group.submit(job(number))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    group.close(PATIENCE)
    assert sorted(work.written) == list(range(16))
    assert set(most) == {1}
