# SPDX-License-Identifier: Apache-2.0
"""The public tables follow from the spans alone, whatever the order, batches and repetitions."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.spans.record import EventRecord, SpanRecord
from otel_taskhistory.store.writer import Entry
from tests.store.deliveries import (
    NOON,
    SECOND,
    agent,
    asks,
    check,
    data_url,
    earlier_call,
    entry,
    message,
    model,
    own_step,
    own_task,
    own_tool,
    picture_part,
    png,
    public,
    rows,
    span,
    stored,
    tool,
)

OWN_FILE = "ab" * 32


class Traces:
    """Makes up the spans of a trace, odd ones too."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.number = 1
        self.spans: list[SpanRecord] = []
        self.conversation: list[dict[str, Any]] = [message("be brief " * 40, "system")]

    def next(self) -> int:
        self.number += 1
        return self.number

    def maybe(self, share: float = 0.5) -> bool:
        return self.chance.random() < share

    def times(self) -> dict[str, Any]:
        """Few different times, so that many are equal; a clock may have been set back."""
        start = self.chance.choice((1, 2, 2.5, 3, 4, 6, 9))
        return {"start": start, "end": start + self.chance.choice((-1, 0, 0.5, 2, 8))}

    def add(self, record: SpanRecord) -> None:
        self.spans.append(record)

    def say(self) -> list[dict[str, Any]]:
        """The conversation, grown or trimmed."""
        if self.maybe(0.2) and len(self.conversation) > 2:
            del self.conversation[1]
        said = message(
            f"message {self.chance.randrange(6)} " + "long " * self.chance.choice((0, 70))
        )
        if self.maybe(0.4):
            said["parts"].append(picture_part(png(self.chance.randrange(3), 200)))
        self.conversation.append(said)
        return list(self.conversation)

    def answer(self) -> list[dict[str, Any]] | None:
        if self.maybe(0.2):
            return None
        if self.maybe(0.3):
            return [message("here " + data_url(png(self.chance.randrange(3))), "assistant")]
        return asks(*self.chance.sample(("c1", "c2", "c3"), self.chance.randrange(3)))

    def plain(self, parent: int | None, **said: Any) -> int:
        number = self.next()
        said = {"kind": "CLIENT", "name": "GET", "attributes": {"url": "http://a"}, **said}
        self.add(span(number, parent, **{**self.times(), **said}))
        return number

    def own(self, *, root: bool = True) -> None:
        """A task of ours with steps; its first root may be missing, or resumed."""
        first = self.number
        extra = {semconv.TASKHISTORY_STATUS: "failed"} if self.maybe(0.3) else {}
        if root:
            self.add(own_task(first, attributes=extra, **self.times()))
        parent = first
        for index in range(self.chance.randrange(4)):
            if self.maybe(0.15):
                parent = self.next()
                attributes: dict[str, Any] = {semconv.TASKHISTORY_TASK_ATTEMPT: 2 + index}
                attributes[semconv.TASKHISTORY_TASK_RESULT] = "second go"
                self.add(
                    own_task(
                        parent, first, attributes=attributes, parent_remote=True, **self.times()
                    )
                )
            self.own_step(parent, index + 1)

    def own_step(self, parent: int, index: int) -> None:
        number = self.next()
        times = self.times()
        events: list[EventRecord] = []
        if self.maybe(0.2):
            events.append(earlier_call(self.say(), self.answer(), times["start"]))
        if self.maybe(0.3):
            facts = {
                semconv.TASKHISTORY_SCREENSHOT_SHA256: OWN_FILE,
                semconv.TASKHISTORY_SCREENSHOT_STATUS: "broken",
                semconv.TASKHISTORY_SCREENSHOT_BYTES: self.chance.randrange(9),
            }
            when = NOON + int(times["start"] * SECOND)
            events.append(EventRecord(semconv.TASKHISTORY_SCREENSHOT_EVENT, when, facts))
        said: dict[str, Any] = {"prompt": self.say(), "decision": self.answer()}
        if self.maybe(0.3):
            said = {}
        if self.maybe(0.2):
            said["attributes"] = {semconv.TASKHISTORY_STEP_RESULT: "result " * 60}
        if self.maybe(0.3):
            usage = {semconv.GEN_AI_USAGE_INPUT_TOKENS: self.chance.randrange(100)}
            said["attributes"] = {**said.get("attributes", {}), **usage}
        self.add(own_step(number, parent, index, events=tuple(events), **said, **times))
        for _ in range(self.chance.randrange(3)):
            call = self.next()
            result = {semconv.GEN_AI_TOOL_CALL_RESULT: self.chance.choice(("ok", "long " * 90))}
            self.add(own_tool(call, number, attributes=result, **self.times()))
            if self.maybe(0.2):
                self.plain(call)
        for _ in range(self.chance.randrange(2)):
            self.plain(number)

    def mix_in(self) -> None:
        """Spans of other instrumentations below a step or tool of ours."""
        parents = [s for s in self.spans if semconv.TASKHISTORY_ROLE in s.attributes]
        for _ in range(self.chance.randrange(1, 3)):
            below = int(self.chance.choice(parents).span_id, 16)
            self.chance.choice((self.call, self.agent_run, self.plain))(below)

    def call(self, parent: int | None) -> int:
        number = self.next()
        prompt = self.say() if self.maybe(0.8) else None
        self.add(model(number, parent, prompt=prompt, decision=self.answer(), **self.times()))
        if self.maybe(0.25):  # the same call, seen by a second instrumentation
            between = self.plain(number) if self.maybe(0.3) else number
            self.call(between)
        return number

    def agent_run(self, parent: int | None, depth: int = 0, **said: Any) -> int:
        number = self.next()
        name = self.chance.choice(("ann", "bob"))
        self.add(agent(number, parent, name, **{**self.times(), **said}))
        for _ in range(self.chance.randrange(4)):
            kind = self.chance.randrange(6)
            if kind < 2:
                self.call(number)
            elif kind < 4:
                self.use_tool(number, depth)
            elif kind == 4 and depth < 2:
                self.agent_run(number, depth + 1)
            else:
                self.plain(number)
        return number

    def use_tool(self, parent: int, depth: int) -> None:
        number = self.next()
        call_id = self.chance.choice((None, "c1", "c2", "c9"))
        self.add(tool(number, parent, call_id, **self.times()))
        if self.maybe(0.3) and depth < 2:
            self.agent_run(number, depth + 1)

    def make(self) -> list[SpanRecord]:
        kind = self.chance.randrange(7)
        if kind < 3:
            self.own(root=self.maybe(0.85))
            if kind == 1 and self.spans:
                self.mix_in()
        elif kind < 5:
            self.agent_run(self.chance.choice((None, None, 900)), parent_remote=self.maybe(0.3))
        elif kind == 5:
            root = self.plain(None)
            for _ in range(self.chance.randrange(3)):
                self.call(root) if self.maybe(0.3) else self.use_tool(root, 0)
        else:
            self.plain(self.chance.choice((None, 900)))
        for _ in range(self.chance.randrange(3) if self.maybe(0.4) else 0):
            self.chance.choice(
                (
                    lambda: self.agent_run(None),
                    lambda: self.plain(None),
                    lambda: self.plain(901, parent_remote=True),
                    lambda: self.call(None),
                    lambda: self.add(own_task(self.next(), **self.times())),
                    lambda: self.plain(self.chance.randrange(1, self.number + 1)),
                )
            )()
        if self.spans and self.maybe(0.2):
            self.spans.remove(self.chance.choice(self.spans))
        if self.maybe(0.1):
            self.make_circle()
        if self.spans and self.maybe(0.1):
            at = self.chance.randrange(len(self.spans))
            self.spans[at] = replace(self.spans[at], parent_span_id=None)
        return self.spans

    def make_circle(self) -> None:
        if len(self.spans) > 1:
            one, other = self.chance.sample(range(len(self.spans)), 2)
            first, second = self.spans[one], self.spans[other]
            self.spans[one] = replace(first, parent_span_id=second.span_id)
            self.spans[other] = replace(second, parent_span_id=first.span_id)


def deliveries_of(records: list[SpanRecord], chance: random.Random) -> list[Entry]:
    """The ended spans, what they were while they ran, and other versions of them."""
    made: list[Entry] = []
    for number, record in enumerate(records):
        seen = number * 10
        if chance.random() < 0.5:
            names = list(record.attributes)
            for cut in sorted(chance.choices(range(len(names) + 1), k=chance.randrange(3))):
                kept = {name: record.attributes[name] for name in names[:cut]}
                role = record.attributes.get(semconv.TASKHISTORY_ROLE)
                if role:
                    kept = {semconv.TASKHISTORY_ROLE: role, **kept}
                events = record.events[: chance.randrange(len(record.events) + 1)]
                started = replace(record, end_ns=None, attributes=kept, events=events)
                made.append(entry(started, seen := seen + 1))
        if chance.random() < 0.15:
            other: dict[str, Any] = {"attributes": dict(record.attributes)}
            if chance.random() < 0.5:
                other["attributes"]["more"] = chance.choice(("a", "b" * 300))
            if chance.random() < 0.2:
                other["parent_remote"] = not record.parent_remote
            if chance.random() < 0.2:
                other["start_ns"] = record.start_ns - SECOND
            if chance.random() < 0.4:
                other["status_message"] = chance.choice("xy")
            if chance.random() < 0.3:
                other["events"] = ()
            if chance.random() < 0.3:
                other["end_ns"] = (record.end_ns or 0) + chance.choice((-1, 1)) * SECOND
            if chance.random() < 0.3:
                name = chance.choice(list(record.attributes))
                del other["attributes"][name]
            made.append(entry(replace(record, **other), seen := seen + 1))
        if chance.random() < 0.9:
            made.append(entry(record, seen + 5))
    return made or [entry(record) for record in records]


def batches_of(entries: list[Entry], chance: random.Random) -> list[list[Entry]]:
    """The entries in some order, some of them repeated, cut into batches."""
    shuffled = entries + [one for one in entries if chance.random() < 0.4]
    chance.shuffle(shuffled)
    if chance.random() < 0.3:
        shuffled.sort(key=lambda one: -one.record.start_ns)
    batches: list[list[Entry]] = []
    while shuffled:
        size = chance.choice((1, 1, 2, 5, 100))
        batches.append(shuffled[:size])
        del shuffled[:size]
    return batches


def timeline_is_sound(database: Path) -> None:
    """Every task and step began once, and nothing is told of what is none."""
    told = rows(database, "SELECT * FROM timeline")
    steps = {(row["task_id"], row["step_id"]) for row in rows(database, "SELECT * FROM steps")}
    tasks = {row["task_id"] for row in rows(database, "SELECT * FROM tasks")}
    started = Counter(
        (row["task_id"], row["step_id"]) for row in told if row["event"] == "step.started"
    )
    assert started == Counter(steps)
    assert Counter(row["task_id"] for row in told if row["event"] == "task.started") == Counter(
        tasks
    )
    for row in told:
        assert (row["task_id"], row["step_id"]) in steps or row["event"].startswith("task."), row
    tools = Counter(row["detail"] for row in told if row["event"] == "tool_call.started")
    assert all(times == 1 for times in tools.values())


@settings(max_examples=40)
@given(st.integers(0, 2**32))
@example(5065)  # two tool calls, each the parent of the other
def test_order_batches_and_repetition_make_no_difference(seed: int) -> None:
    """Whatever the spans, the same ones in any order give the same public tables."""
    chance = random.Random(seed)
    entries = deliveries_of(Traces(chance).make(), chance)
    with tempfile.TemporaryDirectory() as folder:
        one = stored(Path(folder, "one"), [entries])
        check(one)
        timeline_is_sound(one)
        other = stored(Path(folder, "other"), batches_of(entries, chance))
        check(other)
        timeline_is_sound(other)
        assert public(other) == public(one)
