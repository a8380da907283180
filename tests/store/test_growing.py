# SPDX-License-Identifier: Apache-2.0
"""Traces that grow span by span: the rows are those of a trace that is assembled as a whole."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.spans.record import LinkRecord, OriginRecord, SpanRecord
from otel_taskhistory.store.growing import Grown
from otel_taskhistory.store.writer import Entry
from tests.store.deliveries import (
    agent,
    asks,
    check,
    entry,
    message,
    model,
    picture_part,
    png,
    public,
    rows,
    span,
    store,
    stored,
    tool,
    write,
)
from tests.store.test_order import timeline_is_sound

CLIENT = OriginRecord("client", "1", "", {}, 0)
"""A second instrumentation."""


class Run:
    """Makes up what an agent's instrumentation records while it works; little of it is odd."""

    def __init__(self, chance: random.Random, odd: float) -> None:
        self.chance = chance
        self.odd = odd
        self.spans: list[SpanRecord] = []
        self.now = 1.0
        self.said = [message("book a table")]
        self.calls = 0

    def is_odd(self) -> bool:
        return self.chance.random() < self.odd

    def times(self, takes: float) -> dict[str, Any]:
        start = self.now
        self.now += takes + (0 if self.is_odd() else 0.5)
        if self.is_odd():
            start -= self.chance.choice((0.5, 1, 3))
        return {"start": start, "end": start + takes}

    def add(self, record: SpanRecord) -> int:
        self.spans.append(record)
        return int(record.span_id, 16)

    @property
    def number(self) -> int:
        return len(self.spans) + 2

    def facts(self) -> dict[str, Any]:
        """What a span may say of its task."""
        said: dict[str, Any] = {}
        if self.is_odd():
            said[semconv.GEN_AI_AGENT_NAME] = self.chance.choice(("helper", "other"))
        if self.is_odd():
            said[semconv.GEN_AI_CONVERSATION_ID] = self.chance.choice(("one", "two"))
        if self.is_odd():
            said[semconv.GEN_AI_RESPONSE_ID] = self.chance.choice(("r1", "r2"))
        if self.is_odd():
            said["error.type"] = "Timeout"
        return said

    def extra(self) -> dict[str, Any]:
        said: dict[str, Any] = {"attributes": self.facts()}
        if self.is_odd():
            said["scope"] = CLIENT
        if self.is_odd():
            said["links"] = (LinkRecord(f"{self.chance.randrange(1, 4):032x}", "0" * 15 + "1"),)
        if self.is_odd():
            said["dropped_attributes"] = self.chance.randrange(3)
        return said

    def turn(self, parent: int) -> None:
        """A model call, and the tools that it asked for."""
        if self.is_odd():
            parent = self.plain(parent)
        asked = [f"c{self.calls + one}" for one in range(self.chance.randrange(3))]
        self.calls += len(asked)
        if self.is_odd():
            asked.append(f"c{self.chance.randrange(self.calls + 2)}")
        number = self.add(
            model(
                self.number,
                parent,
                prompt=None if self.is_odd() else list(self.said),
                decision=None if self.is_odd() else asks(*asked) if asked else [message("done")],
                **self.extra(),
                **self.times(1),
            )
        )
        if self.is_odd():  # the client within it, or beside it
            below = self.chance.choice((number, parent))
            within = {"start": self.now - 1.4, "end": self.now - 0.7}
            self.add(model(self.number, below, scope=CLIENT, **within))
        for call_id in asked:
            name = None if self.is_odd() else call_id
            below = self.add(tool(self.number, parent, name, **self.extra(), **self.times(0.3)))
            if self.is_odd():
                self.chance.choice((self.plain, self.turn, self.run))(below)
        said = message("next " + "word " * self.chance.randrange(80))
        if self.is_odd():
            said["parts"].append(picture_part(png(self.chance.randrange(3), 200)))
        self.said.append(said)

    def plain(self, parent: int) -> int:
        return self.add(span(self.number, parent, name="GET", **self.extra(), **self.times(0.2)))

    def run(self, parent: int | None) -> int:
        """A run of an agent."""
        number = self.number
        at = len(self.spans)
        made = span if self.is_odd() else agent  # a framework's root may say nothing
        root = made(number, parent, start=self.now, end=self.now + 1_000)
        self.spans.append(root)
        for _ in range(self.chance.randrange(1, 4)):
            self.turn(number) if self.chance.random() < 0.8 else self.plain(number)
        if self.is_odd():
            self.run(number)
        if parent is not None:
            self.spans[at] = replace(root, end_ns=self.spans[-1].end_ns)
        return number

    def make(self) -> list[SpanRecord]:
        self.run(None)
        return self.spans


def deliveries(records: Sequence[SpanRecord], chance: random.Random) -> list[list[Entry]]:
    """One by one when they end, or also when they begin; now and then two, or in any order."""
    moments: list[tuple[int, Entry]] = []
    starts = chance.random() < 0.5
    for record in records:
        if starts:
            kept = dict(list(record.attributes.items())[: chance.choice((2, 9))])
            begun = replace(record, end_ns=None, attributes=kept, events=(), dropped_attributes=0)
            moments.append((record.start_ns, entry(begun)))
        assert record.end_ns is not None
        moments.append((record.end_ns, entry(record, seen=10)))
    moments.sort(key=lambda moment: moment[0])
    entries = [one for _, one in moments]
    if chance.random() < 0.2:
        chance.shuffle(entries)
    batches: list[list[Entry]] = []
    while entries:
        size = chance.choice((1, 1, 1, 2))
        batches.append(entries[:size])
        del entries[:size]
    return batches


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.03, 0.1)))
def test_growing_or_as_a_whole_makes_no_difference(seed: int, odd: float) -> None:
    """Again and again while they come, whatever is odd about a trace, all public tables are the
    same.
    """
    chance = random.Random(seed)
    batches = deliveries(Run(chance, odd).make(), chance)
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        with store(one) as growing, store(other) as whole:
            session = whole._session
            assert session is not None
            for number, batch in enumerate(batches, start=1):
                write(growing, batch)
                session._projection._assembler._growing.clear()
                write(whole, batch)
                if number % 5 == 0 or number == len(batches):
                    assert public(one / "history.db") == public(other / "history.db")
        check(one / "history.db")
        timeline_is_sound(one / "history.db")


def long_run() -> list[SpanRecord]:
    """What a run with a dozen turns records, the run itself first."""
    made = Run(random.Random(3), 0.0)
    made.spans.append(agent(2, None, start=1, end=1_000))
    for _ in range(12):
        made.turn(2)
        made.plain(2)
    return made.spans


@pytest.mark.parametrize("first", ["the run begins", "its end comes last"])
def test_a_plain_run_is_not_assembled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Model calls, tool calls and others of one agent take their places one after another."""
    taken: list[bool] = []
    take = Grown.take

    def noted(self: Grown, row: Any) -> bool:
        taken.append(take(self, row))
        return taken[-1]

    monkeypatch.setattr(Grown, "take", noted)
    run, *others = long_run()
    begun = replace(run, end_ns=None)
    with store(tmp_path) as writer:
        for record in [begun, *others] if first == "the run begins" else others:
            write(writer, [record])
    # The first call makes the task.
    assert taken == [True] * (len(others) - 1)
    calls = sum(semconv.GEN_AI_REQUEST_MODEL in record.attributes for record in others)
    found = rows(tmp_path / "history.db", "SELECT step_count, span_count FROM tasks")
    assert found == [{"step_count": calls, "span_count": len(others) + (first == "the run begins")}]


def test_what_another_process_writes_meanwhile_is_seen(tmp_path: Path) -> None:
    """Two that record spans of one trace in turn make the same of it as one that gets them all."""
    records = long_run()
    records = [replace(records[0], end_ns=None), *records[1:]]
    with store(tmp_path / "two") as one, store(tmp_path / "two") as other:
        for number, record in enumerate(records):
            write(one if number % 3 else other, [record])
    whole = public(stored(tmp_path / "one", [records]))
    found = public(tmp_path / "two" / "history.db")
    for table in found.keys() - {"tasks"}:  # of a task it is said whose process it is
        assert found[table] == whole[table]
    counted = ("step_count", "span_count", "input_tokens", "goal", "agent", "status")
    (task,), (other_task,) = found["tasks"], whole["tasks"]
    for name in counted:
        assert json.loads(task)[name] == json.loads(other_task)[name]
