# SPDX-License-Identifier: Apache-2.0
"""One span that cannot be stored costs no other: it is reduced, counted and told."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.encode import decode
from otel_taskhistory.store.assembled import TraceAssembler
from otel_taskhistory.store.contents import Contents
from otel_taskhistory.store.writer import Writer
from tests.store.deliveries import (
    agent,
    check,
    entry,
    message,
    model,
    own_step,
    own_task,
    own_tool,
    public,
    rows,
    span_id,
    stored,
    tool,
)

POISON = "poison " * 60


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text that holds the poison makes the store fail in the middle of its transaction."""
    whole = Contents.text

    def text(self: Contents, value: str) -> int:
        if POISON in value:
            raise ValueError("not this one")
        return whole(self, value)

    monkeypatch.setattr(Contents, "text", text)


class Failures(list[BaseException]):
    """What ``on_error`` was told."""


def writer_in(directory: Path, failures: Failures) -> Writer:
    """A writer that tells of failures."""
    settings = Settings.resolve(directory=directory, durability="normal")
    return Writer(settings, on_error=failures.append)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("place", [0, 1, 250, 511])
@pytest.mark.parametrize("kind", ["own", "foreign", "mixed"])
def test_one_among_512(
    tmp_path: Path, place: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """511 are stored whole, one reduced and marked, in one transaction; nothing is raised."""
    caplog.set_level(logging.ERROR)
    batch = [own_task() if kind != "foreign" else agent(1, None)]
    for number in range(2, 513):
        said = [message(f"what {number} was asked " + "long " * 60)]
        foreign = kind == "foreign" or (kind == "mixed" and number % 2)
        make = model if foreign else own_step
        batch.append(make(number, 1, prompt=said, attributes={"n": number}))
    batch[place] = replace(batch[place], attributes={**batch[place].attributes, "x": POISON})
    failures = Failures()
    writer = writer_in(tmp_path, failures)
    commits = writer.counters.commits
    job = writer.submit([entry(record) for record in batch], durable=True)
    writer.close()
    assert job.stored
    assert writer.counters.commits == commits + 1
    assert (writer.counters.spans, writer.counters.reduced, writer.counters.lost) == (512, 1, 0)
    assert [type(failure) for failure in failures] == [ValueError]
    assert caplog.records == []
    database = tmp_path / "history.db"
    check(database)
    found = {row["span_id"]: row for row in rows(database, "SELECT * FROM spans")}
    assert len(found) == 512
    bad = found.pop(batch[place].span_id)
    assert json.loads(bad["marks"]) == ["reduced"]
    assert decode(bad["attributes"]) == {}
    assert (bad["name"], bad["end_time_unix_nano"]) == (batch[place].name, batch[place].end_ns)
    for record in batch:
        if record.span_id in found:
            assert decode(found[record.span_id]["attributes"]) == record.attributes
            assert found[record.span_id]["marks"] is None
    (task,) = rows(database, "SELECT * FROM tasks")
    assert task["span_count"] == 512
    steps = rows(database, "SELECT * FROM steps")
    assert len(steps) == task["step_count"] == 511
    assert sum(step["prompt"] is None for step in steps) == (place != 0)


@pytest.mark.usefixtures("poisoned")
def test_a_whole_version_replaces_a_reduced_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the cause has gone and the span is delivered again, it is as if nothing had been."""
    batch = [own_task(), own_step(2), own_tool(3, 2, attributes={"x": POISON}), own_step(4)]
    failures = Failures()
    writer = writer_in(tmp_path / "one", failures)
    assert writer.submit([entry(record) for record in batch], durable=False).stored
    assert writer.counters.reduced == 1
    monkeypatch.undo()
    assert writer.submit([entry(record) for record in batch], durable=False).stored
    writer.close()
    expected = public(stored(tmp_path / "other", [batch]))
    assert public(tmp_path / "one" / "history.db") == expected


def test_a_span_without_an_id_is_lost_and_told(tmp_path: Path) -> None:
    """What cannot even be kept reduced is counted, and the timeline says so."""
    nobody: Any = None
    batch = [own_task(), replace(own_step(2), span_id=nobody), own_step(3)]
    failures = Failures()
    writer = writer_in(tmp_path, failures)
    assert writer.submit([entry(record) for record in batch], durable=False).stored
    writer.close()
    assert writer.counters.lost == 1
    database = tmp_path / "history.db"
    check(database)
    assert [row["span_id"] for row in rows(database, "SELECT span_id FROM spans")] == [
        span_id(1),
        span_id(3),
    ]
    (loss,) = rows(database, "SELECT detail FROM timeline WHERE event = 'loss'")
    assert json.loads(loss["detail"])["spans"] == 1


def test_a_trace_that_cannot_be_understood_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spans are kept whole, other traces get their tasks, and it is made up for later."""
    bad = "bad" + "0" * 29
    assemble = TraceAssembler.assemble

    def fail(
        self: TraceAssembler, trace: int, trace_id: str, changed: set[int], *, as_whole: bool
    ) -> None:
        assemble(self, trace, trace_id, changed, as_whole=as_whole)
        if trace_id == bad:
            raise ZeroDivisionError

    batch = [agent(1, None), model(2, 1, prompt=[message("a")]), tool(3, 1)]
    batch += [replace(record, trace_id=bad) for record in batch]
    failures = Failures()
    writer = writer_in(tmp_path / "one", failures)
    monkeypatch.setattr(TraceAssembler, "assemble", fail)
    assert writer.submit([entry(record) for record in batch], durable=False).stored
    database = tmp_path / "one" / "history.db"
    assert len(rows(database, "SELECT * FROM spans")) == 6
    assert len(rows(database, "SELECT * FROM tasks")) == 1
    assert len(rows(database, "SELECT * FROM steps")) == 1
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    assert writer.counters.reduced == writer.counters.lost == 0
    monkeypatch.undo()
    late = replace(tool(4, 1), trace_id=bad)
    assert writer.submit([entry(late)], durable=False).stored
    writer.close()
    check(database)
    assert public(database) == public(stored(tmp_path / "other", [[*batch, late]]))
