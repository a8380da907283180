# SPDX-License-Identifier: Apache-2.0
"""What is promised of retention, on histories that were really recorded."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Retention
from otel_taskhistory.store import records
from otel_taskhistory.store.late import REMEMBERED_NS
from otel_taskhistory.store.retention import ROOTLESS_NS
from tests.recorded import one_task
from tests.store.deliveries import (
    NOON,
    SECOND,
    agent,
    entry,
    model,
    own_step,
    own_task,
    png,
    span,
    write,
)
from tests.store.keeping import (
    DAY,
    age_files,
    ask,
    check_whole,
    committed,
    execute,
    files,
    goes_on,
    keeper,
    kept,
    limits,
    other_spans,
    record,
    shot,
    size_on_disk,
    store,
    task_spans,
    trace_id,
    work,
)

MIB = 2**20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


class Agent:
    """A Host Agent that records with these limits."""

    def __init__(self, directory: Path, retention: Retention) -> None:
        self.problems: list[BaseException] = []
        self.exporter = TaskHistoryExporter(
            directory, retention=retention, durability="normal", on_error=self.problems.append
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(TaskHistoryProcessor(self.exporter))
        self.tasks = TaskTracer(self.provider, exporter=self.exporter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.provider.shutdown()


def test_window_exceeded_the_oldest_tasks_go_whole(directory: Path) -> None:
    """Given room for three tasks, when a fourth ends, then the first is gone with all it had."""
    with Agent(directory, Retention(max_tasks=3)) as host, TaskHistory(directory) as history:
        ids = [one_task(host.tasks, f"goal {number}", steps=2) for number in range(4)]
        assert [task.task_id for task in history.tasks()] == ids[:0:-1]
        for table in ("steps", "model_calls", "tool_calls", "timeline"):
            assert ask(directory, f"SELECT 1 FROM {table} WHERE task_id = ?", ids[0]) == []
        assert ask(directory, "SELECT 1 FROM spans WHERE trace_id = ?", ids[0]) == []
        for task_id in ids[1:]:
            steps = history.steps(task_id)
            assert [step.result for step in steps] == ["done 1", "done 2"]
            assert all(step.prompt and step.decision and step.tool_result for step in steps)
    assert host.problems == []
    check_whole(directory)


def test_window_not_exceeded_every_task_stays(directory: Path) -> None:
    """Given room for three tasks, when three have ended, then all are there and nothing is told."""
    with Agent(directory, Retention(max_tasks=3)) as host, TaskHistory(directory) as history:
        ids = [one_task(host.tasks, f"goal {number}") for number in range(3)]
        assert [task.task_id for task in history.tasks()] == ids[::-1]
        assert history.retention_records() == []
        assert ask(directory, "SELECT count(*) FROM timeline WHERE event = 'pruned'") == [0]
        assert history.prune(Retention(max_tasks=3), dry_run=True).planned == ()
    check_whole(directory)


def test_limits_hold_when_a_history_is_opened(directory: Path) -> None:
    """The limit was lowered while nothing ran: opening works it off, a bit at a time."""
    record(directory, range(1, 40))
    with Agent(directory, Retention(max_tasks=5)) as host:
        assert len(kept(directory)) < 39
        host.exporter.force_flush()
        deadline = time.monotonic() + 30
        while len(kept(directory)) > 5 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert kept(directory) == [35, 36, 37, 38, 39]


def test_files_stay_below_the_limit_after_every_export(directory: Path) -> None:
    """Sixty tasks of 60 KB with screenshots into 2 MB, the files added up after each export."""
    limit = 2 * 10**6
    with Agent(directory, Retention(max_bytes=limit)) as host:
        for number in range(60):
            with host.tasks.task(f"goal {number}") as task:
                for index in range(3):
                    with task.step("look") as step:
                        words = " ".join(str(number * 991 + index * 7 + n) for n in range(1500))
                        step.prompt([{"role": "user", "content": words}])
                        step.screenshot(png(number * 3 + index, 12_000))
                    assert size_on_disk(directory) <= limit
    numbers = [
        int(goal.split()[1]) for goal in ask(directory, "SELECT goal FROM tasks ORDER BY id")
    ]
    assert numbers == list(range(60 - len(numbers), 60))
    assert len(numbers) > 5
    assert ask(directory, "SELECT count(*) FROM steps") == [3 * len(numbers)]
    assert host.problems == []
    with keeper(directory) as retainer:
        work(retainer)
    check_whole(directory)


@pytest.mark.parametrize("attempt", range(3))
def test_ages_at_the_boundary_give_the_same_set_every_time(directory: Path, attempt: int) -> None:
    """Of exactly the limit, a nanosecond younger, a nanosecond older: only the last one goes."""
    now = NOON + 100 * DAY
    cutoff = now - 30 * DAY
    record(directory, range(1, 4))
    for number, at in ((1, cutoff), (2, cutoff - 1), (3, cutoff + 1)):
        committed(directory, number, at)
    with keeper(directory, Retention(), clock=lambda: now) as retainer:
        work(retainer)
        assert kept(directory) == [1, 3]


def test_one_pass_has_one_cutoff(directory: Path) -> None:
    """However long it takes: what becomes too old meanwhile is for the next pass."""
    record(directory, range(1, 4))
    for number in (1, 2, 3):
        committed(directory, number, NOON + number)
    now = [NOON + 60 * SECOND + 2]
    with keeper(directory, limits(max_age=60), clock=lambda: now[0]) as retainer:

        def later(seconds: float) -> None:
            now[0] += SECOND

        retainer.run(pause=later)
        assert kept(directory) == [2, 3]
        retainer.run(pause=later)
        assert kept(directory) == []


@pytest.mark.parametrize("started_ns", [0, 2**63 - 1])
def test_times_of_a_task_do_not_fool_the_age(directory: Path, started_ns: int) -> None:
    """A span from 1970 or from 2262 is as old as its commit here."""
    same: dict[str, Any] = {"trace_id": trace_id(1)}
    with store(directory) as writer:
        spans = [own_task(1, **same)]
        object.__setattr__(spans[0], "start_ns", started_ns)
        object.__setattr__(spans[0], "end_ns", started_ns)
        write(writer, spans)
    now = ask(directory, "SELECT committed_ns FROM tasks")[0]
    with keeper(directory, limits(max_age=60), clock=lambda: now + 59 * SECOND) as retainer:
        work(retainer)
        assert kept(directory) == [1]
    with keeper(directory, limits(max_age=60), clock=lambda: now + 61 * SECOND) as retainer:
        work(retainer)
        assert kept(directory) == []


def test_a_running_task_stays_whatever_the_limits_say(directory: Path) -> None:
    """However old and large it is; and it does not count for the number of tasks."""
    with store(directory) as writer:
        write(writer, task_spans(1, ended=False))
        for number in (2, 3, 4):
            write(writer, task_spans(number))
    goes_on(directory, 1)
    committed(directory, 1, 0)
    with keeper(directory, limits(max_age=3600, max_tasks=2)) as retainer:
        work(retainer)
        assert kept(directory) == [1, 3, 4]
        with pytest.raises(TaskHistoryError, match="is running"):
            retainer.remove(trace_id(1))
    check_whole(directory)


def test_a_pinned_task_stays_and_does_not_count(directory: Path) -> None:
    """Until it is unpinned."""
    record(directory, range(1, 6))
    with TaskHistory(directory) as history:
        assert history.pin(trace_id(1)).pinned
        with pytest.raises(TaskHistoryError, match="pinned"):
            history.remove(trace_id(1))
        assert history.prune(Retention(max_tasks=2)).agent_tasks == 2
        assert kept(directory) == [1, 4, 5]
        assert not history.unpin(trace_id(1)[:31] + "1").pinned
        assert history.prune(Retention(max_tasks=2)).agent_tasks == 1
    assert kept(directory) == [4, 5]
    assert ask(directory, "SELECT count(*) FROM _pins") == [0]
    check_whole(directory)


def test_an_interrupted_task_ages_like_a_finished_one(directory: Path) -> None:
    """Its process is gone: nothing more comes."""
    with store(directory) as writer:
        for number in (1, 2, 3):
            write(writer, task_spans(number, ended=False))
    assert set(ask(directory, "SELECT status FROM tasks")) == {"interrupted"}
    goes_on(directory, 3)
    with keeper(directory, limits(max_tasks=1)) as retainer:
        work(retainer)
    assert kept(directory) == [2, 3]


def test_traces_whose_root_never_comes_do_not_stay_for_ever(directory: Path) -> None:
    """They say ``running``, but after an hour without news they are not any more."""
    with store(directory) as writer:
        for number in range(1, 6):
            same: dict[str, Any] = {"trace_id": trace_id(number)}
            write(writer, [model(2, 1, **same)])
    for number in range(1, 6):
        goes_on(directory, number)
    assert ask(directory, "SELECT DISTINCT status, root FROM tasks") == [("running", None)]
    now = max(ask(directory, "SELECT committed_ns FROM tasks"))
    with keeper(directory, limits(max_tasks=2), clock=lambda: now + ROOTLESS_NS) as retainer:
        retainer.step()
        assert 5 in kept(directory)
    with keeper(directory, limits(max_tasks=2), clock=lambda: now + ROOTLESS_NS + 1) as retainer:
        work(retainer)
    assert kept(directory) == [4, 5]
    check_whole(directory)


def test_other_traces_have_a_share_of_their_own(directory: Path) -> None:
    """A hundred health checks push out each other, and no agent's task."""
    with store(directory) as writer:
        write(writer, task_spans(1))
        for number in range(2, 102):
            write(writer, other_spans(number))
        write(writer, task_spans(102))
    with keeper(directory, limits(max_tasks=50)) as retainer:
        done = work(retainer)
    assert (done.agent_tasks, done.other_tasks) == (0, 95)
    assert kept(directory) == [1, 97, 98, 99, 100, 101, 102]
    (found,) = ask(directory, "SELECT DISTINCT reason FROM _retention")
    assert found == "max_tasks"
    check_whole(directory)


def test_other_traces_have_a_share_of_the_bytes(directory: Path) -> None:
    """A tenth of ``max_bytes``, about."""
    with store(directory) as writer:
        write(writer, task_spans(1))
        for number in range(2, 42):
            words = " ".join(str(number * 7_919 + n) for n in range(3_000))
            write(writer, other_spans(number, text=words))
    with keeper(directory, limits(max_bytes=4 * MIB)) as retainer:
        work(retainer)
    left = ask(directory, "SELECT sum(bytes) FROM tasks WHERE kind = 'other'")[0]
    assert 0.2 * MIB < left <= 0.4 * MIB
    assert 1 in kept(directory)
    assert 41 in kept(directory)


def test_every_span_belongs_to_a_task(directory: Path) -> None:
    """So there is nothing that no limit is about: neither orphans nor spans of nobody."""
    with store(directory) as writer:
        write(writer, [span(3, 2, trace_id=trace_id(1))])
        write(writer, [span(4, None, trace_id=trace_id(2), end=None)])
        write(writer, [span(5, 9, trace_id=trace_id(3), parent_remote=True)])
        write(writer, [own_step(6, 1, trace_id=trace_id(4))])
    assert ask(directory, "SELECT 1 FROM _spans WHERE task IS NULL") == []
    assert ask(directory, "SELECT 1 FROM _traces WHERE id NOT IN (SELECT trace FROM tasks)") == []


# --- late spans ----------------------------------------------------------------------------------


def test_a_late_span_does_not_bring_half_a_task_back(directory: Path) -> None:
    """It is dropped and counted as long as the task is remembered, and stored after that."""
    record(directory, range(1, 3))
    late = own_step(40, prompt="late", trace_id=trace_id(1))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        work(retainer)
        at = time.time_ns()
    with store(directory) as writer:
        write(writer, [entry(late, at - NOON)])
        write(writer, [entry(task_spans(1)[0], at - NOON)])
        assert writer.counters.late == 2
        assert kept(directory) == [2]
        assert ask(directory, "SELECT number FROM _totals WHERE name = 'late'") == [2]
        write(writer, [entry(late, at - NOON + REMEMBERED_NS + SECOND)])
        assert kept(directory) == [2, 1]
        assert writer.counters.late == 2


def test_a_late_span_of_a_task_that_is_worked_off_is_dropped_too(directory: Path) -> None:
    """Its rows are still there, but its task is gone."""
    with store(directory) as writer:
        spans = task_spans(1, steps=60)
        write(writer, spans)
        write(writer, task_spans(2))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        assert retainer.step(rows=20).more
        with store(directory) as writer:
            write(writer, [entry(one, time.time_ns() - NOON) for one in spans])
            assert writer.counters.late == len(spans)
            writer.flush(30)
        work(retainer)
    assert kept(directory) == [2]
    check_whole(directory)


def test_what_is_remembered_of_removed_tasks_is_bounded(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest stay."""
    monkeypatch.setattr("otel_taskhistory.store.removal.REMEMBERED", 5)
    record(directory, range(1, 13))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        work(retainer)
    found = ask(directory, "SELECT trace_id FROM _removed ORDER BY id")
    assert found == [trace_id(number) for number in range(7, 12)]


# --- several tasks in one trace ------------------------------------------------------------------


def two_runs(directory: Path) -> list[Any]:
    """Two agent runs, a day apart, with the same trace id; returns their spans."""
    first = [agent(1, None, start=0, end=9), model(2, 1, start=1, end=2, prompt="one " * 99)]
    day = 86_400
    second = [
        agent(3, None, start=day, end=day + 9),
        model(4, 3, start=day + 1, end=day + 2, prompt="two " * 99),
        model(5, 3, start=day + 3, end=day + 4, prompt="three " * 99),
    ]
    with store(directory) as writer:
        write(writer, first)
        write(writer, second)
    return [first, second]


@pytest.mark.parametrize("gone", [0, 1])
def test_tasks_of_one_trace_go_one_by_one(directory: Path, gone: int) -> None:
    """The other one stays as it is, also when spans of its own, or of the first, come later."""
    runs = two_runs(directory)
    ids = ask(directory, "SELECT task_id FROM tasks ORDER BY started_ns")
    assert len(ids) == 2
    stays = ids[1 - gone]
    before = ask(directory, "SELECT * FROM steps ORDER BY step_id")
    mine = [row for row in before if row[1] == stays]
    execute(directory, "UPDATE tasks SET committed_ns = 1 WHERE task_id = ?", ids[gone])
    with keeper(directory, limits(max_tasks=1)) as retainer:
        work(retainer)
    assert ask(directory, "SELECT task_id FROM tasks") == [stays]
    assert ask(directory, "SELECT * FROM steps ORDER BY step_id") == mine
    check_whole(directory)
    at = time.time_ns() - NOON
    with store(directory) as writer:
        write(writer, [entry(one, at) for one in runs[gone]])
        theirs, own = (1, 3) if gone == 0 else (3, 1)
        write(writer, [entry(model(9, theirs, start=5, end=6), at)])
        assert writer.counters.late == len(runs[gone]) + 1
        write(writer, [entry(model(8, own, start=7, end=8, prompt="more"), at)])
    assert ask(directory, "SELECT task_id FROM tasks") == [stays]
    assert len(ask(directory, "SELECT 1 FROM steps")) == len(mine) + 1
    with keeper(directory) as retainer:
        retainer.remove(stays)
        work(retainer)
    assert ask(directory, "SELECT 1 FROM _spans") == []
    check_whole(directory)


# --- a running task alone over the limit ---------------------------------------------------------


def test_a_running_task_alone_over_the_limit_is_kept_and_told_of(directory: Path) -> None:
    """Only the files of its oldest finished steps' screenshots may go, and are marked."""
    limit = 2 * 10**6
    problems: list[Exception] = []
    same: dict[str, Any] = {"trace_id": trace_id(2)}
    with store(directory) as writer:
        write(writer, task_spans(1))
        write(writer, [own_task(1, end=None, **same)])
        for number in range(1, 31):
            events = (shot(writer, png(number, 90_000)),)
            end = None if number == 30 else number + 0.5
            step = own_step(100 + number, 1, index=number, events=events, end=end, **same)
            write(writer, [step])
            last = step
    goes_on(directory, 2)
    age_files(directory)
    assert size_on_disk(directory) > limit
    with keeper(directory, limits(max_bytes=limit), problem=problems.append) as retainer:
        done = work(retainer)
        assert kept(directory) == [2]
        assert done.files > 0
        assert not done.too_large
        assert size_on_disk(directory) <= limit
    shots = ask(directory, "SELECT status, path IS NULL FROM screenshots ORDER BY id")
    gone = sum(status == "removed" for status, _ in shots)
    assert shots == [("removed", 1)] * gone + [("ok", 0)] * (30 - gone)
    assert gone < 30
    assert len(files(directory)) == 30 - gone
    assert len(ask(directory, "SELECT 1 FROM steps")) == 30
    check_whole(directory)
    # The span comes again, as it does when it ends: what is gone stays gone.
    with store(directory) as writer:
        first = own_step(101, 1, index=1, events=(shot(writer, png(1, 90_000)),), **same)
        write(writer, [first, last])
    assert ask(directory, "SELECT status, path FROM screenshots ORDER BY id LIMIT 1") == [
        ("removed", None)
    ]


def test_what_cannot_be_made_smaller_is_told_once(directory: Path) -> None:
    """A running task of text alone: kept whole, with a record, a warning, and no busy loop."""
    problems: list[Exception] = []
    same: dict[str, Any] = {"trace_id": trace_id(1)}
    words = " ".join(str(n * 7919) for n in range(300_000))
    with store(directory) as writer:
        write(writer, [own_task(1, end=None, **same), own_step(2, prompt=words, index=1, **same)])
    goes_on(directory, 1)
    before = ask(directory, "SELECT prompt FROM steps")
    with keeper(directory, limits(max_bytes=MIB), problem=problems.append) as retainer:
        for _ in range(5):
            done = retainer.step()
            assert (done.too_large, done.more, done.tasks) == (True, False, 0)
    assert ask(directory, "SELECT prompt FROM steps") == before
    assert len(problems) == 1
    assert "max_bytes" in str(problems[0])
    assert ask(directory, "SELECT reason FROM _retention") == ["too_large"]
    assert ask(directory, "SELECT count(*) FROM timeline WHERE event = 'pruned'") == [1]


# --- records -------------------------------------------------------------------------------------


def test_each_pass_that_removes_something_leaves_a_record(directory: Path) -> None:
    """When, because of which limit, how many tasks, files and bytes; the timeline tells it too."""
    with store(directory) as writer:
        for number in range(1, 5):
            write(writer, task_spans(number, shots=(shot(writer, png(number, 9_000)),)))
        for number in range(5, 8):
            write(writer, other_spans(number))
    age_files(directory)
    now = time.time_ns()
    committed(directory, 1, now - 100 * DAY)
    retention = Retention(timedelta(days=30), 2, None)
    with keeper(directory, retention, clock=lambda: now) as retainer:
        done = work(retainer)
    with TaskHistory(directory) as history:
        found = {one.reason: one for one in history.retention_records()}
    assert set(found) == {"max_age", "max_tasks"}
    assert (found["max_age"].agent_tasks, found["max_age"].files) == (1, 1)
    assert found["max_age"].oldest == found["max_age"].newest
    assert (found["max_tasks"].agent_tasks, found["max_tasks"].other_tasks) == (1, 2)
    assert found["max_age"].bytes + found["max_tasks"].bytes == done.bytes > 18_000
    told = [
        json.loads(detail)
        for detail in ask(directory, "SELECT detail FROM timeline WHERE event = 'pruned'")
    ]
    assert {one["reason"]: one["agent_tasks"] for one in told} == {"max_age": 1, "max_tasks": 1}
    assert "goal" not in json.dumps(told)


def test_the_newest_records_are_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with them what the timeline says of them: neither grows without end."""
    monkeypatch.setattr(records, "KEPT", 3)
    record(directory, range(1, 8))
    with keeper(directory) as retainer:
        for number in range(1, 7):
            retainer.remove(trace_id(number))
    assert ask(directory, "SELECT count(*) FROM _retention") == [3]
    assert ask(directory, "SELECT count(*) FROM timeline WHERE event = 'pruned'") == [3]


def test_who_was_behind_can_tell_that_records_are_gone(directory: Path) -> None:
    """The greatest number of the timeline that was removed is remembered."""
    record(directory, range(1, 4))
    last = ask(directory, "SELECT max(seq) FROM timeline WHERE task_id = ?", trace_id(2))[0]
    with keeper(directory) as retainer:
        assert records.pruned_up_to(retainer._connection) == 0
        retainer.remove(trace_id(2))
        assert records.pruned_up_to(retainer._connection) == last
        retainer.remove(trace_id(1))
        assert records.pruned_up_to(retainer._connection) == last


def test_how_much_a_task_has_added_is_about_known(directory: Path) -> None:
    """The sum over the tasks is what the history has grown by."""
    with store(directory) as writer:
        before = writer._session.retainer.space.usage().content  # type: ignore[union-attr]
        for number in range(1, 6):
            events = (shot(writer, png(number, 20_000)),)
            write(writer, task_spans(number, steps=4, shots=events))
        after = writer._session.retainer.space.usage().content  # type: ignore[union-attr]
    sizes = ask(directory, "SELECT bytes FROM tasks")
    assert sum(sizes) == pytest.approx(after - before, abs=5)
    assert min(sizes) > 20_000
