# SPDX-License-Identifier: Apache-2.0
"""What tables and views say of traces of ours, of others, and of mixtures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.spans.record import EventRecord, SpanRecord
from otel_taskhistory.store.assembled import TraceAssembler
from tests.store.deliveries import (
    NOON,
    SECOND,
    TRACE,
    agent,
    asks,
    check,
    earlier_call,
    entry,
    message,
    model,
    own_step,
    own_task,
    own_tool,
    public,
    rows,
    span,
    span_id,
    store,
    stored,
    tool,
    write,
)


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a trace is assembled: the number of its spans at the time."""
    counted: list[int] = []
    whole = TraceAssembler.assemble

    def assemble(
        self: TraceAssembler, trace: int, trace_id: str, changed: set[int], *, as_whole: bool
    ) -> None:
        counted.append(len(changed))
        whole(self, trace, trace_id, changed, as_whole=as_whole)

    monkeypatch.setattr(TraceAssembler, "assemble", assemble)
    return counted


def column(database: Path, sql: str) -> list[Any]:
    """The values of a query of one column."""
    return [next(iter(row.values())) for row in rows(database, sql)]


def requests(steps: int = 5, each: int = 4) -> list[SpanRecord]:
    """A task of ours whose steps make web requests."""
    spans = [own_task(end=99)]
    for number in range(10, 10 * (steps + 1), 10):
        spans.append(own_step(number, index=number // 10, prompt=[message("x")]))
        spans += [span(number + 1 + i, number, kind="CLIENT") for i in range(each)]
    return spans


def test_web_requests_below_our_steps_stay_cheap(tmp_path: Path, assembled: list[int]) -> None:
    """They are counted in the task and kept; nothing is assembled for them."""
    spans = requests()
    database = stored(tmp_path, [[one] for one in spans])
    assert assembled == []
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["kind"], task["step_count"], task["span_count"]) == ("agent", 5, len(spans))
    assert column(database, "SELECT DISTINCT task_id FROM spans") == [TRACE]


@pytest.mark.parametrize("size", [1, 7])
def test_requests_that_come_first_make_no_difference(
    tmp_path: Path, assembled: list[int], size: int
) -> None:
    """Standard processors deliver children first: the tables are the same in the end."""
    spans = requests()
    expected = public(stored(tmp_path / "one", [spans]))
    assembled.clear()
    backwards = spans[::-1]
    batches = [backwards[at : at + size] for at in range(0, len(backwards), size)]
    other = stored(tmp_path / "other", batches)
    assert public(other) == expected
    check(other)
    # Only until it is known that the trace is ours.
    assert len(assembled) <= 5 // size + 1


def test_a_trace_is_assembled_once_per_transaction(tmp_path: Path, assembled: list[int]) -> None:
    """However many of its spans are in it."""
    batch = [agent(1, None), *(model(n, 1) for n in range(2, 50)), tool(60, 1)]
    stored(tmp_path, [batch])
    assert assembled == [50]


def test_a_client_span_fills_in_what_our_step_lacks(tmp_path: Path) -> None:
    """The same call seen by an instrumentation of the client makes no second one."""
    asked, answered = [message("what I asked")], [message("what it said", "assistant")]
    seen = {
        semconv.GEN_AI_RESPONSE_FINISH_REASONS: ["stop"],
        semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 4,
    }
    spans = [
        own_task(end=99),
        own_step(2, prompt=asked, attributes={semconv.GEN_AI_USAGE_INPUT_TOKENS: 11}),
        model(3, 2, prompt=[message("as the client saw it")], decision=answered, attributes=seen),
    ]
    database = stored(tmp_path, [[one] for one in spans])
    (step,) = rows(database, "SELECT * FROM steps")
    (call,) = rows(database, "SELECT * FROM model_calls")
    assert call["span_id"] == span_id(2)
    for row in (step, call):
        assert json.loads(row["prompt"]) == asked
        assert json.loads(row["decision"]) == answered
        assert row["model"] == "model-1"
        assert (row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == (11, 2, 4)
    assert call["finish_reason"] == "stop"
    with store(tmp_path) as writer:  # its final version says less: what it lent is given back
        write(writer, [model(3, 2, end=9)])
    (step,) = rows(database, "SELECT * FROM steps")
    assert (step["decision"], step["cached_tokens"]) == (None, None)
    check(database)


def test_twin_spans_of_one_call_are_one(tmp_path: Path) -> None:
    """A framework's span around a client's: one step, one call, with all that either knows."""
    outer = model(
        2,
        1,
        attributes={
            semconv.GEN_AI_REQUEST_MODEL: "alias",
            semconv.GEN_AI_USAGE_INPUT_TOKENS: None,
            semconv.GEN_AI_USAGE_OUTPUT_TOKENS: None,
        },
    )
    asked = [message("x")]
    spans = [agent(1, None), outer, model(3, 2, prompt=asked), model(4, 2, decision=asks("c"))]
    database = stored(tmp_path, [spans])
    (step,) = rows(database, "SELECT * FROM steps")
    (call,) = rows(database, "SELECT * FROM model_calls")
    assert (step["step_id"], call["span_id"], call["model"]) == (span_id(2), span_id(2), "alias")
    assert json.loads(step["prompt"]) == asked
    assert json.loads(step["decision"]) == asks("c")
    # Two requests for one call, as when the first was retried: both were paid for.
    assert (step["input_tokens"], call["output_tokens"]) == (20, 4)
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["input_tokens"], task["step_count"], task["span_count"]) == (20, 1, 4)


def test_an_agent_within_a_tool_does_not_speak_for_the_step(tmp_path: Path) -> None:
    """Its calls are the step's, and counted, but the step's prompt is what the step sent."""
    mine, others = [message("mine")], [message("of the agent in the tool")]
    spans = [
        own_task(end=99),
        own_step(2, prompt=mine, decision=asks("c"), end=30),
        own_tool(3, 2, end=20),
        agent(4, 3),
        model(5, 4, prompt=others, decision=[message("y")]),
    ]
    database = stored(tmp_path, [spans])
    (step,) = rows(database, "SELECT * FROM steps")
    assert json.loads(step["prompt"]) == mine
    assert json.loads(step["decision"]) == asks("c")
    assert step["input_tokens"] == 10
    calls = rows(database, "SELECT * FROM model_calls ORDER BY span_id")
    assert [json.loads(call["prompt"]) for call in calls] == [mine, others]
    assert {call["step_id"] for call in calls} == {span_id(2)}


def test_several_calls_of_a_step(tmp_path: Path) -> None:
    """All are in ``model_calls``; the step shows the last that finished, its tokens are the sum."""
    first, second, third = ([message(text)] for text in ("first", "second", "third"))
    usage = {semconv.GEN_AI_USAGE_INPUT_TOKENS: 5}
    events = tuple(
        replace(event, attributes={**event.attributes, **usage})
        for event in (earlier_call(first, [message("a")], 1.5), earlier_call(second, None, 1.7))
    )
    step = own_step(2, prompt=third, decision=[message("c")], events=events, attributes=usage)
    database = stored(tmp_path, [[own_task(), step]])
    calls = rows(database, "SELECT * FROM model_calls ORDER BY ordinal")
    assert [json.loads(call["prompt"]) for call in calls] == [first, second, third]
    assert [call["status"] for call in calls] == ["succeeded", "failed", "succeeded"]
    (row,) = rows(database, "SELECT * FROM steps")
    assert json.loads(row["prompt"]) == third
    assert row["input_tokens"] == 15


def test_a_later_version_with_fewer_calls(tmp_path: Path) -> None:
    """Rows of calls that the kept version does not have are gone."""
    events = (earlier_call([message("first")], [message("a")], 2),)
    versions = [
        own_step(2, prompt=[message("b")], events=events),
        own_step(2, prompt=[message("c")], end=5),
        own_step(2, end=6),
    ]
    with store(tmp_path) as writer:
        write(writer, [own_task()])
        for expected, version in zip((2, 1, 0), versions, strict=True):
            write(writer, [version])
            assert len(rows(tmp_path / "history.db", "SELECT * FROM model_calls")) == expected
    check(tmp_path / "history.db")
    (step,) = rows(tmp_path / "history.db", "SELECT * FROM steps")
    assert (step["prompt"], step["model"]) == (None, None)


def resumed() -> list[SpanRecord]:
    """A task that failed, and was resumed in another process."""
    failed = {semconv.TASKHISTORY_STATUS: "failed"}
    again = {
        semconv.TASKHISTORY_TASK_ATTEMPT: 2,
        semconv.TASKHISTORY_TASK_RESULT: "done at last",
    }
    return [
        own_task(attributes=failed, end=3),
        own_step(2, index=1),
        own_task(10, 1, attributes=again, parent_remote=True, end=20),
        own_step(11, 10, index=2),
    ]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_resumed_task(tmp_path: Path, backwards: bool) -> None:
    """One task: begun with its first attempt, ended as its last one did, steps in both."""
    spans = resumed()[::-1] if backwards else resumed()
    database = stored(tmp_path, [[one] for one in spans])
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["status"], task["attempt"], task["result"]) == ("succeeded", 2, "done at last")
    assert (task["started_ns"], task["ended_ns"]) == (NOON + SECOND, NOON + 20 * SECOND)
    assert task["goal"] == "a goal"
    steps = rows(database, "SELECT step_index, attempt FROM steps ORDER BY step_index")
    assert [tuple(step.values()) for step in steps] == [(1, 1), (2, 2)]


def test_the_timeline_of_a_resumed_task(tmp_path: Path) -> None:
    """It tells that the task ended, went on, and ended again."""
    database = stored(tmp_path, [[one] for one in resumed()])
    told = column(database, "SELECT event FROM timeline WHERE event LIKE 'task.%' ORDER BY seq")
    assert told == ["task.started", "task.ended", "task.resumed", "task.ended"]


def test_steps_that_turn_out_to_be_none(tmp_path: Path) -> None:
    """A trace without model calls gets one later: its steps vanish, and what was told of them."""
    early = [agent(1, None, end=99), tool(2, 1, "c1"), span(3, 1), tool(4, 3)]
    late = model(5, 1, start=0.5, prompt=[message("x")], decision=asks("c1"))
    with store(tmp_path) as writer:
        write(writer, early)
        database = tmp_path / "history.db"
        assert column(database, "SELECT step_id FROM steps") == [span_id(2), span_id(3)]
        write(writer, [late])
    check(database)
    assert column(database, "SELECT step_id FROM steps") == [span_id(5)]
    assert column(database, "SELECT DISTINCT step_id FROM tool_calls") == [span_id(5)]
    told = rows(database, "SELECT event, step_id FROM timeline WHERE event NOT LIKE 'task.%'")
    assert {row["step_id"] for row in told} == {span_id(5)}
    events = [row["event"] for row in told]
    assert events.count("tool_call.started") == 2
    assert events.count("step.started") == 1


def test_a_task_that_turns_out_to_be_none(tmp_path: Path) -> None:
    """A root that gets a parent goes back into the task of its trace, with all that is below."""
    run = agent(10, 1, parent_remote=True, start=30, end=40)
    below = [model(11, 10, start=31, prompt=[message("x")], decision=[message("y")])]
    with store(tmp_path) as writer:
        write(writer, [agent(2, None, end=3), run, *below])
        database = tmp_path / "history.db"
        assert len(rows(database, "SELECT * FROM tasks")) == 2
        write(writer, [span(1, 2, end=50)])
    check(database)
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["task_id"], task["step_count"], task["span_count"]) == (TRACE, 1, 4)
    assert set(column(database, "SELECT DISTINCT task_id FROM timeline")) == {TRACE}
    assert column(database, "SELECT count(*) FROM timeline WHERE event = 'task.started'") == [1]


def test_an_agent_run_says_what_its_task_is_about(tmp_path: Path) -> None:
    """Goal and result of a task of another instrumentation are the agent's input and output."""
    said = {
        semconv.GEN_AI_INPUT_MESSAGES: json.dumps([message("be nice", "system"), message("do it")]),
        semconv.GEN_AI_OUTPUT_MESSAGES: json.dumps([message("did it", "assistant")]),
        semconv.GEN_AI_CONVERSATION_ID: "conversation",
    }
    spans = [span(1, None, name="POST /run"), agent(2, 1, attributes=said)]
    database = stored(tmp_path, [spans])
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["goal"], task["result"]) == ("do it", "did it")
    assert (task["agent"], task["conversation_id"]) == ("helper", "conversation")


def test_children_alone_are_a_running_task(tmp_path: Path) -> None:
    """Whose root never came: it shows what is known of it."""
    with store(tmp_path) as writer:
        write(writer, [model(5, 2, start=3), tool(6, 2, start=2)])
        (task,) = rows(tmp_path / "history.db", "SELECT * FROM tasks")
    assert (task["status"], task["kind"], task["step_count"]) == ("running", "agent", 1)
    assert task["started_ns"] == NOON + 2 * SECOND


def test_an_open_span_is_what_was_seen_last(tmp_path: Path) -> None:
    """A snapshot that comes late does not undo a newer one, nor an end."""
    newer = own_step(2, prompt=[message("new")], end=None)
    older = own_step(2, prompt=[message("old and longer")], end=None)
    with store(tmp_path) as writer:
        write(writer, [own_task(end=None), entry(newer, 5), entry(older, 3)])
        database = tmp_path / "history.db"
        (step,) = rows(database, "SELECT * FROM steps")
        assert (json.loads(step["prompt"]), step["status"]) == ([message("new")], "running")
        write(writer, [own_step(2, prompt=[message("final")])])
        write(writer, [entry(newer, 9)])
    (step,) = rows(database, "SELECT * FROM steps")
    assert (json.loads(step["prompt"]), step["status"]) == ([message("final")], "succeeded")


@pytest.mark.parametrize(
    "changes",
    [
        {"status_message": "why"},
        {"name": "another name"},
        {"attributes": {"a": "1"}},
        {"attributes": {"a": "y" * 400}},
        {"kind": "SERVER"},
        {"dropped_events": 3},
        {"trace_state": "a=b"},
        {"events": (EventRecord("e", 1),)},
        {"start_ns": NOON},
        {"parent_span_id": span_id(7)},
    ],
)
def test_of_two_versions_the_same_one_is_kept(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Equal ends: the longer content, then the greater digest, whichever comes first."""
    one = agent(1, None, attributes={"a": "x" * 400})
    other = replace(
        one, **{**changes, "attributes": {**one.attributes, **changes.get("attributes", {})}}
    )
    first = public(stored(tmp_path / "first", [[one], [other]]))
    assert public(stored(tmp_path / "second", [[other], [one]])) == first


def test_dropped_is_counted(tmp_path: Path) -> None:
    """What the limits of the SDK took away is counted in the task, once, by the kept versions."""
    with store(tmp_path) as writer:
        write(writer, [own_task(dropped_attributes=1)])
        write(writer, [own_step(2, dropped_events=2, end=None)])
        write(writer, [own_step(2, dropped_events=5, dropped_links=1)])
        write(writer, [own_step(2, dropped_events=5, dropped_links=1)])
        write(writer, [span(3, 2, dropped_attributes=2**40)])
    (task,) = rows(tmp_path / "history.db", "SELECT dropped FROM tasks")
    assert task["dropped"] == 1 + 5 + 1 + 2**32 - 1


def test_a_long_result_is_stored_once(tmp_path: Path) -> None:
    """As attribute, as result of its step and in what assembly knows of the span."""
    result = "a result " * 100
    attributes = {semconv.TASKHISTORY_STEP_RESULT: result}
    database = stored(tmp_path, [[own_task(), own_step(2, attributes=attributes), model(3, 1)]])
    assert column(database, f"SELECT result FROM steps WHERE step_id = '{span_id(2)}'") == [result]
    assert column(database, f"SELECT count(*) FROM _contents WHERE text = '{result}'") == [1]
    assert column(database, "SELECT max(length(facts)) < 200 FROM _spans") == [1]
