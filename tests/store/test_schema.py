# SPDX-License-Identifier: Apache-2.0
"""The schema: names people query, references that are found fast, statements that never scan."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory import semconv
from tests.store.deliveries import (
    agent,
    asks,
    data_url,
    message,
    model,
    own_step,
    own_task,
    own_tool,
    png,
    span,
    store,
    stored,
    tool,
    write,
)
from tests.store.test_pictures import GOOD, screenshot_event

CONTRACT = {
    "tasks": "task_id trace_id kind goal agent status started_at ended_at duration_ms step_count"
    " model input_tokens output_tokens cached_tokens reasoning_tokens cost result error error_type"
    " conversation_id parent_task_id attempt pinned span_count dropped",
    "steps": "step_id task_id trace_id step_index name agent status attempt started_at ended_at"
    " duration_ms model prompt decision tool_name tool_arguments tool_result result error"
    " error_type screenshot input_tokens output_tokens",
    "model_calls": "step_id task_id span_id ordinal attempt model prompt decision finish_reason"
    " input_tokens output_tokens cached_tokens reasoning_tokens cost status error started_at"
    " ended_at duration_ms",
    "tool_calls": "call_id step_id task_id span_id name arguments result status error started_at"
    " ended_at duration_ms",
    "screenshots": "step_id task_id role sha256 path media_type width height bytes caption"
    " captured_at status",
    "timeline": "seq task_id step_id at event detail",
    "spans": "trace_id span_id parent_span_id trace_state flags name kind start_time_unix_nano"
    " end_time_unix_nano status_code status_message attributes events links resource scope"
    " dropped_attributes_count dropped_events_count dropped_links_count",
    # Not in the contract, and useful all the same.
    "logs": "trace_id span_id event_name time_unix_nano observed_time_unix_nano severity_number"
    " severity_text body attributes resource scope flags dropped_attributes_count task_id",
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a new history."""
    with closing(sqlite3.connect(stored(tmp_path, [[own_task()]]))) as connection:
        yield connection


@pytest.mark.parametrize("name", CONTRACT)
def test_public_columns(database: sqlite3.Connection, name: str) -> None:
    """The tables and views have at least the columns that are promised."""
    columns = {row[0] for row in database.execute(f"SELECT name FROM pragma_table_info('{name}')")}
    assert set(CONTRACT[name].split()) <= columns


def test_tables_are_strict(database: sqlite3.Connection) -> None:
    """A number column holds numbers, whatever writes to it; names of ours begin with _."""
    for kind, name, strict in database.execute(
        "SELECT type, name, strict FROM pragma_table_list WHERE schema = 'main'"
    ):
        if name.startswith("sqlite_") or name == "_sqlite_migrations":
            continue
        assert name in CONTRACT or name.startswith("_")
        assert kind in ("view", "virtual", "shadow") or strict, name


def test_every_reference_has_an_index(database: sqlite3.Connection) -> None:
    """Removing a row looks for those that refer to it: each column that does has an index."""
    tables = [
        row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    ]
    references = 0
    for table in tables:
        indexed = set()
        for _, index, _, _, partial in database.execute(f"PRAGMA index_list('{table}')"):
            first = database.execute(f"PRAGMA index_info('{index}')").fetchone()[2]
            sql = "SELECT sql FROM sqlite_schema WHERE name = ?"
            # A partial one serves when all it leaves out are rows that refer to nothing.
            if not partial or re.search(
                rf"WHERE {first} IS NOT NULL$", database.execute(sql, (index,)).fetchone()[0]
            ):
                indexed.add(first)
        for row in database.execute(f"PRAGMA foreign_key_list('{table}')"):
            references += 1
            assert row[3] in indexed, f"{table}.{row[3]}"
    assert references > 30


TABLE_SCAN = re.compile(r"^SCAN (?P<name>\w+)\b")
HARMLESS = {"CONSTANT", "piece", "part", "chain", "json_each"}
"""Not tables: a row of constants, pieces of a template, messages of a prompt, given numbers."""


def scans(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The steps of the plan of a statement that read a whole table."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    found = (TABLE_SCAN.match(step[3]) for step in plan)
    return [match[0] for match in found if match and match["name"] not in HARMLESS]


def test_writing_scans_no_table(tmp_path: Path) -> None:
    """Every statement of the writing side finds its rows by an index, however large it gets."""
    picture = {"gen_ai.tool.call.result": data_url(png(1, 300))}
    events = (screenshot_event(**GOOD),)
    said = {"prompt": [message("x" * 400), message(data_url(png(2)))], "decision": asks("c1")}
    long = {semconv.TASKHISTORY_STEP_RESULT: "y" * 400}
    system = {"gen_ai.system_instructions": '[{"type":"text","content":"z"}]'}
    own = [
        own_task(end=None),
        own_step(2, end=None),
        own_step(2, prompt=said["prompt"], end=None),
        own_tool(3, 2),
        span(4, 2),
        own_step(2, events=events, attributes=long, **said),
        own_step(2, events=events * 2, attributes={**long, "a": "b"}, **said),
        own_step(2, attributes=system, end=9),
        own_task(5, 1, attributes={semconv.TASKHISTORY_TASK_ATTEMPT: 2}, parent_remote=True),
        own_task(),
    ]
    trace = "f" * 32
    foreign = [
        span(14, 11, trace_id=trace),
        agent(11, None, trace_id=trace, end=None),
        model(12, 11, trace_id=trace, **said),
        model(15, 12, trace_id=trace, **said),
        tool(13, 11, "c1", trace_id=trace, attributes=picture),
        agent(16, None, trace_id=trace),
        agent(16, 11, trace_id=trace, end=18),
        span(12, 11, trace_id=trace, end=30),
        agent(11, None, trace_id=trace),
    ]
    statements: set[str] = set()
    with store(tmp_path) as writer:
        write(writer, [own_task(trace_id="e" * 32)])  # what the first writer does once
        session = writer._session
        assert session is not None
        connection = session._database.connection
        connection.set_trace_callback(statements.add)
        for record in own + foreign:
            write(writer, [record])
        connection.set_trace_callback(None)
        kinds = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
        checked = [one for one in statements if one.lstrip().startswith(kinds)]
        assert len(checked) > 100
        found = {one: scans(connection, one) for one in checked}
    # A look at whether so many rows wait to be indexed, or there is any picture, ends there; of
    # sequences there is one for each table.
    bounded = (
        "SELECT 1 FROM _unindexed LIMIT 1 OFFSET",
        "SELECT 1 FROM _content_pictures LIMIT 1",
        "SELECT seq FROM sqlite_sequence",
    )
    assert {one: s for one, s in found.items() if s and not one.startswith(bounded)} == {}
