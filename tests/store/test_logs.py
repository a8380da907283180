# SPDX-License-Identifier: Apache-2.0
"""Log records in the ledger: kept whole, once, with their span, and part of what it means."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts
from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.spans.encode import decode
from otel_taskhistory.spans.record import LogRecord, OriginRecord, SpanRecord
from otel_taskhistory.store.importing import entry_of
from otel_taskhistory.store.log_removal import WAITING_BYTES, WAITING_NS
from otel_taskhistory.store.pruning import prune, remove_task
from otel_taskhistory.store.writer import LogEntry, Writer
from tests.otlp import logs_in, records_in
from tests.store.deliveries import (
    NOON,
    TRACE,
    agent,
    check,
    data_url,
    message,
    model,
    own_step,
    own_task,
    png,
    public,
    rows,
    span,
    span_id,
    store,
    tool,
)
from tests.store.test_lossless import EXACT, same

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
WITH_LOGS = sorted(CORPUS.glob("*.logs.jsonl"))
PROMPT = "gen_ai.user.message"
Delivery = SpanRecord | LogRecord


def log(number: int, body: Any = None, name: str = PROMPT, **said: Any) -> LogRecord:
    """A log record of the span with this number, at noon and `at` seconds."""
    return LogRecord(
        trace_id=said.pop("trace_id", TRACE),
        span_id=span_id(number),
        event_name=name,
        body=body,
        time_ns=NOON + int(said.pop("at", 0) * 10**9),
        **said,
    )


def deliver(writer: Writer, deliveries: Sequence[Delivery]) -> None:
    """Commit spans and log records in one transaction; nothing may go wrong."""
    job = writer.submit([entry_of(one, NOON) for one in deliveries], durable=False)
    assert job.stored
    assert (writer.counters.lost, writer.counters.by_error) == (0, {})


def stored(directory: Path, batches: Sequence[Sequence[Delivery]]) -> Path:
    """A history of these batches; returns its database."""
    with store(directory) as writer:
        for batch in batches:
            deliver(writer, batch)
    check(directory / "history.db")
    return directory / "history.db"


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialect whose model spans have their prompts in log records only."""

    def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        if record.text(semconv.GEN_AI_OPERATION_NAME) != "chat":
            return None
        said = "\n".join(str(one.body) for one in logs if one.event_name == PROMPT)
        prompt = Said(said, structured=False) if said else None
        status = "running" if record.end_ns is None else "succeeded"
        calls = (ModelCall(0, status, record.start_ns, record.end_ns, prompt=prompt),)
        return SpanFacts(role="model", status=status, model_calls=calls)

    monkeypatch.setattr(conventions, "DIALECTS", (read,))


def prompts(database: Path) -> list[Any]:
    """The prompts of all steps."""
    return [row["prompt"] for row in rows(database, "SELECT prompt FROM steps ORDER BY step_id")]


def test_a_record_is_kept_whole(tmp_path: Path) -> None:
    """All that OTLP knows of it is in the view ``logs``."""
    origin = OriginRecord("lib", "1", "https://example.org", {"a": "x" * 400}, 3)
    record = LogRecord(
        TRACE,
        span_id(1),
        "what happened",
        body=EXACT,
        attributes=EXACT | {"messages": json.dumps([message("m" * 300)] * 3)},
        time_ns=NOON,
        observed_ns=2**70,
        severity_number=17,
        severity_text="bad",
        flags=0x301,
        dropped_attributes=2,
        resource=origin,
        scope=origin,
    )
    (row,) = rows(stored(tmp_path, [[span(1), record]]), "SELECT * FROM logs")
    assert same(decode(row["body"]), EXACT)
    attributes = decode(row["attributes"])
    assert attributes.pop("messages") == record.attributes["messages"]
    assert same(attributes, EXACT)
    assert decode(row["resource"])["attributes"] == {"a": "x" * 400}
    assert decode(row["scope"])["dropped_attributes_count"] == 3
    assert (row["trace_id"], row["span_id"], row["task_id"]) == (TRACE, span_id(1), TRACE)
    assert (row["event_name"], row["severity_number"], row["severity_text"]) == (
        *("what happened", 17, "bad"),
    )
    assert (row["time_unix_nano"], row["observed_time_unix_nano"]) == (NOON, str(2**70))
    assert (row["flags"], row["dropped_attributes_count"], row["marks"]) == (0x301, 2, None)


def test_what_has_no_form_is_marked(tmp_path: Path) -> None:
    """In the record as in a span."""
    half = "x\ud83e"
    record = log(1, half, name=half, severity_text=half, attributes={"o": object()})
    (row,) = rows(stored(tmp_path, [[record]]), "SELECT * FROM logs")
    assert json.loads(row["marks"]) == ["attributes", "body", "event_name", "severity_text"]
    assert decode(row["body"]) == half


def test_the_same_record_is_kept_once(tmp_path: Path) -> None:
    """However often it comes; another one of the same moment is another one."""
    records = [log(1, "a"), log(1, "a"), log(1, "b"), log(1, "a", severity_number=9), log(2, "a")]
    database = stored(tmp_path, [[span(1), *records], records, [*records, span(1), span(2)]])
    assert rows(database, "SELECT count(*) AS n FROM logs") == [{"n": 4}]


def test_long_values_are_kept_once(tmp_path: Path) -> None:
    """A long text of a log record that is also in its span is one row."""
    long = "a long text " * 100
    told = [log(1, long, attributes={"again": long}), log(2, {"deep": [long]})]
    database = stored(tmp_path, [[span(1, attributes={"a": long}), *told]])
    found = rows(database, "SELECT count(*) AS n FROM _contents WHERE text LIKE '%a long text%'")
    assert found == [{"n": 1}]


ORDERS = {
    "log, span": [[log(2, "p", at=1)], [agent(1, None), model(2, 1)]],
    "span, log": [[agent(1, None), model(2, 1)], [log(2, "p", at=1)]],
    "together, log first": [[log(2, "p", at=1), model(2, 1), agent(1, None)]],
    "together, log last": [[model(2, 1), agent(1, None), log(2, "p", at=1)]],
    "while it runs": [
        [agent(1, None, end=None), model(2, 1, end=None)],
        [log(2, "p", at=1)],
        [model(2, 1)],
        [agent(1, None)],
    ],
    "again and again": [[log(2, "p", at=1), model(2, 1)], [log(2, "p", at=1)], [agent(1, None)]]
    * 2,
}


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("name", ORDERS)
def test_any_order_means_the_same(tmp_path: Path, name: str) -> None:
    """Whichever of log record and span comes first."""
    expected = stored(tmp_path / "expected", [[agent(1, None), model(2, 1), log(2, "p", at=1)]])
    assert prompts(expected) == ["p"]
    database = stored(tmp_path / "other", ORDERS[name])
    assert prompts(database) == ["p"]
    assert public(database) == public(expected)


@pytest.mark.usefixtures("listening")
def test_several_records_in_the_order_of_their_time(tmp_path: Path) -> None:
    """Not in that of their arrival; equal times in an order that is always the same."""
    told = [log(2, "first", at=1), log(2, "second", at=2), log(2, "third", at=3)]
    for position, order in enumerate(([2, 0, 1], [1, 2, 0], [0, 1, 2])):
        batches = [[agent(1, None), model(2, 1)], *([told[number]] for number in order)]
        assert prompts(stored(tmp_path / str(position), batches)) == ["first\nsecond\nthird"]
    equal = [log(2, letter, at=1) for letter in "abcd"]
    one = prompts(stored(tmp_path / "one", [[model(2, None), *equal]]))
    assert prompts(stored(tmp_path / "two", [[model(2, None)], *([e] for e in equal[::-1])])) == one


@pytest.mark.usefixtures("listening")
def test_a_running_span_shows_what_its_log_said(tmp_path: Path) -> None:
    """Before it ends; when its process is gone it is interrupted, and stays so."""
    with store(tmp_path) as writer:
        deliver(writer, [agent(1, None, end=None), model(2, 1, end=None)])
        deliver(writer, [log(2, "p")])
        running = rows(tmp_path / "history.db", "SELECT status, prompt FROM steps")
        assert running == [{"status": "running", "prompt": "p"}]
    with store(tmp_path) as writer:
        deliver(writer, [log(2, "and more", at=1)])
        (step,) = rows(tmp_path / "history.db", "SELECT status, prompt, ended_at FROM steps")
        assert step["prompt"] == "p\nand more"
        assert step["ended_at"] is not None
        tables = ("tasks", "steps", "model_calls")
        for table in tables:
            assert [
                row["status"] for row in rows(tmp_path / "history.db", f"SELECT * FROM {table}")
            ] == ["interrupted"]
    told = rows(
        tmp_path / "history.db", "SELECT event FROM timeline WHERE event LIKE '%interrupted'"
    )
    assert len(told) == 2


@pytest.mark.usefixtures("listening")
def test_a_line_of_a_log_changes_no_meaning(tmp_path: Path) -> None:
    """A record without a name is kept, and its span is not read again for it."""
    seen: list[int] = []

    def counting(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        seen.append(len(logs))
        return None

    with store(tmp_path) as writer, pytest.MonkeyPatch.context() as patch:
        deliver(writer, [model(2, None)])
        patch.setattr(conventions, "DIALECTS", (counting,))
        deliver(writer, [log(2, "a line", name="")] * 2)
        assert seen == []
        deliver(writer, [log(2, "an event")])
        assert seen == [1]
    assert rows(tmp_path / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 2}]


def test_a_span_of_ours_means_what_it_says_itself(tmp_path: Path) -> None:
    """Log records within it are kept with it and change nothing."""
    spans = [own_task(), own_step(2, prompt=[message("asked")])]
    expected = public(stored(tmp_path / "without", [spans]))
    database = stored(tmp_path / "with", [[log(2, "x")], spans, [log(2, "y"), log(1, "z")]])
    assert public(database) == expected
    assert rows(database, "SELECT DISTINCT task_id FROM logs") == [{"task_id": TRACE}]


def test_spans_look_for_no_logs_where_there_are_none(tmp_path: Path) -> None:
    """One look is all that a history without log records pays, and not in each transaction."""
    with store(tmp_path) as writer:
        deliver(writer, [agent(1, None)])
        session = writer._session
        assert session is not None
        statements: list[str] = []
        session._database.connection.set_trace_callback(statements.append)
        deliver(writer, [model(number, 1) for number in range(2, 12)])
        assert sum("_logs" in one for one in statements) <= 1
        statements.clear()
        deliver(writer, [log(2, "x")])
        statements.clear()
        deliver(writer, [model(number, 1) for number in range(12, 22)])
        # Of each span those that name it, and those that name the span above: for it, and for that.
        assert sum("_logs" in one for one in statements) == 1 + 3 * 10
        session._database.connection.set_trace_callback(None)


def test_a_dialect_that_fails_on_log_records_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading without them stays, whichever came first; the failure is told."""

    def failing(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        if logs:
            raise RuntimeError("no")
        return genai.read(record)

    monkeypatch.setattr(conventions, "DIALECTS", (failing,))
    with store(tmp_path) as writer:
        told: list[BaseException] = []
        writer._on_error = told.append
        for batch in ([model(2, None)], [log(2, "x"), log(3, "y")], [model(3, 2)]):
            job = writer.submit([entry_of(one, NOON) for one in batch], durable=False)
            assert job.stored
        assert [type(one) for one in told] == [RuntimeError] * 2
        assert (writer.counters.lost, writer.counters.reduced) == (0, 0)
    database = tmp_path / "history.db"
    check(database)
    assert rows(database, "SELECT count(*) AS n FROM _model_calls") == [{"n": 2}]
    assert rows(database, "SELECT count(*) AS n FROM logs") == [{"n": 2}]


def test_a_poisoned_record_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be stored as it is loses its content and says so."""
    with store(tmp_path) as writer:
        session = writer._session
        assert session is not None
        once = session._logs.write

        def poisoned(record: LogRecord, *rest: Any) -> Any:
            if record.body == "poison":
                raise ValueError("poison")
            return once(record, *rest)

        monkeypatch.setattr(session._logs, "write", poisoned)
        batch = [model(2, None), log(2, "good"), log(2, "poison", at=1), log(2, "also good")]
        job = writer.submit([entry_of(one, NOON) for one in batch], durable=False)
        assert job.stored
        assert (writer.counters.reduced, writer.counters.lost, writer.counters.logs) == (1, 0, 3)
    found = rows(tmp_path / "history.db", "SELECT body, marks FROM logs ORDER BY body")
    assert [(row["body"], row["marks"]) for row in found] == [
        ('"also good"', None),
        ('"good"', None),
        ("null", '["reduced"]'),
    ]


@pytest.mark.parametrize("file", WITH_LOGS, ids=lambda file: file.stem)
def test_real_log_records_in_any_order(tmp_path: Path, file: Path) -> None:
    """Recordings of real instrumentations mean the same however spans and log records mix."""
    spans = list(records_in(file.with_name(file.name.replace(".logs", ""))))
    told = [one for one in logs_in(file) if one.trace_id and one.span_id]
    expected = public(stored(tmp_path / "logs first", [told, spans]))
    everything = [*spans, *told]
    for seed in range(3):
        order = list(everything)
        random.Random(seed).shuffle(order)
        size = (1, 3, len(order))[seed]
        batches = [order[first : first + size] for first in range(0, len(order), size)]
        assert public(stored(tmp_path / str(seed), batches)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "langchain__traceloop-events__thread-id-2turns",
        "openai__v2-eventonly__chat-loop-under-user-root",
        "openai__v2old-legacy__chat-loop-under-user-root",
        "pydantic-ai1__native-v1-logs__tools-retry",
    ],
)
def test_content_of_log_records_reaches_prompts(tmp_path: Path, name: str) -> None:
    """Where the spans of a real recording carry none."""
    spans = list(records_in(CORPUS / f"{name}.jsonl"))
    told = list(logs_in(CORPUS / f"{name}.logs.jsonl"))
    without = prompts(stored(tmp_path / "without", [spans]))
    assert without
    assert not any(without)
    assert all(prompts(stored(tmp_path / "with", [spans, told])))


# --- removal ---


def leftovers(database: Path) -> dict[str, int]:
    """How many rows there are behind the public tables."""
    names = ("_logs", "_log_contents", "_log_nodes", "_contents", "_nodes", "_spans", "_traces")
    names += ("_artifacts", "_content_parts")
    return {name: rows(database, f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in names}


def settings_of(directory: Path, **limits: Any) -> Settings:
    """Of this history, without limits but for these."""
    none: dict[str, Any] = {"max_age": None, "max_tasks": None, "max_bytes": None}
    return Settings.resolve(directory=directory, retention=Retention(**none | limits))


def test_log_records_go_with_their_task(tmp_path: Path) -> None:
    """Also those whose span never came, with all that only they used, pictures too."""
    long = json.dumps([message("m" * 400 + str(n)) for n in range(3)])
    picture = data_url(png(5, 300))
    told = [
        log(2, "x" * 500, attributes={"messages": long}),
        log(2, {"picture": picture}, name="with a picture"),
        log(7, "of a span that never comes " * 50, resource=OriginRecord(attributes={"r": 1})),
    ]
    kept = [
        replace(one, trace_id="f" * 32) for one in (agent(1, None), tool(3, 1), log(3, "kept" * 99))
    ]
    database = stored(tmp_path, [[agent(1, None), model(2, 1), *told], kept])
    before = leftovers(stored(tmp_path / "only kept", [kept]))
    assert leftovers(database)["_artifacts"] == 1
    remove_task(settings_of(tmp_path), TRACE, clock=lambda: NOON)
    check(database)
    assert leftovers(database) == before
    assert [row["trace_id"] for row in rows(database, "SELECT trace_id FROM logs")] == ["f" * 32]


def test_log_records_of_a_removed_task_are_out_of_sight_at_once(tmp_path: Path) -> None:
    """While the rows of a large task are still being removed."""
    told = [log(2, f"line {n}", name="") for n in range(5)] + [log(9, "waits")]
    database = stored(tmp_path, [[agent(1, None), model(2, 1), *told]])
    with store(tmp_path) as writer:
        session = writer._session
        assert session is not None
        with session._database.transaction() as connection:
            (task,) = connection.execute("SELECT id FROM tasks").fetchone()
            session.retainer._remover.hide(task, None, NOON)
        assert rows(database, "SELECT * FROM logs") == []
        assert rows(database, "SELECT count(*) AS n FROM _logs") == [{"n": 6}]
    prune(settings_of(tmp_path), clock=lambda: NOON)
    check(database)
    assert leftovers(database)["_logs"] == 0


def test_a_late_record_brings_no_task_back(tmp_path: Path) -> None:
    """One whose task was removed a moment ago is dropped and counted."""
    stored(tmp_path, [[agent(1, None), model(2, 1), log(2, "x")]])
    remove_task(settings_of(tmp_path), TRACE, clock=lambda: NOON)
    with store(tmp_path) as writer:
        deliver(writer, [log(2, "y"), log(5, "z")])
        assert writer.counters.late == 2
    database = tmp_path / "history.db"
    assert leftovers(database)["_logs"] == leftovers(database)["_traces"] == 0


def test_a_record_waits_for_its_span_for_a_day(tmp_path: Path) -> None:
    """Then it goes, with all it used, and the timeline says how many went."""
    now = [NOON]
    told = [log(n, f"{n}" * 400, resource=OriginRecord(attributes={"n": n})) for n in range(5)]
    writer = Writer(settings_of(tmp_path), clock=lambda: now[0])
    try:
        writer.submit([LogEntry(one, NOON) for one in told], durable=False)
        now[0] += WAITING_NS // 2
        writer.submit([LogEntry(log(7, "younger"), now[0])], durable=False)
        assert leftovers(tmp_path / "history.db")["_logs"] == 6
        now[0] += WAITING_NS // 2 + 1
        writer.submit([entry_of(agent(30, None, trace_id="e" * 32), now[0])], durable=False)
    finally:
        writer.close()
    database = tmp_path / "history.db"
    check(database)
    assert [row["body"] for row in rows(database, "SELECT body FROM logs")] == ['"younger"']
    assert leftovers(database)["_traces"] == 2
    (gap,) = rows(database, "SELECT detail FROM timeline WHERE event = 'loss'")
    assert json.loads(gap["detail"])["logs"] == 5
    texts = rows(database, "SELECT text FROM _contents WHERE text LIKE '%0000%'")
    assert texts == []


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """A process whose spans go elsewhere does not fill the disk; the oldest go first."""
    now = NOON
    writer = Writer(settings_of(tmp_path), clock=lambda: now)
    try:
        text = "x" * (WAITING_BYTES // 1500)
        for number in range(2400):
            record = log(number, f"{number}{text}", trace_id="a" * 32)
            writer.submit([LogEntry(record, NOON + number)], durable=False)
    finally:
        writer.close()
    database = tmp_path / "history.db"
    (waiting,) = rows(database, "SELECT sum(size) AS n, min(seen_ns) AS oldest FROM _logs")
    assert waiting["n"] < WAITING_BYTES * 1.5
    assert waiting["oldest"] > NOON + 100
    check(database)


def test_a_record_that_waited_belongs_to_its_span(tmp_path: Path) -> None:
    """What waited is claimed by the span with its id in its trace, and by no other."""
    other = "b" * 32
    told = [log(2, "mine"), log(2, "of another trace", trace_id=other), log(3, "of another span")]
    database = stored(tmp_path, [told, [model(2, None)]])
    found = rows(database, "SELECT body, task_id FROM logs ORDER BY body")
    assert [(row["body"], row["task_id"]) for row in found] == [
        ('"mine"', TRACE),
        ('"of another span"', None),
        ('"of another trace"', None),
    ]
