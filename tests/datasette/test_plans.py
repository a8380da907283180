# SPDX-License-Identifier: Apache-2.0
"""What Datasette's own pages cost: our views, questions and facets as SQLite means to answer them.

A question or facet over all rows looks at all rows of one table, once (100,000 steps: 0.1 to 0.4 s,
as ``querying.md`` says); what a page lists is looked up, and no prompt is put together that is not
shown. Plans do not depend on how much there is: nothing here is analysed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from otel_taskhistory.datasette_plugin.queries import QUERIES
from otel_taskhistory.datasette_plugin.tables import TABLES

from .recorded_here import Recorded

BIG = {
    *("tasks", "screenshots", "step", "call", "own", "entry", "log", "span", "task", "step_span"),
    *("trace", "tool"),
}
"""Names of large tables, and their aliases in the views."""

FACETS = [(table, facet) for table, about in TABLES.items() for facet in about.facets]


@pytest.fixture(scope="module")
def connection(recorded_once: Recorded) -> Iterator[sqlite3.Connection]:
    """The history, for reading."""
    # Immutable: a reader would leave a -wal beside it, and other tests copy the folder.
    uri = f"{recorded_once.database.as_uri()}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as opened:
        yield opened


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The steps of SQLite's plan."""
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]


def scanned(lines: list[str]) -> list[str]:
    """The large tables that are looked at from end to end."""
    found = (re.match(r"SCAN (\w+)", line) for line in lines)
    return [match[1] for match in found if match is not None and match[1] in BIG]


def puts_together(lines: list[str]) -> bool:
    """Whether prompts or decisions are read."""
    return any("RECURSIVE" in line or "chain" in line for line in lines)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_a_question_looks_at_each_row_once(connection: sqlite3.Connection, query: object) -> None:
    """Of one table at most, and what belongs to a row is looked up; failed steps are looked up
    themselves. Only the question for missing decisions reads decisions.
    """
    name, sql = query.name, query.sql  # type: ignore[attr-defined]
    lines = plan(connection, sql)
    expected = 0 if name == "failed-steps" else 1
    assert len(scanned(lines)) == expected, lines
    assert puts_together(lines) == (name == "steps-without-a-decision"), lines
    assert not any("AUTOMATIC" in line for line in lines)


@pytest.mark.parametrize(("table", "facet"), FACETS)
def test_a_facet_reads_no_large_value(
    connection: sqlite3.Connection, table: str, facet: str
) -> None:
    """It looks at each row once, as Datasette asks for it."""
    lines = plan(
        connection,
        f"select {facet} as value, count(*) as count from (select * from [{table}])"
        f" where {facet} is not null group by {facet} order by count desc, value limit 31",
    )
    assert len(scanned(lines)) <= 1, lines
    assert not puts_together(lines), lines


@pytest.mark.parametrize("table", TABLES)
def test_the_first_page_of_a_table_is_sorted_by_no_one(
    connection: sqlite3.Connection, table: str
) -> None:
    """The order that we set is that of a key: no row is read that is not on the page."""
    order = TABLES[table].options.get("sort_desc")
    sql = f"select * from [{table}]" + (f" order by {order} desc" if order else "") + " limit 101"
    lines = plan(connection, sql)
    own = [line for line in lines if "TEMP B-TREE" in line]
    # Those that sort the messages of one prompt are within its subquery.
    assert len(own) <= sum("RECURSIVE" in line for line in lines), lines
    assert len(scanned(lines)) == 1, lines


LINKED = [
    *((table, "task_id") for table in ("tasks", "steps", "model_calls", "tool_calls")),
    *(("screenshots", "task_id"), ("screenshots", "sha256")),
    *(("timeline", "task_id"), ("spans", "trace_id")),
]


@pytest.mark.parametrize(("table", "column"), LINKED)
def test_what_links_lead_to_is_looked_up(
    connection: sqlite3.Connection, table: str, column: str
) -> None:
    """The rows of one task or picture are found by an index."""
    lines = plan(connection, f"select count(*) from [{table}] where [{column}] = 'x'")
    assert scanned(lines) == [], lines
