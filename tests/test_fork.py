# SPDX-License-Identifier: Apache-2.0
"""A fork finds none of our threads in the middle of something."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from otel_taskhistory.snapshots import Snapshots
from tests.processes import PATIENCE, PROGRAMS, Program, rows, run
from tests.recorded import one_task, recording

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")


def test_no_thread_of_ours_is_there_at_a_fork_and_all_go_on_after_it(tmp_path: Path) -> None:
    """Neither the writing thread nor the one that watches open spans; the watch goes on."""
    directory = tmp_path / "history"
    with Program("fork_quietly", directory) as program:
        for number in range(3):
            program.until(f"forked {number}")
            wanted = f'"n": {number}'
            for _ in range(2000):
                (found,) = rows(directory, "SELECT prompt FROM steps") or [("",)]
                if found[0] is not None and wanted in found[0]:
                    break
                threading.Event().wait(0.01)
            assert wanted in (found[0] or "")
            program.go_on()
        assert program.end() == "threads [1, 1, 1]\n"
    assert rows(directory, "SELECT status FROM steps") == [("succeeded",)]


@pytest.mark.parametrize("how", ["inside", "twice", "multiprocessing", "keyed", "silent"])
def test_python_does_not_warn_of_our_threads(tmp_path: Path, how: str) -> None:
    """Since 3.12 it warns of a fork while there are other threads; here that is an error."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error::DeprecationWarning:__main__"),
            *("-W", "error::DeprecationWarning:multiprocessing"),
            *(PROGRAMS / "fork.py", tmp_path / "history", how),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "DeprecationWarning" not in done.stderr


def test_a_look_that_stands_still_does_not_hold_up_a_fork_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is left alone after a second at most, and another thread watches from then on."""
    monkeypatch.setattr("otel_taskhistory.snapshots._FORK_SECONDS", 0.01)
    entered, go_on, again = threading.Event(), threading.Event(), threading.Event()
    looks: list[int] = []

    def open_spans() -> dict[tuple[int, int], object]:
        looks.append(threading.get_ident())
        if not entered.is_set():
            entered.set()
            go_on.wait(PATIENCE)
        elif looks[-1] not in (looks[0], threading.main_thread().ident):
            again.set()
        return {}

    snapshots = Snapshots(open_spans, lambda span: None, interval=0.001)  # type: ignore[arg-type]
    snapshots.begin()
    assert entered.wait(PATIENCE)
    first = snapshots._thread
    snapshots.pause()
    snapshots.resume()
    snapshots.begin()
    assert again.wait(PATIENCE)
    go_on.set()
    assert first is not None
    first.join(PATIENCE)
    assert not first.is_alive()
    snapshots.stop()


def test_the_watch_of_a_processor_that_was_shut_down_does_not_come_back() -> None:
    """A fork after the shutdown changes nothing."""
    snapshots = Snapshots(dict, lambda span: None, interval=0.001)
    snapshots.begin()
    thread = snapshots._thread
    snapshots.stop()
    snapshots.pause()
    snapshots.resume()
    snapshots.begin()
    assert thread is not None
    thread.join(PATIENCE)
    assert snapshots._thread is None


def test_a_fork_while_another_thread_is_reading(tmp_path: Path) -> None:
    """The child reads by a connection of its own, and does not hang at its end on the parent's."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        one_task(tasks)
    assert run("fork_reader", directory) == "child 1\nparent 1 0\n"
