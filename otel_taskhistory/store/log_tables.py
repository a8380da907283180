# SPDX-License-Identifier: Apache-2.0
"""The part of the schema that holds log records, beside that of spans.

* ``_logs`` is the ledger of log records that were written within a span. ``span`` is that span's
  row, or NULL while the span has not come. ``_log_contents`` and ``_log_nodes`` say what a record
  uses, as ``_span_contents`` and ``_span_nodes`` do for spans. Each of them says ``span`` too, so
  that removing a span finds what its records use in the same way as what it uses itself.
* ``logs`` is the view of it that people query. What waits for its span is in it as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_TABLES: Final = (
    """
CREATE TABLE _logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trace INTEGER NOT NULL REFERENCES _traces(id),
    span_id TEXT NOT NULL,
    span INTEGER REFERENCES _spans(id),
    digest BLOB NOT NULL UNIQUE,
    event_name TEXT NOT NULL,
    time_ns ANY NOT NULL,
    observed_ns ANY NOT NULL,
    severity_number INTEGER NOT NULL,
    severity_text TEXT NOT NULL,
    flags INTEGER NOT NULL,
    dropped_attributes INTEGER NOT NULL,
    resource INTEGER NOT NULL REFERENCES _contents(id),
    scope INTEGER NOT NULL REFERENCES _contents(id),
    seen_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    marks TEXT,
    templates INTEGER NOT NULL,
    body TEXT NOT NULL,
    attributes TEXT NOT NULL
) STRICT
""",
    "CREATE INDEX _logs_trace ON _logs (trace, span_id)",
    # Only these are asked for what they say of their span.
    "CREATE INDEX _logs_events ON _logs (trace, span_id) WHERE event_name <> ''",
    "CREATE INDEX _logs_span ON _logs (span)",
    "CREATE INDEX _logs_waiting ON _logs (seen_ns, size) WHERE span IS NULL",
    "CREATE INDEX _logs_resource ON _logs (resource)",
    "CREATE INDEX _logs_scope ON _logs (scope)",
    """
CREATE TABLE _log_contents (
    content INTEGER NOT NULL REFERENCES _contents(id),
    log INTEGER NOT NULL REFERENCES _logs(id),
    span INTEGER,
    PRIMARY KEY (content, log)
) STRICT, WITHOUT ROWID
""",
    "CREATE INDEX _log_contents_of ON _log_contents (log)",
    "CREATE INDEX _log_contents_span ON _log_contents (span)",
    """
CREATE TABLE _log_nodes (
    node INTEGER NOT NULL REFERENCES _nodes(id),
    log INTEGER NOT NULL REFERENCES _logs(id),
    span INTEGER,
    PRIMARY KEY (node, log)
) STRICT, WITHOUT ROWID
""",
    "CREATE INDEX _log_nodes_of ON _log_nodes (log)",
    "CREATE INDEX _log_nodes_span ON _log_nodes (span)",
)

_VIEW: Final = """
CREATE VIEW logs AS
SELECT trace.trace_id, log.span_id, log.event_name, log.time_ns AS time_unix_nano,
    log.observed_ns AS observed_time_unix_nano, log.severity_number, log.severity_text,
    {body} AS body,
    {attributes} AS attributes,
    (SELECT text FROM _contents WHERE id = log.resource) AS resource,
    (SELECT text FROM _contents WHERE id = log.scope) AS scope,
    log.flags, log.dropped_attributes AS dropped_attributes_count, log.marks, task.task_id
FROM _logs AS log
JOIN _traces AS trace ON trace.id = log.trace
LEFT JOIN _spans AS own ON own.id = log.span
LEFT JOIN tasks AS task ON task.id = own.task
WHERE trace.trace_id NOT LIKE 'removed-%' AND (own.task IS NULL OR task.id IS NOT NULL)
"""


def log_tables(filled: Callable[[str, str], str]) -> tuple[str, ...]:
    """The statements, to be executed one by one after those of spans and tasks.

    Args:
        filled: SQL for the text that a column stands for, of the column and of whether it is a
            template.
    """
    view = _VIEW.format(
        body=filled("log.body", "log.templates & 1"),
        attributes=filled("log.attributes", "log.templates & 2"),
    )
    return tuple(map(str.strip, (*_TABLES, view)))
