# SPDX-License-Identifier: Apache-2.0
"""The schema of a history, as sqlite-utils migrations; each is applied in one transaction.

Public names (what people query) are the tables ``tasks`` and ``screenshots`` and the views
``steps``, ``model_calls``, ``tool_calls``, ``timeline`` and ``spans``. Names that begin with an
underscore are ours and may change.

* ``_contents`` keeps each distinct value once. A row is plain text, or a template: a JSON array
  whose strings are literal and whose numbers stand for other rows (``n``: the text of row n as a
  JSON string, ``-n``: the text of row n as it is).
* ``_nodes`` keeps prompts as persistent lists: a node is a message after a parent node, so that a
  conversation that grew by one message costs one node.
* ``_spans`` is the ledger, span by span as they came; its JSON columns may be templates too, with
  one more kind of element, ``[node, opening, separator, closing]``: a list of messages as a JSON
  string.
* ``_steps``, ``_model_calls``, ``_tool_calls`` and ``tasks`` are what the spans mean. They can be
  rebuilt from the ledger. A model or tool call with a ``twin_of`` is that call seen by another
  instrumentation, a ``nested`` one was made by an agent within a tool of its step; the bits of
  ``filled`` say which of its columns are those of a twin (see `otel_taskhistory.store.twins`).
* ``_traces.assembled`` is one of `otel_taskhistory.store.rows.TraceState`.
* ``_sides`` are traces in which something was only made ready: they have no task, their spans no
  owner, and retention finds them by their last commit.
* What retention counts and remembers is in `otel_taskhistory.store.bookkeeping`. Rows of a task
  refer to ``_owners``, which outlives the task until all of them are gone.
* What changed, and what of it was sent elsewhere, is in `otel_taskhistory.store.forward_tables`.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlite_utils import Database, Migrations

from otel_taskhistory.store.bookkeeping import STATEMENTS as BOOKKEEPING
from otel_taskhistory.store.filling import filled, messages
from otel_taskhistory.store.forward_tables import STATEMENTS as FORWARDING
from otel_taskhistory.store.log_tables import log_tables
from otel_taskhistory.store.search.index import STATEMENTS as SEARCH

migrations = Migrations("otel_taskhistory")

_TABLES: Final = """
CREATE TABLE _meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE _artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    media_type TEXT NOT NULL,
    width INTEGER,
    height INTEGER,
    bytes INTEGER NOT NULL,
    status TEXT NOT NULL
) STRICT;

CREATE TABLE _contents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    template INTEGER NOT NULL,
    pictures INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE TABLE _content_parts (
    child INTEGER NOT NULL REFERENCES _contents(id),
    content INTEGER NOT NULL REFERENCES _contents(id),
    PRIMARY KEY (child, content)
) STRICT, WITHOUT ROWID;
CREATE INDEX _content_parts_of ON _content_parts (content);

CREATE TABLE _content_pictures (
    content INTEGER NOT NULL REFERENCES _contents(id),
    position INTEGER NOT NULL,
    artifact INTEGER NOT NULL REFERENCES _artifacts(id),
    PRIMARY KEY (content, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX _content_pictures_of ON _content_pictures (artifact);

CREATE TABLE _nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER REFERENCES _nodes(id),
    content INTEGER NOT NULL REFERENCES _contents(id),
    length INTEGER NOT NULL,
    pictures INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX _nodes_after ON _nodes (parent, content) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX _nodes_first ON _nodes (content) WHERE parent IS NULL;
CREATE INDEX _nodes_of ON _nodes (content);

CREATE TABLE _processes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    service TEXT,
    started_ns INTEGER NOT NULL,
    seen_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    lock TEXT,
    birth TEXT
) STRICT;

CREATE TABLE _traces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trace_id TEXT NOT NULL UNIQUE,
    assembled INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE _sides (
    trace INTEGER PRIMARY KEY REFERENCES _traces(id),
    committed_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX _sides_oldest ON _sides (committed_ns);

CREATE TABLE _spans (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trace INTEGER NOT NULL REFERENCES _traces(id),
    span_id TEXT NOT NULL,
    parent_span_id TEXT,
    parent_remote INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    start_ns ANY NOT NULL,
    end_ns ANY,
    status_code TEXT NOT NULL,
    status_message TEXT,
    trace_state TEXT NOT NULL,
    flags INTEGER NOT NULL,
    dropped_attributes INTEGER NOT NULL,
    dropped_events INTEGER NOT NULL,
    dropped_links INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES _contents(id),
    scope INTEGER NOT NULL REFERENCES _contents(id),
    role TEXT NOT NULL,
    facts TEXT NOT NULL,
    task INTEGER REFERENCES _owners(id),
    process INTEGER REFERENCES _processes(id),
    seen_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    marks TEXT,
    templates INTEGER NOT NULL,
    attributes TEXT NOT NULL,
    events TEXT NOT NULL,
    links TEXT NOT NULL,
    UNIQUE (trace, span_id)
) STRICT;
CREATE INDEX _spans_children ON _spans (trace, parent_span_id);
CREATE INDEX _spans_task ON _spans (task);
CREATE INDEX _spans_roots ON _spans (trace) WHERE role = 'task';
CREATE INDEX _spans_open ON _spans (process) WHERE process IS NOT NULL;
CREATE INDEX _spans_resource ON _spans (resource);
CREATE INDEX _spans_scope ON _spans (scope);

CREATE TABLE _span_contents (
    content INTEGER NOT NULL REFERENCES _contents(id),
    span INTEGER NOT NULL REFERENCES _spans(id),
    PRIMARY KEY (content, span)
) STRICT, WITHOUT ROWID;
CREATE INDEX _span_contents_of ON _span_contents (span);

CREATE TABLE _span_nodes (
    node INTEGER NOT NULL REFERENCES _nodes(id),
    span INTEGER NOT NULL REFERENCES _spans(id),
    PRIMARY KEY (node, span)
) STRICT, WITHOUT ROWID;
CREATE INDEX _span_nodes_of ON _span_nodes (span);

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL UNIQUE,
    trace_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    agent TEXT,
    status TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT,
    duration_ms REAL,
    step_count INTEGER NOT NULL DEFAULT 0,
    model TEXT,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER,
    cost REAL,
    conversation_id TEXT,
    parent_task_id TEXT,
    attempt INTEGER NOT NULL DEFAULT 1,
    pinned INTEGER NOT NULL DEFAULT 0,
    span_count INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    error_type TEXT,
    key TEXT,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    committed_ns INTEGER NOT NULL,
    trace INTEGER NOT NULL REFERENCES _traces(id),
    process INTEGER,
    root INTEGER REFERENCES _spans(id),
    goal TEXT,
    result TEXT,
    error TEXT
) STRICT;
CREATE INDEX tasks_newest ON tasks (kind, started_ns, id);
CREATE INDEX tasks_status ON tasks (status, started_ns);
CREATE INDEX tasks_agent ON tasks (agent, started_ns);
CREATE INDEX tasks_conversation ON tasks (conversation_id) WHERE conversation_id IS NOT NULL;
CREATE INDEX tasks_trace ON tasks (trace);
CREATE INDEX tasks_root ON tasks (root);
CREATE INDEX tasks_key ON tasks (key) WHERE key IS NOT NULL;
CREATE INDEX tasks_parent ON tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;

CREATE TABLE screenshots (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT REFERENCES tasks(task_id),
    step_id TEXT,
    role TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    path TEXT,
    media_type TEXT NOT NULL,
    width INTEGER,
    height INTEGER,
    bytes INTEGER NOT NULL,
    caption TEXT,
    captured_at TEXT NOT NULL,
    status TEXT NOT NULL,
    span INTEGER NOT NULL REFERENCES _spans(id),
    position INTEGER NOT NULL,
    told INTEGER NOT NULL DEFAULT 0,
    artifact INTEGER REFERENCES _artifacts(id)
) STRICT;
CREATE UNIQUE INDEX screenshots_of_span ON screenshots (span, role, position);
CREATE INDEX screenshots_step ON screenshots (task_id, step_id);
CREATE INDEX screenshots_sha256 ON screenshots (sha256);
CREATE INDEX screenshots_artifact ON screenshots (artifact, task_id);

CREATE TABLE _model_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    span INTEGER NOT NULL REFERENCES _spans(id),
    ordinal INTEGER NOT NULL,
    step INTEGER REFERENCES _steps(id),
    task INTEGER REFERENCES _owners(id),
    status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    model TEXT,
    prompt_node INTEGER REFERENCES _nodes(id),
    prompt_text INTEGER REFERENCES _contents(id),
    decision_node INTEGER REFERENCES _nodes(id),
    decision_text INTEGER REFERENCES _contents(id),
    finish_reason TEXT,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER,
    cost REAL,
    call_ids TEXT,
    response_id TEXT,
    twin_of INTEGER REFERENCES _model_calls(id),
    nested INTEGER NOT NULL DEFAULT 0,
    filled INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    UNIQUE (span, ordinal)
) STRICT;
CREATE INDEX _model_calls_step ON _model_calls (step);
CREATE INDEX _model_calls_twin ON _model_calls (twin_of) WHERE twin_of IS NOT NULL;
CREATE INDEX _model_calls_task ON _model_calls (task);
CREATE INDEX _model_calls_prompt_node ON _model_calls (prompt_node);
CREATE INDEX _model_calls_decision_node ON _model_calls (decision_node);
CREATE INDEX _model_calls_prompt_text ON _model_calls (prompt_text) WHERE prompt_text IS NOT NULL;
CREATE INDEX _model_calls_decision_text ON _model_calls (decision_text)
    WHERE decision_text IS NOT NULL;

CREATE TABLE _tool_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    span INTEGER NOT NULL UNIQUE REFERENCES _spans(id),
    step INTEGER REFERENCES _steps(id),
    task INTEGER REFERENCES _owners(id),
    call_id TEXT,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    arguments TEXT,
    arguments_content INTEGER REFERENCES _contents(id),
    result TEXT,
    result_content INTEGER REFERENCES _contents(id),
    twin_of INTEGER REFERENCES _tool_calls(id),
    filled INTEGER NOT NULL DEFAULT 0,
    told TEXT,
    error TEXT
) STRICT;
CREATE INDEX _tool_calls_step ON _tool_calls (step);
CREATE INDEX _tool_calls_twin ON _tool_calls (twin_of) WHERE twin_of IS NOT NULL;
CREATE INDEX _tool_calls_task ON _tool_calls (task);
CREATE INDEX _tool_calls_name ON _tool_calls (name, started_ns);
CREATE INDEX _tool_calls_arguments ON _tool_calls (arguments_content)
    WHERE arguments_content IS NOT NULL;
CREATE INDEX _tool_calls_result ON _tool_calls (result_content) WHERE result_content IS NOT NULL;

CREATE TABLE _steps (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES _owners(id),
    span INTEGER NOT NULL UNIQUE REFERENCES _spans(id),
    step_index INTEGER NOT NULL,
    name TEXT NOT NULL,
    agent TEXT,
    status TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    model TEXT,
    last_call INTEGER REFERENCES _model_calls(id),
    first_tool INTEGER REFERENCES _tool_calls(id),
    screenshot INTEGER REFERENCES screenshots(id),
    input_tokens INTEGER,
    output_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER,
    cost REAL,
    told TEXT,
    error_type TEXT,
    result TEXT,
    result_content INTEGER REFERENCES _contents(id),
    error TEXT
) STRICT;
CREATE INDEX _steps_task ON _steps (task, step_index, id);
CREATE INDEX _steps_status ON _steps (status, started_ns);
CREATE INDEX _steps_last_call ON _steps (last_call);
CREATE INDEX _steps_first_tool ON _steps (first_tool);
CREATE INDEX _steps_screenshot ON _steps (screenshot);
CREATE INDEX _steps_result ON _steps (result_content) WHERE result_content IS NOT NULL;

CREATE TABLE _timeline (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER REFERENCES _owners(id),
    span INTEGER REFERENCES _spans(id),
    at_ns INTEGER NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX _timeline_task ON _timeline (task, seq);
CREATE INDEX _timeline_span ON _timeline (span);
"""


def _said(alias: str, what: str) -> str:
    """SQL for a prompt or decision: plain text, or a JSON list of messages."""
    return f"""CASE
        WHEN {alias}.{what}_text IS NOT NULL THEN
            (SELECT text FROM _contents WHERE id = {alias}.{what}_text)
        WHEN {alias}.{what}_node IS NOT NULL THEN
            '[' || {messages(f"{alias}.{what}_node", "', '")} || ']'
        END"""


def _value(alias: str, what: str) -> str:
    """SQL for a value that is kept inline when short, else by content."""
    return f"""coalesce({alias}.{what},
        (SELECT text FROM _contents WHERE id = {alias}.{what}_content))"""


def _time(ns: str) -> str:
    """SQL for ns since 1970 as ISO 8601 UTC with microseconds."""
    return f"""strftime('%Y-%m-%dT%H:%M:%S', {ns} / 1000000000, 'unixepoch')
        || printf('.%06dZ', {ns} % 1000000000 / 1000)"""


def _duration(alias: str) -> str:
    return f"max({alias}.ended_ns - {alias}.started_ns, 0) / 1e6"


_TIMES: Final = """{started} AS started_at, {ended} AS ended_at, {duration} AS duration_ms"""


def _times(alias: str) -> str:
    return _TIMES.format(
        started=_time(f"{alias}.started_ns"),
        ended=_time(f"{alias}.ended_ns"),
        duration=_duration(alias),
    )


_VIEWS: Final = f"""
CREATE VIEW steps AS
SELECT own.span_id AS step_id, task.task_id, task.trace_id, step.step_index, step.name,
    step.agent, step.status, step.attempt, {_times("step")}, step.model,
    {_said("call", "prompt")} AS prompt,
    {_said("call", "decision")} AS decision,
    tool.name AS tool_name,
    {_value("tool", "arguments")} AS tool_arguments,
    {_value("tool", "result")} AS tool_result,
    {_value("step", "result")} AS result,
    step.error, step.error_type,
    (SELECT path FROM screenshots WHERE id = step.screenshot) AS screenshot,
    step.input_tokens, step.output_tokens, step.cached_tokens, step.reasoning_tokens, step.cost
FROM _steps AS step
JOIN tasks AS task ON task.id = step.task
JOIN _spans AS own ON own.id = step.span
LEFT JOIN _model_calls AS call ON call.id = step.last_call
LEFT JOIN _tool_calls AS tool ON tool.id = step.first_tool;

CREATE VIEW model_calls AS
SELECT step_span.span_id AS step_id, task.task_id, own.span_id, call.ordinal, call.attempt,
    call.model,
    {_said("call", "prompt")} AS prompt,
    {_said("call", "decision")} AS decision,
    call.finish_reason, call.input_tokens, call.output_tokens, call.cached_tokens,
    call.reasoning_tokens, call.cost, call.status, call.error, {_times("call")}
FROM _model_calls AS call
JOIN _spans AS own ON own.id = call.span
LEFT JOIN tasks AS task ON task.id = call.task
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE call.twin_of IS NULL AND (call.task IS NULL OR task.id IS NOT NULL);

CREATE VIEW tool_calls AS
SELECT call.call_id, step_span.span_id AS step_id, task.task_id, own.span_id, call.name,
    {_value("call", "arguments")} AS arguments,
    {_value("call", "result")} AS result,
    call.status, call.error, {_times("call")}
FROM _tool_calls AS call
JOIN _spans AS own ON own.id = call.span
LEFT JOIN tasks AS task ON task.id = call.task
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE call.twin_of IS NULL AND (call.task IS NULL OR task.id IS NOT NULL);

CREATE VIEW timeline AS
SELECT entry.seq, task.task_id, step_span.span_id AS step_id, {_time("entry.at_ns")} AS at,
    entry.event, entry.detail
FROM _timeline AS entry
LEFT JOIN tasks AS task ON task.id = entry.task
LEFT JOIN _spans AS step_span ON step_span.id = entry.span
WHERE entry.task IS NULL OR task.id IS NOT NULL;

CREATE VIEW spans AS
SELECT trace.trace_id, own.span_id, own.parent_span_id, own.trace_state, own.flags, own.name,
    own.kind, own.start_ns AS start_time_unix_nano, own.end_ns AS end_time_unix_nano,
    own.status_code, own.status_message,
    {filled("own.attributes", "own.templates & 1")} AS attributes,
    {filled("own.events", "own.templates & 2")} AS events,
    {filled("own.links", "own.templates & 4")} AS links,
    (SELECT text FROM _contents WHERE id = own.resource) AS resource,
    (SELECT text FROM _contents WHERE id = own.scope) AS scope,
    own.dropped_attributes AS dropped_attributes_count,
    own.dropped_events AS dropped_events_count,
    own.dropped_links AS dropped_links_count,
    own.marks, task.task_id
FROM _spans AS own
JOIN _traces AS trace ON trace.id = own.trace
LEFT JOIN tasks AS task ON task.id = own.task
WHERE own.task IS NULL OR task.id IS NOT NULL;
"""


def migrate(connection: sqlite3.Connection) -> None:
    """Within a transaction: bring the schema up to date."""
    # strict=False: only the tables of our own migrations need it, and name it.
    migrations.apply(Database(connection, execute_plugins=False))


@migrations()
def m001_initial(db: Database) -> None:
    """The first schema: contents stored once, the ledger, and what it means."""
    for statement in (
        *_statements(_TABLES + _VIEWS),
        *BOOKKEEPING,
        *FORWARDING,
        *log_tables(filled),
        *SEARCH,
    ):
        db.execute(statement)


def _statements(script: str) -> list[str]:
    """The statements of `script`; none of ours has a semicolon inside."""
    return [part for part in map(str.strip, script.split(";")) if part]
