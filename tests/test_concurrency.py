# SPDX-License-Identifier: Apache-2.0
"""Many threads and asyncio tasks at once: nothing is lost, commits are shared, no loop stands."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory.testing import Recorded
from tests.processes import PATIENCE, PROGRAMS, check, one, rows

AGENTS = 32
STEPS = 4


def test_thirty_two_threads_record_at_once(taskhistory: Recorded) -> None:
    """Every step of every task is there, whole, and they shared their commits."""
    barrier = threading.Barrier(AGENTS)

    def agent(number: int) -> None:
        barrier.wait(PATIENCE)
        with taskhistory.tasks.task(f"goal {number}") as task:
            for turn in range(STEPS):
                with task.step(f"step {turn}") as step:
                    step.prompt(f"question {number} {turn}")
                    step.decision(f"answer {number} {turn}")

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(AGENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    check_all_there(taskhistory)


async def test_thirty_two_asyncio_tasks_record_at_once(taskhistory: Recorded) -> None:
    """In one thread, each waits for its commits without holding up the others."""

    async def agent(number: int) -> None:
        async with taskhistory.tasks.task(f"goal {number}") as task:
            for turn in range(STEPS):
                async with task.step(f"step {turn}") as step:
                    step.prompt(f"question {number} {turn}")
                    await asyncio.sleep(0)
                    step.decision(f"answer {number} {turn}")

    await asyncio.gather(*(agent(number) for number in range(AGENTS)))
    check_all_there(taskhistory)


def check_all_there(recorded: Recorded) -> None:
    """Every task with every step, in fewer commits than there were things to commit."""
    directory = recorded.directory
    assert rows(
        directory,
        "SELECT goal, status, step_count FROM tasks ORDER BY CAST(substr(goal, 6) AS INTEGER)",
    ) == [(f"goal {number}", "succeeded", STEPS) for number in range(AGENTS)]
    assert sorted(rows(directory, "SELECT prompt, decision, status FROM steps")) == sorted(
        (f"question {number} {turn}", f"answer {number} {turn}", "succeeded")
        for number in range(AGENTS)
        for turn in range(STEPS)
    )
    stats = recorded.exporter.stats()
    assert stats["spans"] == AGENTS * (STEPS + 1)
    assert stats["lost"] == stats["away"] == stats["waiting"] == 0
    assert stats["commits"] < stats["spans"] + stats["checkpoints"]
    check(directory)


async def test_leaving_a_step_does_not_block_the_loop_and_awaits_the_commit(
    taskhistory: Recorded,
) -> None:
    """While somebody else holds the write lock, other coroutines go on; the step is left when it
    is committed.
    """
    database = taskhistory.directory / "history.db"
    left = asyncio.Event()
    async with taskhistory.tasks.task("a goal") as task:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:

            async def leave() -> None:
                async with task.step("slow to commit"):
                    other.execute("BEGIN IMMEDIATE")
                left.set()

            leaving = asyncio.create_task(leave())
            # The commit cannot succeed; this coroutine makes progress all the same.
            for _ in range(1000):
                await asyncio.sleep(0)
            assert other.in_transaction
            assert not left.is_set()
            assert one(taskhistory.directory, "SELECT status FROM steps") == "running"
            other.execute("ROLLBACK")
            await asyncio.wait_for(leaving, PATIENCE)
            assert one(taskhistory.directory, "SELECT status FROM steps") == "succeeded"
    assert taskhistory.exporter.stats()["away"] == 0


async def test_a_coroutine_that_is_cancelled_while_it_awaits_the_commit_loses_nothing(
    taskhistory: Recorded,
) -> None:
    """The cancellation goes through, and the step is committed all the same."""
    database = taskhistory.directory / "history.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as other:

        async def agent() -> None:
            async with taskhistory.tasks.task("a goal") as task, task.step("left"):
                other.execute("BEGIN IMMEDIATE")

        running = asyncio.create_task(agent())
        for _ in range(100):
            await asyncio.sleep(0)
        assert other.in_transaction
        running.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        other.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await running
    assert taskhistory.exporter.force_flush()
    assert rows(taskhistory.directory, "SELECT status FROM steps") == [("succeeded",)]
    assert rows(taskhistory.directory, "SELECT status FROM tasks") == [("cancelled",)]


def fsyncs(directory: Path, durability: str) -> dict[str, list[int]]:
    """How many fsyncs came before each step's end and at it, by ``strace``."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("fsyncs are counted with strace, which is not installed")
    done = subprocess.run(
        [
            *(strace, "-f", "-qq", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none"),
            *(sys.executable, str(PROGRAMS / "durability.py"), str(directory), durability),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "ptrace" in done.stderr and done.returncode:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    counts: dict[str, list[int]] = {}
    phase = "opening"
    counts[phase] = [0]
    for line in done.stderr.splitlines():
        if marked := re.search(r'write\(2, "mark (\w+)', line):
            phase = marked[1]
            counts.setdefault(phase, []).append(0)
        elif re.search(r"\bf(data)?sync\(", line):
            counts[phase][-1] += 1
    return counts


def test_full_durability_costs_one_fsync_an_ended_step_and_none_a_checkpoint(
    tmp_path: Path,
) -> None:
    """Counted at the system's side: the fsync is done before the end of the step returns."""
    counts = fsyncs(tmp_path / "history", "full")
    assert counts["checkpoints"] == [0] * 5
    assert counts["end"] == [1] * 5


def test_normal_durability_costs_no_fsync(tmp_path: Path) -> None:
    """A step survives the death of the process without one."""
    counts = fsyncs(tmp_path / "history", "normal")
    assert counts["checkpoints"] == [0] * 5
    assert counts["end"] == [0] * 5


def test_concurrent_steps_share_fsyncs(taskhistory: Recorded, tmp_path: Path) -> None:
    """Thirty-two that end during one commit are all in the next one."""
    with (
        closing(
            sqlite3.connect(taskhistory.directory / "history.db", isolation_level=None)
        ) as other,
        taskhistory.tasks.task("a goal") as task,
    ):
        steps = [task.step(f"step {number}") for number in range(AGENTS)]
        assert taskhistory.exporter.force_flush()  # the beginning of the last may still be queued
        before = taskhistory.exporter.stats()["commits"]
        other.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=step.end) for step in steps]
        for thread in threads:
            thread.start()
        writer = taskhistory.exporter._writer
        while len(writer._commit._queue) < AGENTS - 1:
            time.sleep(0.001)  # one of them is in the commit that waits for the lock
        other.execute("ROLLBACK")
        for thread in threads:
            thread.join(PATIENCE)
        assert taskhistory.exporter.stats()["commits"] <= before + 2
    assert rows(taskhistory.directory, "SELECT DISTINCT status FROM steps") == [("succeeded",)]
