# SPDX-License-Identifier: Apache-2.0
"""What the tables say of traces of other instrumentations, in whatever order their spans came."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.times import iso
from otel_taskhistory.store.writer import Entry
from tests.store.deliveries import (
    NOON,
    SECOND,
    TRACE,
    agent,
    asks,
    check,
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
    span_id,
    store,
    stored,
    tool,
    write,
)


def meant(record: SpanRecord, **facts: Any) -> Entry:
    """A span of which some dialect would say this."""
    read = conventions.read(record)
    calls = facts.pop("call", None)
    if calls is not None:
        facts["model_calls"] = tuple(replace(call, **calls) for call in read.model_calls)
    return Entry(record, replace(read, **facts), NOON)


def in_any_order(directory: Path, *spans: SpanRecord | Entry) -> Path:
    """A history of these spans, which is the same in any order; each comes by itself."""
    database = stored(directory / "first", [spans])
    check(database)
    expected = public(database)
    orders = itertools.permutations(spans)
    count = 1
    for number in range(1, len(spans) + 1):
        count *= number
    for at, order in enumerate(itertools.islice(orders, 1, None, max(count // 8, 1))):
        other = stored(directory / str(at), [[one] for one in order])
        check(other)
        assert public(other) == expected
    return database


def values(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query as tuples."""
    return [tuple(row.values()) for row in rows(database, sql)]


# --- one call, seen several times ---


def test_a_wrapper_and_its_client_beside_it(tmp_path: Path) -> None:
    """One step with what both know, counted once, though each is below the root by itself."""
    usage = {semconv.GEN_AI_USAGE_INPUT_TOKENS: 7, semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 1}
    wrapper = model(2, 1, start=2, end=5, prompt=[message("hi")], decision=[message("yes")])
    client = model(3, 1, start=3, end=4, attributes={**usage, "more": "x"})
    database = in_any_order(
        tmp_path,
        span(1, None, end=9),
        meant(wrapper, call={"response_id": "r1"}),
        meant(client, call={"response_id": "r1", "cost": 0.5}),
    )
    (step,) = rows(database, "SELECT * FROM steps")
    assert (step["step_id"], json.loads(step["decision"])) == (span_id(2), [message("yes")])
    assert (step["input_tokens"], step["output_tokens"], step["cost"]) == (10, 2, 0.5)
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["input_tokens"], task["cost"]) == (10, 0.5)
    assert values(database, "SELECT span_id FROM model_calls") == [(span_id(2),)]
    assert len(rows(database, "SELECT * FROM spans")) == 3


def test_what_two_clients_saw_of_one_request_counts_once(tmp_path: Path) -> None:
    """Tokens that the shown call lacks are those of its requests, each of them once."""
    bare = {semconv.GEN_AI_OPERATION_NAME: "chat"}
    database = in_any_order(
        tmp_path,
        span(1, None, end=9),
        span(2, 1, start=2, end=8, attributes=bare),
        meant(model(3, 2, start=3, end=4), call={"response_id": "r1"}),
        meant(model(4, 1, start=2.5, end=5), call={"response_id": "r1"}),
        meant(model(5, 2, start=6, end=7), call={"response_id": "r2"}),
    )
    assert values(database, "SELECT step_id, input_tokens FROM steps") == [(span_id(2), 20)]


def test_a_response_id_that_comes_again_later(tmp_path: Path) -> None:
    """Two calls that do not overlap in time are two, and both count."""
    database = in_any_order(
        tmp_path,
        span(1, None, end=9),
        meant(model(2, 1, start=2, end=3), call={"response_id": "r1"}),
        meant(model(3, 1, start=4, end=5), call={"response_id": "r1"}),
    )
    assert values(database, "SELECT step_id, input_tokens FROM steps ORDER BY step_index") == [
        (span_id(2), 10),
        (span_id(3), 10),
    ]


def test_a_tool_call_with_three_spans(tmp_path: Path) -> None:
    """One row, with what any of them knows; the timeline tells of one call, once."""
    unknown = {semconv.GEN_AI_TOOL_CALL_RESULT: ""}
    outer = tool(3, 1, "c1", start=3, end=9, attributes=unknown)
    outer = replace(outer, attributes={k: v for k, v in outer.attributes.items() if v != ""})
    database = in_any_order(
        tmp_path,
        agent(1, None, end=20),
        model(2, 1, start=2, end=2.5, decision=asks("c1")),
        outer,
        span(4, 3, start=4, end=8),
        tool(5, 4, start=5, end=7),
        tool(6, 5, start=5, end=6, attributes={semconv.GEN_AI_TOOL_CALL_RESULT: "deep"}),
    )
    (call,) = rows(database, "SELECT * FROM tool_calls")
    assert (call["span_id"], call["call_id"]) == (span_id(3), "c1")
    assert (call["step_id"], call["result"]) == (span_id(2), "deep")
    assert values(database, "SELECT tool_name, tool_result FROM steps") == [("search", "deep")]
    with closing(sqlite3.connect(database)) as connection:
        kept = connection.execute("SELECT count(*), count(DISTINCT step) FROM _tool_calls")
        assert kept.fetchone() == (3, 1)


def test_the_timeline_of_a_tool_call_whose_spans_come_inside_out(tmp_path: Path) -> None:
    """What was told of the inner span is taken back; the call is told once, by its outer one."""
    spans = [
        model(2, 1, start=2, end=2.5, decision=asks("c1")),
        tool(5, 3, start=5, end=7),
        tool(3, 1, "c1", start=3, end=9),
        agent(1, None, end=20),
    ]
    database = stored(tmp_path, [[one] for one in spans])
    told = rows(database, "SELECT event, detail FROM timeline WHERE event LIKE 'tool_call.%'")
    assert [row["event"] for row in told] == ["tool_call.started", "tool_call.ended"]
    assert {json.loads(row["detail"])["span_id"] for row in told} == {span_id(3)}


def test_a_tool_of_ours_and_the_span_of_a_client_within_it(tmp_path: Path) -> None:
    """Ours is the call; what it lacks is filled in."""
    mine = own_tool(3, 2, attributes={semconv.GEN_AI_TOOL_NAME: "search"})
    database = in_any_order(
        tmp_path, own_task(end=99), own_step(2, end=50), mine, tool(4, 3, start=3.1, end=3.4)
    )
    (call,) = rows(database, "SELECT * FROM tool_calls")
    assert (call["span_id"], call["result"], call["step_id"]) == (span_id(3), "found", span_id(2))


def test_a_picture_that_two_spans_of_a_tool_call_hold(tmp_path: Path) -> None:
    """Is shown once, at the call that is shown."""
    result = {semconv.GEN_AI_TOOL_CALL_RESULT: json.dumps([picture_part(png(1))])}
    database = in_any_order(
        tmp_path,
        agent(1, None, end=20),
        model(2, 1, start=2, end=2.5),
        tool(3, 1, start=3, end=9, attributes=result),
        tool(4, 3, start=4, end=8, attributes=result),
    )
    shots = values(database, "SELECT role, step_id FROM screenshots")
    assert shots == [("output", span_id(2))]


def test_attempts_at_a_model_call(tmp_path: Path) -> None:
    """One step that ended as its last attempt did, with the tokens of all."""
    failed = model(2, 1, start=2, end=3, status_code="ERROR", status_message="busy")
    again = model(3, 1, start=4, end=5, prompt=[message("hi")], decision=[message("yes")])
    database = in_any_order(
        tmp_path,
        agent(1, None, end=9),
        failed,
        meant(again, call={"attempt": 2}),
    )
    (step,) = rows(database, "SELECT * FROM steps")
    assert (step["step_id"], step["status"], step["attempt"]) == (span_id(2), "succeeded", 2)
    assert (step["error"], step["input_tokens"]) == (None, 20)
    assert step["ended_at"] == iso(NOON + 5 * SECOND)
    assert json.loads(step["prompt"]) == [message("hi")]
    assert values(database, "SELECT attempt, status FROM model_calls ORDER BY started_at") == [
        (1, "failed"),
        (2, "succeeded"),
    ]


# --- what is late or missing ---


def pending(number: int, announces: int, parent: int | None, **facts: Any) -> Entry:
    """A span that announces another one, as Logfire's do."""
    record = span(number, announces, start=announces, end=announces)
    return meant(
        record,
        role="pending",
        status="running",
        announces=span_id(announces),
        announced_parent=None if parent is None else span_id(parent),
        **facts,
    )


def test_a_run_that_was_only_announced(tmp_path: Path) -> None:
    """Is running while its process lives, has its steps, and is interrupted with it."""
    with store(tmp_path) as writer:
        write(writer, [pending(90, 1, None, agent="ann"), model(2, 1)])
        database = tmp_path / "history.db"
        (task,) = rows(database, "SELECT * FROM tasks")
        assert (task["status"], task["agent"], task["step_count"]) == ("running", "ann", 1)
        assert task["started_ns"] == NOON + SECOND
        assert values(database, "SELECT agent FROM steps") == [("ann",)]
    check(database)
    assert values(database, "SELECT status FROM tasks") == [("interrupted",)]


def test_an_announced_call_and_tool(tmp_path: Path) -> None:
    """A running step with a running tool call, until the spans themselves come; then theirs."""
    read = conventions.read(model(2, 1))
    call = tuple(replace(one, status="running", ended_ns=None) for one in read.model_calls)
    begun = conventions.read(tool(3, 1)).tool_call
    announced = [
        pending(90, 1, None, agent="ann"),
        pending(91, 2, 1, model_calls=call),
        pending(92, 3, 1, tool_call=begun),
    ]
    with store(tmp_path) as writer:
        write(writer, announced)
        database = tmp_path / "history.db"
        assert values(database, "SELECT status, tool_name FROM steps") == [("running", "search")]
        write(writer, [model(2, 1), tool(3, 1)])
        assert values(database, "SELECT step_id, status FROM steps") == [(span_id(2), "succeeded")]
        assert values(database, "SELECT span_id FROM tool_calls") == [(span_id(3),)]
        assert values(database, "SELECT span_id FROM model_calls") == [(span_id(2),)]
        write(writer, [agent(1, None, "ann", end=9)])
        assert values(database, "SELECT status, task_id FROM tasks") == [("succeeded", TRACE)]
    check(database)
    assert len(rows(database, "SELECT * FROM spans")) == 6
    told = values(database, "SELECT event FROM timeline WHERE event LIKE 'step.%'")
    assert told.count(("step.started",)) == 1


def test_announcements_in_any_order(tmp_path: Path) -> None:
    """The tables are those of the spans alone, but for the announcements in ``spans``."""
    read = conventions.read(model(2, 1)).model_calls
    spans = [agent(1, None, "ann", end=9), model(2, 1), tool(3, 1)]
    database = in_any_order(
        tmp_path, *spans, pending(90, 1, None, agent="ann"), pending(91, 2, 1, model_calls=read)
    )
    alone = stored(tmp_path / "alone", [spans])
    for table in ("steps", "model_calls", "tool_calls"):
        assert public(database)[table] == public(alone)[table]


def test_a_task_whose_root_never_came(tmp_path: Path) -> None:
    """Running while somebody may still send it; then interrupted, when its last span ended."""
    with store(tmp_path) as writer:
        write(writer, [model(5, 2, start=-9, end=-3), tool(6, 2, start=-8, end=-7)])
        assert values(tmp_path / "history.db", "SELECT status FROM tasks") == [("running",)]
    (task,) = rows(tmp_path / "history.db", "SELECT * FROM tasks")
    assert (task["status"], task["ended_ns"]) == ("interrupted", NOON - 3 * SECOND)
    assert task["ended_at"] == iso(NOON - 3 * SECOND)
    assert task["duration_ms"] == 6000.0


def test_a_stream_that_ends_after_its_parent(tmp_path: Path) -> None:
    """Its step belongs to the task that began it, which ended when its root did."""
    late = model(2, 1, start=2, end=30, prompt=[message("x")], decision=[message("y")])
    database = in_any_order(tmp_path, span(1, None, end=5), late, span(3, 1, start=20, end=25))
    (task,) = rows(database, "SELECT * FROM tasks")
    assert (task["ended_ns"], task["step_count"], task["span_count"]) == (NOON + 5 * SECOND, 1, 3)
    assert task["result"] == "y"


# --- what is no task ---


def test_a_trace_in_which_something_was_only_made_ready(tmp_path: Path) -> None:
    """No task, no step; its spans are there, and its row tells retention when it came."""
    built = meant(span(1, None, end=5), role="setup")
    database = in_any_order(tmp_path, built, span(2, 1))
    assert rows(database, "SELECT * FROM tasks") == []
    assert values(database, "SELECT DISTINCT task_id FROM spans") == [(None,)]
    assert values(database, "SELECT * FROM timeline WHERE event <> 'loss'") == []
    assert values(database, "SELECT committed_ns FROM _sides") == [(NOON,)]
    assert values(database, "SELECT * FROM _owners WHERE id > 0") == []


def test_work_that_comes_to_what_was_only_made_ready(tmp_path: Path) -> None:
    """Makes it a task; and back, when a later version says that it was none."""
    built, work = meant(span(1, None, end=5), role="setup"), model(2, 1)
    with store(tmp_path) as writer:
        write(writer, [built])
        write(writer, [work])
        database = tmp_path / "history.db"
        assert values(database, "SELECT task_id FROM spans") == [(TRACE,), (TRACE,)]
        assert values(database, "SELECT * FROM _sides") == []
        longer = replace(work, attributes={"nothing": "x" * 500})
        write(writer, [Entry(longer, SpanFacts(status="succeeded"), NOON)])
        assert rows(database, "SELECT * FROM tasks") == []
        assert values(database, "SELECT committed_ns FROM _sides") == [(NOON,)]
    check(database)
    assert values(database, "SELECT DISTINCT task_id FROM spans") == [(None,)]


def test_a_tool_alone_is_of_kind_other(tmp_path: Path) -> None:
    """A server of tools works for an agent that is elsewhere."""
    database = stored(tmp_path, [[tool(1, None)]])
    assert values(database, "SELECT kind FROM tasks") == [("other",)]


# --- what a task says ---


def test_links_name_the_parent(tmp_path: Path) -> None:
    """The first link of the root, else of the earliest span with one; what is said goes first."""
    other, third = "ab" * 16, "cd" * 16
    root, below = span(1, None, end=9), span(2, 1)
    linked = meant(below, linked_traces=(other, third))
    database = in_any_order(tmp_path / "below", root, linked)
    assert values(database, "SELECT parent_task_id FROM tasks") == [(other,)]
    database = in_any_order(tmp_path / "root", meant(root, linked_traces=(third,)), linked)
    assert values(database, "SELECT parent_task_id FROM tasks") == [(third,)]
    said = meant(root, linked_traces=(third,), parent_task_id="said")
    database = in_any_order(tmp_path / "said", said, linked)
    assert values(database, "SELECT parent_task_id FROM tasks") == [("said",)]


def test_any_span_may_name_the_conversation(tmp_path: Path) -> None:
    """Clients record it at their calls; a root or a run is believed before them."""
    call = meant(model(3, 1), conversation_id="of the call")
    database = in_any_order(tmp_path / "call", span(1, None, end=9), call)
    assert values(database, "SELECT conversation_id FROM tasks") == [("of the call",)]
    run = meant(agent(2, 1, end=8), conversation_id="of the run")
    database = in_any_order(tmp_path / "run", span(1, None, end=9), run, call)
    assert values(database, "SELECT conversation_id FROM tasks") == [("of the run",)]


def goal_and_result(directory: Path, *spans: SpanRecord | Entry) -> tuple[str | None, str | None]:
    """Of the one task of these spans."""
    ((goal, result),) = values(in_any_order(directory, *spans), "SELECT goal, result FROM tasks")
    return goal, result


def test_goal_and_result_from_the_model_calls(tmp_path: Path) -> None:
    """Where nobody says them: what the user asked, and what the model answered in the end."""
    first = [message("be nice", "system"), message("where is it?")]
    found = goal_and_result(
        tmp_path,
        span(1, None, end=9),
        model(2, 1, prompt=first, decision=asks("c1")),
        model(3, 1, prompt=[*first, message("x", "tool")], decision=[message("there", "model")]),
    )
    assert found == ("where is it?", "there")


def test_the_goal_of_a_later_turn_is_what_the_user_said_last(tmp_path: Path) -> None:
    """The conversation so far is repeated before it; tool results are not what a user said."""
    before = [message("hi"), message("hello", "assistant")]
    turn = [*before, message("and now?"), message("by the way", "user")]
    assert goal_and_result(tmp_path / "turn", model(1, None, prompt=turn))[0] == "and now?"
    amidst = [message("hi"), *asks("c1"), {"role": "user", "parts": [{"type": "x"}]}]
    assert goal_and_result(tmp_path / "amidst", model(1, None, prompt=amidst))[0] == "hi"


def test_prompts_that_are_text_or_cut(tmp_path: Path) -> None:
    """A text is the goal; of messages that a limit has cut, what is left of the user's."""
    assert goal_and_result(tmp_path / "text", model(1, None, prompt="do it"))[0] == "do it"
    whole = json.dumps([message("be nice", "system"), message("do it now"), message("x")])
    cut = model(1, None, prompt=whole[:-20])
    assert goal_and_result(tmp_path / "cut", cut)[0] == "do it now"
    assert goal_and_result(tmp_path / "odd", model(1, None, prompt="[1, 2"))[0] == "[1, 2"


def test_a_decision_that_asks_for_a_tool_is_no_result(tmp_path: Path) -> None:
    """Nor is what a failed task said last."""
    asked = [{"role": "assistant", "parts": [*message("well")["parts"], *asks("c1")[0]["parts"]]}]
    found = goal_and_result(tmp_path / "tool", span(1, None, end=9), model(2, 1, decision=asked))
    assert found == (None, None)
    failed = span(1, None, end=9, status_code="ERROR")
    found = goal_and_result(tmp_path / "failed", failed, model(2, 1, decision=[message("well")]))
    assert found == (None, None)


def test_what_is_below_a_tool_says_nothing_of_the_task(tmp_path: Path) -> None:
    """Its agent was given a part of the task, and its answer is the tool's result."""
    given = {semconv.GEN_AI_INPUT_MESSAGES: json.dumps([message("a part")])}
    answer = {semconv.GEN_AI_OUTPUT_MESSAGES: json.dumps([message("of it", "assistant")])}
    found = goal_and_result(
        tmp_path,
        span(1, None, end=20),
        tool(3, 1, start=3, end=10),
        agent(4, 3, start=4, end=9, attributes={**given, **answer}),
        model(5, 4, start=5, end=6, prompt=[message("deep")], decision=[message("deeper")]),
        model(6, 1, start=12, end=13, prompt=[message("the task")], decision=[message("done")]),
    )
    assert found == ("the task", "done")


def test_the_outermost_run_tells_the_result(tmp_path: Path) -> None:
    """Of two that follow each other, the last; not one that another began."""
    spans = [
        span(1, None, end=30),
        meant(agent(2, 1, "ann", start=2, end=9), goal="first", result="one"),
        meant(agent(3, 2, "sub", start=3, end=20), goal="part", result="part"),
        meant(agent(4, 1, "bob", start=10, end=15), goal="second", result="two"),
    ]
    assert goal_and_result(tmp_path, *spans) == ("first", "two")


def test_a_failure_below_a_root_that_says_ok(tmp_path: Path) -> None:
    """The task failed, with the reason of the run that did; see `test_task_outcome`."""
    raised = agent(2, 1, end=8, status_code="ERROR", status_message="disk on fire")
    database = in_any_order(tmp_path, span(1, None, end=9, status_code="OK"), raised)
    assert values(database, "SELECT status, error, result FROM tasks") == [
        ("failed", "disk on fire", None)
    ]
    told = rows(database, "SELECT detail FROM timeline WHERE event = 'task.ended'")
    assert json.loads(told[-1]["detail"])["status"] == "failed"


def test_the_reason_may_stand_deeper(tmp_path: Path) -> None:
    """Of a root that failed without a word."""
    database = in_any_order(
        tmp_path,
        agent(1, None, end=9, status_code="ERROR"),
        model(2, 1, status_code="ERROR", status_message="503"),
    )
    assert values(database, "SELECT status, error FROM tasks") == [("failed", "503")]


def test_a_goal_is_read_again_after_a_rollback(tmp_path: Path) -> None:
    """Rows that a failed transaction numbered may hold something else the next time."""
    with store(tmp_path) as writer:
        first = model(1, None, prompt=[message("one " * 100)])
        second = replace(model(1, None, prompt=[message("two " * 100)]), trace_id="ab" * 16)
        bad = entry(replace(second, span_id="x", attributes={"a": "x"}))
        bad = replace(bad, facts=replace(bad.facts, step_index=2**70))
        writer.submit([entry(first), Entry(bad.record, bad.facts, NOON)], durable=False)
        writer.submit([entry(second)], durable=False)
        found = values(tmp_path / "history.db", "SELECT goal FROM tasks WHERE goal IS NOT NULL")
    assert sorted(goal[:3] for (goal,) in found) == ["one", "two"]
