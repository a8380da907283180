# SPDX-License-Identifier: Apache-2.0
"""A component that has not said which service it is changes nothing in a history that has one."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import Retention, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.store.stamp import ARTIFACT_STAMP
from tests.processes import SOUND_PNG, listing, one, rows
from tests.workers import Worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")


def component(directory: Path, service: str | None, **settings: Any) -> TaskHistoryExporter:
    """A hand-wired exporter of a component, with its tracer in ``tasks``."""
    exporter = TaskHistoryExporter(directory, **settings)
    resource = Resource.create({"service.name": service} if service else {})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    exporter.tasks = TaskTracer(provider, exporter=exporter)  # type: ignore[attr-defined]
    return exporter


def work(exporter: Any, goal: str) -> None:
    """A task with one step."""
    with exporter.tasks.task(goal) as task, task.step() as step:
        step.prompt(f"prompt of {goal}")
        step.screenshot(SOUND_PNG)


def of_another(directory: Path) -> None:
    """A history of the service ``desk``: tasks, a dead process, a file that no row knows."""
    owner = component(directory, "desk")
    for number in range(3):
        work(owner, f"task {number}")
    owner.shutdown()
    with Worker(directory) as worker:
        worker.kill()
    orphan = directory / "artifacts" / "ab" / f"{'ab' * 32}.png"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"left behind")
    long_ago = time.time() - 3600
    os.utime(orphan, (long_ago, long_ago))
    with closing(sqlite3.connect(directory / "history.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def content(directory: Path) -> dict[str, Any]:
    """Every table's rows, and all files but the database's own."""
    with closing(sqlite3.connect(directory / "history.db")) as database:
        tables = database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        found: dict[str, Any] = {
            name: database.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables
        }
    files = listing(directory / "artifacts")
    return {**found, "files": files}


def test_a_component_that_is_refused_has_changed_nothing(tmp_path: Path) -> None:
    """It signs in nowhere, removes nothing by its own limits, and marks nobody as interrupted."""
    directory = tmp_path / "history"
    of_another(directory)
    before = content(directory)
    assert before["tasks"]
    assert (directory / "artifacts" / ARTIFACT_STAMP).exists()
    stranger = component(
        directory,
        "runtime",
        retention=Retention(max_tasks=1, max_age=timedelta(microseconds=1), max_bytes=1),
    )
    assert content(directory) == before
    work(stranger, "refused")
    assert stranger.force_flush()
    stranger.shutdown()
    assert stranger.stats()["lost"] == 2
    assert content(directory) == before


@pytest.mark.parametrize("service", ["desk", None])
def test_one_that_is_accepted_signs_in_with_its_first_span(
    tmp_path: Path, service: str | None
) -> None:
    """Then it does all that is done on open: what the dead left is noted, old files go."""
    directory = tmp_path / "history"
    of_another(directory)
    orphan = directory / "artifacts" / "ab" / f"{'ab' * 32}.png"
    writers = one(directory, "SELECT count(*) FROM _processes")
    accepted = component(directory, service)
    assert one(directory, "SELECT count(*) FROM _processes") == writers
    work(accepted, "accepted")
    assert one(directory, "SELECT count(*) FROM _processes") == writers + 1
    assert rows(directory, "SELECT count(*) FROM tasks WHERE status = 'interrupted'") == [(1,)]
    for _ in range(3):
        work(accepted, "more")
    assert not orphan.exists()
    accepted.shutdown()
    assert one(directory, "SELECT count(*) FROM _processes WHERE ended_ns IS NULL") == 0


@pytest.mark.parametrize("settings", [{"service_name": "desk"}, {"owner": "host-agent"}], ids=str)
def test_one_that_says_who_it_is_signs_in_at_once(tmp_path: Path, settings: dict[str, str]) -> None:
    """By its service, or by an owner that somebody chose."""
    directory = tmp_path / "history"
    of_another(directory)
    component(directory, "desk", **settings).shutdown()
    assert rows(directory, "SELECT count(*) FROM tasks WHERE status = 'interrupted'") == [(1,)]
