# SPDX-License-Identifier: Apache-2.0
"""Killed between any two steps of a pass, retention is finished by whoever opens next."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_taskhistory.store import faults
from tests.processes import PATIENCE, PROGRAMS
from tests.store.deliveries import png, write
from tests.store.keeping import (
    age_files,
    ask,
    check_whole,
    files,
    goes_on,
    keeper,
    kept,
    limits,
    record,
    shot,
    store,
    task_spans,
    trace_id,
    work,
)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of tasks small and large, with pictures of their own and shared ones."""
    directory = tmp_path_factory.mktemp("kill") / "history"
    with store(directory) as writer:
        for number in range(1, 7):
            events = (shot(writer, png(number, 500)), shot(writer, png(99, 500)))
            words = " ".join(str(number * 7919 + n) for n in range(12_000))
            write(
                writer, task_spans(number, steps=1 if number != 2 else 40, shots=events, text=words)
            )
        write(writer, task_spans(7, ended=False))
    goes_on(directory, 7)
    return directory


def run(directory: Path, point: str, times: int) -> list[str]:
    """Run the program, which dies at that point; returns the points that it passed."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "prune_until_killed.py"), directory, point, str(times)],
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ),
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert (done.returncode == 0) == (point == "none"), done.stdout
    return done.stdout.split()


def copy_of(full: Path, to: Path) -> Path:
    """A history to be spoiled, whose files are an hour old."""
    shutil.copytree(full, to)
    age_files(to)
    return to


def test_a_pass_goes_by_every_point(full: Path, tmp_path: Path) -> None:
    """So that the tests below are about all of them."""
    passed = run(copy_of(full, tmp_path / "history"), "none", 0)
    assert set(passed) == set(faults.POINTS)


@pytest.mark.parametrize(
    ("point", "times"),
    [(point, 1) for point in faults.POINTS]
    + [(point, 2) for point in faults.POINTS if point != "space.folded"],  # once, at the end
)
def test_the_next_open_finishes_what_was_begun(
    full: Path, tmp_path: Path, point: str, times: int
) -> None:
    """Nothing is half there right after the kill, and the next one comes to the same end."""
    directory = copy_of(full, tmp_path / "history")
    run(directory, point, times)
    for table in ("steps", "screenshots", "timeline", "model_calls", "tool_calls"):
        sql = f"SELECT 1 FROM {table} WHERE task_id NOT IN (SELECT task_id FROM tasks)"
        assert ask(directory, sql) == []
    assert ask(directory, "SELECT 1 FROM spans WHERE trace_id LIKE 'removed%'") == []
    # A row whose file is gone is what must never be; a file whose row is gone may wait.
    rows = set(ask(directory, "SELECT path FROM _artifacts"))
    assert rows <= files(directory)
    assert set(ask(directory, "SELECT path FROM screenshots")) == rows
    with keeper(directory, limits(max_tasks=2)) as retainer:
        work(retainer)
    assert kept(directory) == [5, 6, 7]
    assert len(files(directory)) == 3
    check_whole(directory)


def test_removal_goes_on_where_a_whole_history_was_left(full: Path, tmp_path: Path) -> None:
    """Killed again and again, each time a little further on."""
    directory = copy_of(full, tmp_path / "history")
    for times in (1, 2, 3, 2, 1):
        run(directory, "removal.batch", times)
    with keeper(directory, limits(max_tasks=2)) as retainer:
        work(retainer)
    assert kept(directory) == [5, 6, 7]
    check_whole(directory)


def test_tasks_that_show_the_same_picture_never_lose_it(tmp_path: Path) -> None:
    """Two agents record it again and again while each removes what the other has recorded."""
    directory = tmp_path / "history"
    record(directory, range(1, 2))
    agents = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "same_picture.py"), directory, "25"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    looks = 0
    while any(agent.poll() is None for agent in agents):
        for path in ask(directory, "SELECT path FROM screenshots"):
            there = (directory / "artifacts" / path).exists()
            # It may have gone with its task since the question was asked, but not before.
            assert there or ask(directory, "SELECT path FROM screenshots") != [path]
        looks += 1
        time.sleep(0.01)
    for agent in agents:
        out, errors = agent.communicate(timeout=PATIENCE)
        assert (out, agent.returncode) == ("done\n", 0), errors
    assert looks > 3
    (path,) = files(directory)
    assert set(ask(directory, "SELECT status, path FROM screenshots")) == {("ok", path)}


def test_pruning_while_an_agent_writes_loses_nothing_of_it(tmp_path: Path) -> None:
    """Tasks of a large backlog go in short transactions; what comes meanwhile is all there."""
    directory = tmp_path / "history"
    record(directory, range(1, 60), steps=3)
    with store(directory) as writer, keeper(directory, limits(max_tasks=10)) as retainer:
        number = 60

        def meanwhile(seconds: float) -> None:
            nonlocal number
            write(writer, task_spans(number, steps=2))
            number += 1

        retainer.run(pause=meanwhile)
        while retainer.step().more:
            pass
    assert number > 62
    newest = kept(directory)
    assert newest == list(range(number - len(newest), number))
    assert 10 <= len(newest) <= 12
    for task in newest:
        steps = ask(directory, "SELECT count(*) FROM steps WHERE task_id = ?", trace_id(task))
        assert steps == [2 if task >= 60 else 3]
    with keeper(directory) as retainer:
        work(retainer)
    check_whole(directory)
