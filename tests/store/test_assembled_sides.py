# SPDX-License-Identifier: Apache-2.0
"""Traces without a task go as tasks do: see `test_sides` for the limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store.writer import Entry, Writer
from tests.store.deliveries import NOON, SECOND, check, rows, span
from tests.store.test_assembled import meant

HOUR = 3600 * SECOND


def built(number: int) -> Entry:
    """An agent was made ready, in a trace of its own."""
    record = span(1, None, end=5, attributes={"long": f"{number}" * 500})
    return meant(replace(record, trace_id=f"{number:032x}"), role="setup")


def test_they_go_by_age_with_all_they_hold(tmp_path: Path) -> None:
    """No row is left of them, and their late spans bring nothing back."""
    now = NOON
    settings = Settings.resolve(
        directory=tmp_path, durability="normal", retention=Retention(max_age=timedelta(hours=1))
    )
    writer = Writer(settings, clock=lambda: now)
    try:
        for number in range(5):
            writer.submit([built(number)], durable=False)
        now += 2 * HOUR
        late = replace(built(2).record, span_id="ab" * 8)
        writer.submit([meant(replace(span(1, None), trace_id="f" * 32))], durable=False)
    finally:
        writer.close()
    database = tmp_path / "history.db"
    with_rest = Writer(settings, clock=lambda: now)
    try:
        with_rest.submit([meant(late, role="setup")], durable=False)
    finally:
        with_rest.close()
    check(database)
    assert [row["trace_id"] for row in rows(database, "SELECT trace_id FROM _traces")] == ["f" * 32]
    assert rows(database, "SELECT * FROM _sides") == []
    assert rows(database, "SELECT * FROM _owners WHERE removed_ns IS NOT NULL") == []
    assert rows(database, "SELECT * FROM _contents WHERE length(text) > 400") == []
    assert rows(database, "SELECT reason FROM _retention") == [{"reason": "max_age"}]
