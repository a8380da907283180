# SPDX-License-Identifier: Apache-2.0
"""The part of the schema that `otel-taskhistory forward` needs: what changed, and what was sent.

* ``_changes`` has a row for each span that can be sent: one that has ended, or whose process has.
  When the ledger gets to know a better version of a span, its row goes and a new one comes, so the
  numbers are in the order of commits, none is used twice, and whoever has sent all up to a number
  has missed nothing that was committed before: neither late spans, nor those that were open when
  they were seen first. Triggers keep the table true whoever writes. (The numbers of the timeline do
  not do: many spans leave no mark there.)
* ``_forwards`` says how far each destination has got. A destination is an endpoint (without what
  may be secret in its URL) and a policy.

The names of both begin with an underscore: they are ours and may change.
"""

from __future__ import annotations

from typing import Final

_CHANGED: Final = """
    DELETE FROM _changes WHERE span = new.id;
    INSERT INTO _changes (span) VALUES (new.id);"""

STATEMENTS: Final = tuple(
    map(
        str.strip,
        (
            """
CREATE TABLE _changes (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    span INTEGER NOT NULL UNIQUE REFERENCES _spans(id)
) STRICT
""",
            """
CREATE TABLE _forwards (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint TEXT NOT NULL,
    policy TEXT NOT NULL,
    change INTEGER NOT NULL DEFAULT 0,
    sent INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    removed INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0,
    begun_ns INTEGER NOT NULL,
    seen_ns INTEGER NOT NULL,
    hold_until_ns INTEGER,
    UNIQUE (endpoint, policy)
) STRICT
""",
            "CREATE INDEX _forwards_change ON _forwards (change)",
            "CREATE INDEX _forwards_held ON _forwards (hold_until_ns, change)",
            # A start row costs nothing here: it cannot be sent yet.
            """
CREATE TRIGGER _spans_ended AFTER INSERT ON _spans WHEN new.end_ns IS NOT NULL BEGIN
    INSERT INTO _changes (span) VALUES (new.id);
END
""",
            # The ledger writes a version of a span as a whole, with its end.
            f"""
CREATE TRIGGER _spans_changed AFTER UPDATE OF end_ns ON _spans WHEN new.end_ns IS NOT NULL
BEGIN{_CHANGED}
END
""",
            # What a process has left open can be sent when the process has ended...
            """
CREATE TRIGGER _processes_ended AFTER UPDATE OF ended_ns ON _processes
WHEN old.ended_ns IS NULL AND new.ended_ns IS NOT NULL
BEGIN
    DELETE FROM _changes
    WHERE span IN (SELECT id FROM _spans WHERE process = new.id AND end_ns IS NULL);
    INSERT INTO _changes (span)
    SELECT id FROM _spans WHERE process = new.id AND end_ns IS NULL ORDER BY id;
END
""",
            # ...or when it is handed over to one that has.
            f"""
CREATE TRIGGER _spans_left AFTER UPDATE OF process ON _spans
WHEN new.end_ns IS NULL AND new.process IS NOT old.process
    AND EXISTS (SELECT 1 FROM _processes WHERE id = new.process AND ended_ns IS NOT NULL)
BEGIN{_CHANGED}
END
""",
            # Spans go only with their task, by retention: whoever had still to send them is told.
            """
CREATE TRIGGER _spans_gone BEFORE DELETE ON _spans BEGIN
    UPDATE _forwards SET removed = removed + 1
    WHERE change < (SELECT change FROM _changes WHERE span = old.id);
    DELETE FROM _changes WHERE span = old.id;
END
""",
        ),
    )
)
"""To be executed one by one, after the tables that they are about are there."""
