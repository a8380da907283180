# SPDX-License-Identifier: Apache-2.0
"""Processes that fork, are interrupted, and end: each records its own, and none hangs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.processes import Program, check, one, rows, run


def goals(directory: Path, status: str = "succeeded") -> list[str]:
    """Of the tasks with this status, sorted."""
    found = rows(directory, "SELECT goal FROM tasks WHERE status = ? ORDER BY goal", status)
    return [goal for (goal,) in found]


def test_a_fork_while_other_threads_are_in_the_middle_of_commits(tmp_path: Path) -> None:
    """Ten children record a task each, the parent's threads go on, nobody's steps are lost."""
    run("fork", tmp_path, "busy")
    check(tmp_path)
    done = goals(tmp_path)
    assert [goal for goal in done if not goal.startswith("thread")] == [
        *(f"child {number}" for number in range(10)),
        "parent",
    ]
    assert goals(tmp_path, "running") == []
    assert one(tmp_path, "SELECT count(*) FROM steps WHERE status = 'succeeded'") == 3 * len(done)
    # Each wrote for itself: 11 processes have begun something.
    assert one(tmp_path, "SELECT count(DISTINCT pid) FROM _processes") == 11


def test_a_child_does_not_end_the_spans_of_its_parent(tmp_path: Path) -> None:
    """It leaves the blocks it was forked in; the parent's task, step and foreign span go on."""
    run("fork", tmp_path, "inside")
    check(tmp_path)
    assert goals(tmp_path) == ["child", "parent"]
    assert rows(tmp_path, "SELECT decision, status FROM steps WHERE name = 'of the parent'") == [
        ("said by the parent", "succeeded")
    ]
    assert one(tmp_path, "SELECT result FROM tasks WHERE goal = 'parent'") == "by the parent"
    # The foreign span was ended by the parent, after the child was gone.
    last_of_child, foreign = (
        one(tmp_path, f"SELECT max(end_time_unix_nano) FROM spans WHERE {which}")
        for which in ("name LIKE 'child%'", "name = 'foreign'")
    )
    assert foreign > last_of_child


def test_a_child_of_a_child_and_normal_exits(tmp_path: Path) -> None:
    """Three processes, three connections, one history."""
    run("fork", tmp_path, "twice")
    check(tmp_path)
    assert goals(tmp_path) == ["child", "grandchild", "parent", "parent again"]


def test_children_of_multiprocessing_leave_without_exit_handlers(tmp_path: Path) -> None:
    """What a step recorded is on disk when it has ended, not at the exit."""
    run("fork", tmp_path, "multiprocessing")
    check(tmp_path)
    assert goals(tmp_path) == ["child 0", "child 1", "child 2", "parent"]
    assert one(tmp_path, "SELECT count(*) FROM steps WHERE status = 'succeeded'") == 12


def test_a_child_reads_what_its_parent_has_begun(tmp_path: Path) -> None:
    """The look-up of a key opens the history in the child by itself."""
    run("fork", tmp_path, "keyed")
    assert goals(tmp_path) == ["child", "parent"]


def test_a_child_that_records_nothing_opens_nothing(tmp_path: Path) -> None:
    """No thread, no connection, no row."""
    run("fork", tmp_path, "silent")
    assert goals(tmp_path) == ["parent"]
    assert one(tmp_path, "SELECT count(*) FROM _processes") == 1


@pytest.mark.parametrize("how", ["loop", "daemons", "atexit", "del", "exit"])
def test_an_untidy_exit_neither_hangs_nor_loses_what_had_returned(tmp_path: Path, how: str) -> None:
    """An open event loop, daemon threads, exit handlers, ``__del__``, ``os._exit``."""
    directory = tmp_path / "history"
    with Program("leave", directory, how) as agent:
        agent.end()
    check(directory)
    assert "ends" in goals(directory)
    assert rows(directory, "SELECT status FROM steps WHERE name = 'ends'") == [("succeeded",)]
    assert one(directory, "SELECT count(*) FROM steps WHERE name = 'daemon'") >= (
        8 if how == "daemons" else 0
    )


def test_a_terminated_process_has_recorded_what_had_returned(tmp_path: Path) -> None:
    """SIGTERM runs no exit handler at all."""
    with Program("leave", tmp_path, "term") as agent:
        assert agent.process.wait(60) == -signal.SIGTERM
    check(tmp_path)
    assert goals(tmp_path) == ["ends"]


def test_a_signal_handler_that_records_while_its_thread_is_inside_an_export(
    tmp_path: Path,
) -> None:
    """Two hundred signals: it does not hang, and all that both have recorded is there."""
    run("leave", tmp_path, "signals")
    check(tmp_path)
    done = goals(tmp_path)
    assert done.count("handler") == 200
    assert done.count("ends") == 1
    assert goals(tmp_path, "running") == []
    assert one(tmp_path, "SELECT count(*) FROM steps WHERE status = 'succeeded'") == len(done)
