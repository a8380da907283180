# SPDX-License-Identifier: Apache-2.0
"""Recorded telemetry becomes a history as if it had been recorded live, in any order, once."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.otlp import Given, PassedOver, Rejected
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.importing import RECORDS, Importer, import_records
from otel_taskhistory.store.writer import Writer
from tests.otlp import records_in
from tests.store.deliveries import (
    NOON,
    agent,
    check,
    model,
    own_step,
    own_task,
    public,
    rows,
    span,
    stored,
    tool,
)
from tests.store.test_logs import log

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FILES = sorted(file for file in CORPUS.glob("*.jsonl") if ".logs." not in file.name)[::4]


def imported(directory: Path, *batches: Sequence[SpanRecord | LogRecord]) -> Path:
    """A history of several imports, a process each; returns its database."""
    for batch in batches:
        settings = Settings.resolve(directory=directory, durability="normal")
        writer = Writer(settings, clock=lambda: NOON)
        try:
            done = import_records(writer, batch, clock=lambda: NOON)
        finally:
            writer.close()
        assert done.whole
        assert done.spans + done.logs == len(batch)
    check(directory / "history.db")
    return directory / "history.db"


def said(database: Path) -> dict[str, list[dict[str, Any]]]:
    """The public tables, whichever process wrote them."""
    tables = {name: map(json.loads, found) for name, found in public(database).items()}
    return {
        name: [{key: value for key, value in row.items() if key != "process"} for row in found]
        for name, found in tables.items()
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_imported_is_as_live(tmp_path: Path, file: Path) -> None:
    """Whether spans come live, by one import, by several, or again: the tables are the same."""
    records = [replace(one, end_ns=one.end_ns or None) for one in records_in(file)]
    live = said(stored(tmp_path / "live", [[one] for one in records]))
    assert said(imported(tmp_path / "import", records)) == live
    shuffled = list(records)
    random.Random(file.stem).shuffle(shuffled)
    half = len(shuffled) // 2
    again = imported(tmp_path / "again", shuffled[:half], shuffled[half:], records)
    assert said(again) == live


def test_what_never_ended_is_interrupted_when_the_import_is_over(tmp_path: Path) -> None:
    """A recording of a run that was killed looks like one; the end may still be imported."""
    run = [agent(1, None, end=None), model(2, 1), tool(3, 1, end=None)]
    database = imported(tmp_path, run)
    statuses = "SELECT status FROM tasks UNION ALL SELECT status FROM tool_calls"
    assert [row["status"] for row in rows(database, statuses)] == ["interrupted"] * 2
    imported(tmp_path, run)
    assert [row["status"] for row in rows(database, statuses)] == ["interrupted"] * 2
    imported(tmp_path, [agent(1, None), tool(3, 1)])
    assert [row["status"] for row in rows(database, statuses)] == ["succeeded"] * 2


def test_a_trace_whose_root_never_came_is_interrupted(tmp_path: Path) -> None:
    """All of its spans ended, but the one above them is missing."""
    database = imported(tmp_path, [model(2, 1), tool(3, 2)])
    assert rows(database, "SELECT status FROM tasks") == [{"status": "interrupted"}]
    imported(tmp_path, [agent(1, None)])
    assert rows(database, "SELECT status FROM tasks") == [{"status": "succeeded"}]


def test_age_counts_from_the_import(tmp_path: Path) -> None:
    """An old task is new here."""
    old = [replace(agent(1, None), start_ns=10**18, end_ns=10**18 + 5)]
    database = imported(tmp_path, old)
    assert rows(database, "SELECT committed_ns FROM tasks") == [{"committed_ns": NOON}]


def test_other_services_and_owners_own_spans(tmp_path: Path) -> None:
    """A recording of our own tracer is what it was there, and the history keeps its stamp."""
    database = imported(tmp_path, [own_task(), own_step(2, prompt="asked")])
    assert rows(database, "SELECT prompt FROM steps") == [{"prompt": "asked"}]
    assert rows(database, "SELECT value FROM _meta WHERE key = 'service_name'") == []


def test_many_records_in_few_transactions(tmp_path: Path) -> None:
    """Some hundred at a time, or some megabytes."""
    many = [span(number, 1) for number in range(2, 3 * RECORDS)]
    writer = Writer(Settings.resolve(directory=tmp_path))
    try:
        import_records(writer, [span(1), *many])
        assert writer.counters.commits == 3
        import_records(
            writer, [span(n, 1, attributes={"a": "x" * 2**22}) for n in range(5000, 5008)]
        )
        assert 6 <= writer.counters.commits <= 8
    finally:
        writer.close()


def test_items_are_counted_by_kind(tmp_path: Path) -> None:
    """What is rejected says why; what belongs to no span is told by what it is."""
    writer = Writer(Settings.resolve(directory=tmp_path))
    try:
        importer = Importer(writer)
        assert importer.take(Given(span(1), frozenset({"events"}))) is None
        assert importer.take(Given(log(1, "x"))) is None
        assert importer.take(Rejected("because")) == "because"
        assert importer.take(PassedOver("metrics", 3)) is None
        done = importer.finish()
    finally:
        writer.close()
    assert (done.spans, done.logs, done.rejected, done.whole) == (1, 1, 1, False)
    assert done.passed_over == {"metrics": 3}
    found = rows(tmp_path / "history.db", "SELECT marks FROM spans")
    assert found == [{"marks": '["events"]'}]


def test_a_history_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is told, with what is in already; nothing waits for ever."""
    monkeypatch.setattr("otel_taskhistory.store.importing._WAIT", 0.2)
    writer = Writer(Settings.resolve(directory=tmp_path, busy_timeout=0.1))
    try:
        import_records(writer, [span(1)])
        with closing(sqlite3.connect(tmp_path / "history.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TaskHistoryError, match="cannot be written"):
                import_records(writer, [span(2, 1)])
            other.rollback()
    finally:
        writer.close()


def test_names_of_reduced_attributes_cannot_cost_the_span(tmp_path: Path) -> None:
    """Whoever says them may say anything there: half an emoji, a number that is too long."""
    attributes = {"taskhistory.reduced": ["a", "n\ud83e", 10**5_000, None]}
    database = imported(tmp_path, [span(1, attributes=attributes)])
    (row,) = rows(database, "SELECT marks FROM spans")
    assert set(json.loads(row["marks"])) == {"a", "n\\ud83e", "attributes"}
