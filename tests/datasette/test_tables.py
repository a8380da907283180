# SPDX-License-Identifier: Apache-2.0
"""Datasette's own pages of a history: cells, facets, questions, CSV; other databases untouched."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.datasette_plugin.cells import cell
from otel_taskhistory.datasette_plugin.csv_cells import SafeCells
from otel_taskhistory.datasette_plugin.database import count_cheaply
from otel_taskhistory.datasette_plugin.own_pages import visible
from otel_taskhistory.datasette_plugin.pool import reads_a_copy
from otel_taskhistory.datasette_plugin.queries import QUERIES
from otel_taskhistory.pages.links import Links
from tests.recorded import chat, recording

from .conftest import Open
from .recorded_here import PUBLIC, Elements, Recorded, assert_inert, sha256_of

LINKS = Links("/", "history")


async def get(datasette: Any, path: str) -> str:
    """A page that is there; 1.0 has moved some."""
    response = await datasette.client.get(path, follow_redirects=True)
    assert response.status_code == 200, path
    return str(response.text)


def query_page(datasette: Any, sql: str, kind: str = "") -> str:
    """The address of somebody's own SQL."""
    from urllib.parse import urlencode

    return f"/history{kind}?{urlencode({'sql': sql})}"


@pytest.mark.parametrize("table", PUBLIC)
async def test_nothing_recorded_acts_on_datasettes_pages(datasette: Any, table: str) -> None:
    """All text is text, whichever column it stands in."""
    page = await get(datasette, f"/history/{table}?_size=100")
    elements = assert_inert(page)
    assert "PWNED" in elements.text or table in ("screenshots", "timeline")
    for character in "\x1b\x07\x9b\u202e\u200b":
        assert character not in elements.cells


async def test_ids_lead_to_the_task_page(datasette: Any, recorded: Recorded) -> None:
    """From tasks to the task, from everything within a step to the step."""
    task = f"/-/taskhistory/tasks/{recorded.task_id}"
    for table in PUBLIC:
        links = Elements(await get(datasette, f"/history/{table}?_size=max")).links()
        assert task in links, table
        if table not in ("tasks", "spans"):
            step = recorded.step_ids[-1 if table == "screenshots" else 0]
            assert f"{task}?step={step}" in links, table
        assert not any(link.startswith("/history/_") for link in links)
    sql = "select task_id, step_id, name from steps"
    assert task in Elements(await get(datasette, query_page(datasette, sql))).links()


async def test_screenshots_are_thumbnails_that_lead_to_the_picture(
    datasette: Any, recorded: Recorded
) -> None:
    """In the table of pictures, in the list of steps, and in somebody's own SQL."""
    sha256 = sha256_of("png_ok.png")
    last = sha256_of("jpeg_gray.jpg")
    for path, wanted in (
        ("/history/screenshots?_size=100", sha256),
        ("/history/steps?_size=100", last),
        (query_page(datasette, "select path from screenshots"), sha256),
    ):
        elements = Elements(await get(datasette, path))
        images = [attributes for tag, attributes in elements.found if tag == "img"]
        address = f"/-/taskhistory/thumbnails/{wanted}"
        assert any(attributes["src"] == address for attributes in images), path
        assert f"/-/taskhistory/artifacts/{wanted}" in elements.links(), path
        assert all(attributes.get("alt") for attributes in images)


async def test_long_text_and_json_are_folded(datasette: Any, recorded: Recorded) -> None:
    """Without script; with their length; and of a long one only the beginning is on the page."""
    page = await get(datasette, f"/history/steps?task_id={recorded.task_id}&_size=100")
    elements = Elements(page)
    assert [tag for tag, _ in elements.found].count("details") >= 3
    with closing(sqlite3.connect(recorded.database)) as connection:
        (length,) = connection.execute("SELECT max(length(prompt)) FROM steps").fetchone()
    assert length > 10_000
    assert f"{length:,} characters" in elements.text
    assert "all of it" in elements.text
    assert page.count("word word") < 3_000


async def test_a_page_does_not_grow_with_what_is_recorded(
    directory: Path, open_datasette: Open
) -> None:
    """A hundred prompts of 300 kB: the page has the beginning of each."""
    with recording(directory) as tasks, tasks.task("large") as task:
        for number in range(20):
            with task.step("large") as step:
                step.prompt(chat(f"{number} " + "x" * 300_000), model="m")
                step.decision("d" * 300_000)
    datasette = await open_datasette(directory / "history.db")
    page = await get(datasette, "/history/steps")
    assert len(page) < 20 * 20_000


def test_a_cell_of_a_picture_that_was_not_stored_is_text() -> None:
    """No picture is asked for that cannot be there."""
    row = {"path": None, "status": "not_stored"}
    made = cell(LINKS, "sha256", "a" * 64, row.get)
    assert made is not None
    assert "<img" not in made.markup


@pytest.mark.parametrize(
    "value",
    ['{"a": ' * 2_000, "[" * 50_000, '{"a": 1' + "}" * 500, "[1, 2" + " " * 300, "{" + "\n" * 300],
)
def test_what_only_looks_like_json_is_shown_as_it_is(value: str) -> None:
    """Cut, or nested beyond all limits."""
    made = cell(LINKS, "prompt", value, {}.get)
    assert made is not None
    assert made.markup.startswith("<details")


def test_other_values_are_datasettes_own() -> None:
    """Numbers, NULL and binary."""
    for value in (None, 3, 3.5, b"\xff", ""):
        assert cell(LINKS, "prompt", value, {}.get) is None


async def test_tables_behind_the_public_names_are_hidden(
    datasette: Any, recorded: Recorded
) -> None:
    """What is not public is not listed, in the JSON it is marked."""
    found = (await datasette.client.get("/history.json")).json()
    with closing(sqlite3.connect(recorded.database)) as connection:
        names = {
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
            )
        }
    public = {name for name in names if not name.startswith(("_", "sqlite_"))}
    shown = {table["name"] for table in found["tables"] if not table["hidden"]}
    assert shown == {"tasks", "screenshots"}
    assert {view["name"] for view in found["views"]} == public - shown
    assert set(PUBLIC) <= public < names


@pytest.mark.parametrize("table", ["_words", "_words_data", "_steps", "_meta"])
@pytest.mark.parametrize("rest", ["", "/1", "?_size=1"])
async def test_a_table_behind_the_public_ones_is_no_page(
    datasette: Any, table: str, rest: str
) -> None:
    """A sentence instead of an error; for programs in their own form. SQL may still name it."""
    answer = await datasette.client.get(f"/history/{table}{rest}", follow_redirects=True)
    assert answer.status_code == 404
    assert f"{table} is one of the tables behind tasks, steps" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    if not rest:
        found = (await datasette.client.get(f"/history/{table}.json")).json()
        assert (found["ok"], found["status"]) == (False, 404)
        assert (await datasette.client.get(f"/history/{table}.csv")).status_code == 404
    assert (await datasette.client.get("/history/_nothing")).status_code == 404
    sql = query_page(datasette, "select count(*) as n from _steps", ".json")
    answer = await datasette.client.get(sql, follow_redirects=True)
    assert answer.status_code == 200


@pytest.mark.parametrize("table", PUBLIC)
async def test_what_cannot_be_seen_is_written_out_everywhere(datasette: Any, table: str) -> None:
    """In facets, filters and headings too, which Datasette makes itself; the address of a facet
    has the value as it is.
    """
    page = Elements(await get(datasette, f"/history/{table}?_size=100&_facet=task_id"))
    for character in "\x1b\x07\x9b\u202e\u200b":
        assert character not in page.text
    if table == "tool_calls":
        assert any("%E2%80%AE" in link and "name=" in link for link in page.links())
        filtered = await get(datasette, "/history/tool_calls?name=a%E2%80%AEb")
        assert r"a\u202eb" in Elements(filtered).text
        assert 'value="a\u202eb"' in filtered


def test_only_text_is_written_out() -> None:
    """Attributes, scripts and what is typed into a form are sent back, and stay."""
    kept = (
        '<a title="a\u202eb" href="?x=\u202e">',
        "<script>let x = '\u202e<b>\u202e';</script>",
        "<STYLE>\u202e</STYLE >",
        "<textarea>\u202e</textarea>",
        "<!-- \u202e <b>\u202e -->",
        '<input value="\u202e">',
    )
    page = "t\u202e" + "x\u200b\r\n\ty".join(kept) + "\x1b"
    expected = "t\\u202e" + "x\\u200b\r\n\ty".join(kept) + "\\x1b"
    assert visible(page.replace('>"', '"').encode()).decode() == expected.replace('>"', '"')
    assert visible(b"\xff<b>") == b"\xff<b>"


@pytest.mark.parametrize(
    ("table", "facets"),
    [
        ("tasks", {"status", "agent", "model", "kind"}),
        ("steps", {"status", "tool_name", "agent"}),
        ("model_calls", {"status", "model", "finish_reason"}),
        ("tool_calls", {"name", "status"}),
        ("screenshots", {"role", "status", "media_type"}),
        ("timeline", {"event"}),
    ],
)
async def test_facets_make_sense(datasette: Any, table: str, facets: set[str]) -> None:
    """Each table has those by which its rows divide."""
    elements = Elements(await get(datasette, f"/history/{table}"))
    shown = {
        attributes.get("data-column")
        for _, attributes in elements.found
        if "facet-info" in (attributes.get("class") or "")
    }
    text = " ".join(elements.text.split())
    assert shown == facets or all(name in text for name in facets)


async def test_what_somebody_has_configured_himself_stays(
    recorded: Recorded, open_datasette: Open
) -> None:
    """Our facets are suggestions."""
    own = {"databases": {"history": {"tables": {"tasks": {"facets": ["kind"]}}}}}
    try:
        datasette = await open_datasette(recorded.database, config=own)
    except TypeError:
        datasette = await open_datasette(recorded.database, metadata=own)
    answer = (await datasette.client.get("/history/tasks.json?_extra=facet_results")).json()
    assert set(answer["facet_results"].get("results", answer["facet_results"])) == {"kind"}
    assert own == {"databases": {"history": {"tables": {"tasks": {"facets": ["kind"]}}}}}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
async def test_each_question_has_its_answer(datasette: Any, recorded: Recorded, query: Any) -> None:
    """As a page of Datasette, and as plain SQL in any other tool: no function of ours in it."""
    page = await get(datasette, f"/history/{query.name}")
    assert query.title in page
    with closing(sqlite3.connect(recorded.database)) as connection:
        cursor = connection.execute(query.sql)
        columns = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
        tables = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema")
            if name.startswith("_")
        }
    assert not any(name in query.sql for name in tables)
    for column in columns:
        assert column in page
    if query.name == "failed-steps":
        assert [row[columns.index("task_id")] for row in rows] == [recorded.failed_id] * 2
    elif query.name == "slowest-tools":
        assert ("look", 2, 2) in {row[:3] for row in rows}
    elif query.name == "tokens-by-day-and-model":
        assert sum(row[columns.index("output_tokens")] or 0 for row in rows) > 0
    elif query.name == "retries":
        assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
            (recorded.failed_id, "look", 2, 2)
        ]
    elif query.name == "steps-without-a-decision":
        assert {row[0] for row in rows} == {recorded.failed_id}
    else:
        assert (query.name, rows) == ("resumed-tasks", [])


async def test_a_statement_that_writes_is_refused(datasette: Any, recorded: Recorded) -> None:
    """Whatever it looks like; and reading goes on afterwards, from the file itself."""
    before = recorded.database.stat()
    for sql in (
        "delete from tasks",
        "with gone as (select 1) delete from tasks",
        "with gone as (select 1) insert into _meta values ('a', 'b')",
        "select 1; delete from tasks",
        "pragma query_only = 0",
        "pragma journal_mode = delete",
        "attach 'x.db' as x",
        "vacuum into 'x.db'",
    ):
        for kind in ("", ".json"):
            path = query_page(datasette, sql, kind)
            response = await datasette.client.get(path, follow_redirects=True)
            # Datasette 1.0 shows the error on the page of the query.
            assert response.status_code in (400, 403) or not kind, sql
    after = recorded.database.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    database = datasette.databases["history"]
    with pytest.raises(sqlite3.OperationalError, match="only read here"):
        await database.execute_write("delete from tasks")
    assert (await database.execute("select count(*) from tasks")).first()[0] == 2
    assert not reads_a_copy(database._pool._idle[-1])


async def test_a_wrong_statement_is_its_authors_fault(datasette: Any) -> None:
    """He reads what SQLite says of it, and the history is not called damaged."""
    for sql in ("select nonsense from tasks", "select", "select :missing from"):
        path = query_page(datasette, sql, ".json")
        response = await datasette.client.get(path, follow_redirects=True)
        assert response.status_code == 400
        assert "damaged" not in response.text
        page = await datasette.client.get(query_page(datasette, sql), follow_redirects=True)
        assert page.status_code in (200, 400)
        assert "damaged" not in page.text


async def test_a_statement_that_takes_too_long_is_ended(
    recorded: Recorded, open_datasette: Open
) -> None:
    """As Datasette does it."""
    datasette = await open_datasette(recorded.database, settings={"sql_time_limit_ms": 20})
    sql = "with recursive n(i) as (select 1 union all select i+1 from n) select sum(i) from n"
    response = await datasette.client.get(query_page(datasette, sql), follow_redirects=True)
    assert response.status_code == 400
    assert "SQL Interrupted" in response.text or "too long" in response.text


# --- text that is not text ----------------------------------------------------------------------


async def test_a_row_that_is_damaged_does_not_hide_the_others(
    recorded: Recorded, open_datasette: Open
) -> None:
    """Text that is no UTF-8, NUL, binary in a text column: the row is shown, and all others."""
    with closing(sqlite3.connect(recorded.database)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(
            "UPDATE tasks SET goal = CAST(x'ff2061fe' AS TEXT), agent = 'a' || char(0) || 'b'"
            " WHERE task_id = ?",
            (recorded.failed_id,),
        )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    datasette = await open_datasette(recorded.database)
    for path in ("/history/tasks", "/-/taskhistory/", f"/-/taskhistory/tasks/{recorded.failed_id}"):
        text = Elements(await get(datasette, path)).text
        assert "�" in text
        assert r"a\x00b" in text
    assert "PWNED" in await get(datasette, "/history/tasks")


# --- CSV ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["", "?_stream=on", "?_dl=1", "?_size=max&_labels=on"])
async def test_no_cell_of_the_csv_is_a_formula(
    datasette: Any, recorded: Recorded, rest: str
) -> None:
    """Of tables, views and queries; numbers, and texts that are none, stay as they are."""
    from tests.datasette import recorded_here

    texts = recorded_here.hostile_texts()
    formulas = [text for text in texts if text.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert len(formulas) > 4
    response = await datasette.client.get(f"/history/tool_calls.csv{rest}")
    if rest == "?_stream=on" and response.status_code == 400:  # views have no next page
        response = await datasette.client.get("/history/tasks.csv?_stream=on")
    assert response.status_code == 200
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    for row in rows:
        for value in row.values():
            assert not value.startswith(("=", "@", "\t", "\r")), value
            if value.startswith(("+", "-")):
                float(value)
    if "name" in rows[0]:
        names = {row["name"] for row in rows}
        assert {f"'{text}" for text in formulas} <= names
        assert {text for text in texts if text not in formulas} <= names
        assert all(float(row["duration_ms"]) >= 0 for row in rows)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_csv_is_changed_the_same_in_pieces_of_any_size(size: int) -> None:
    """Quotation marks, line ends and characters of several bytes may fall apart anywhere."""
    rows = [
        ["=1+1", "a,b", 'say "=no"', "-5", "-5e-3", "+1+1", ""],
        ["@x", "line\r\n=2", "\t=3", "日本 =", "-", '"=4"', "-inf"],
        ["é", "=é,ü", "\r=5", "plain", "3.5", "+.5", "=\n="],
    ]
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(rows)
    data = buffer.getvalue().encode()
    cells = SafeCells()
    pieces = [cells.feed(data[at : at + size], last=False) for at in range(0, len(data), size)]
    text = b"".join([*pieces, cells.feed(b"", last=True)]).decode()
    changed = list(csv.reader(io.StringIO(text, newline="")))
    assert changed == [
        ["'=1+1", "a,b", 'say "=no"', "-5", "-5e-3", "'+1+1", ""],
        ["'@x", "line\r\n=2", "'\t=3", "日本 =", "'-", '"=4"', "-inf"],
        ["é", "'=é,ü", "'\r=5", "plain", "3.5", "+.5", "'=\n="],
    ]


# --- other databases ----------------------------------------------------------------------------


async def test_other_databases_are_left_alone(
    recorded: Recorded, tmp_path: Path, open_datasette: Open
) -> None:
    """Cells, CSV, tables and menus are as without the plugin, however their columns are called."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute(
            "CREATE TABLE _notes (task_id TEXT, sha256 TEXT, screenshot TEXT, t TEXT)"
        )
        connection.execute(
            "INSERT INTO _notes VALUES (?, ?, ?, ?)",
            ("a" * 32, "b" * 64, f"bb/{'b' * 64}.png", "=1+1" + "x" * 5_000),
        )
        connection.commit()
    datasette = await open_datasette(other, recorded.database)
    assert type(datasette.databases["other"]).__name__ == "Database"
    page = await get(datasette, "/other/_notes")
    assert "/-/taskhistory/tasks/" not in page
    assert "/-/taskhistory/thumbnails/" not in page
    assert "taskhistory-long" not in page
    assert "table.css" not in page
    assert "=1+1" in (await datasette.client.get("/other/_notes.csv")).text
    assert "'=1+1" not in (await datasette.client.get("/other/_notes.csv")).text
    assert "failed-steps" not in await get(datasette, "/other")
    await datasette.databases["other"].execute_write("delete from _notes")
    assert (await datasette.databases["other"].execute("select * from _notes")).rows == []


async def test_a_datasette_without_a_history_has_none(tmp_path: Path, open_datasette: Open) -> None:
    """404, no menu, and its own start page."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE notes (t TEXT)")
    datasette = await open_datasette(other)
    assert (await datasette.client.get("/-/taskhistory/")).status_code == 404
    start = await get(datasette, "/")
    assert "taskhistory" not in start
    assert "notes" in start


async def test_several_histories_have_pages_each(
    recorded: Recorded, tmp_path: Path, open_datasette: Open
) -> None:
    """The first at the usual address, the others below their names."""
    with recording(tmp_path / "second") as tasks, tasks.task("of the second") as task:
        second = task.id
        with task.step("look") as step:
            step.screenshot(b"GIF89a")
    datasette = await open_datasette(recorded.database, tmp_path / "second" / "history.db")
    base = "/-/taskhistories/history_2/-/taskhistory/"
    assert "of the second" not in await get(datasette, "/-/taskhistory/")
    page = await get(datasette, base)
    assert "of the second" in page
    assert f"{base}tasks/{second}" in Elements(page).links()
    task_page = Elements(await get(datasette, f"{base}tasks/{second}"))
    for link in task_page.links():
        if link.startswith("/"):
            await get(datasette, link)
    assert (await datasette.client.get(f"/-/taskhistory/tasks/{second}")).status_code == 404
    menu = await get(datasette, "/")
    assert base in menu
    table = Elements(await get(datasette, "/history_2/tasks")).links()
    assert f"{base}tasks/{second}" in table
    for name in ("other", "_memory", "_internal", "history_3"):
        path = f"/-/taskhistories/{name}/-/taskhistory/"
        assert (await datasette.client.get(path)).status_code == 404


async def test_pictures_are_looked_for_beside_the_database(
    recorded: Recorded, tmp_path: Path, open_datasette: Open
) -> None:
    """Also when it is called something else."""
    place = tmp_path / "copied"
    place.mkdir()
    shutil.copy(recorded.database, place / "of-monday.db")
    shutil.copytree(recorded.artifacts, place / "artifacts")
    datasette = await open_datasette(place / "of-monday.db")
    address = f"/-/taskhistory/artifacts/{sha256_of('png_ok.png')}"
    assert (await datasette.client.get(address)).status_code == 200
    links = Elements(await get(datasette, "/-/taskhistory/")).links()
    assert "/of-monday/tasks" in links
    assert (
        json.loads((await datasette.client.get("/of-monday.json")).text)["database"] == "of-monday"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from (select * from steps limit 10001)",
        'select count(*) from (select * from [steps] where "status" = :p0  limit 3)',
        "select count(*) from (select * from steps where name = 'a\nb' limit 3)",
    ],
)
def test_rows_are_counted_without_what_is_in_them(recorded: Recorded, sql: str) -> None:
    """The count is the same; no prompt is put together for it."""
    cheap = count_cheaply(sql)
    assert "select 1 from" in cheap
    with closing(sqlite3.connect(recorded.database)) as connection:
        values = {"p0": "failed"} if ":p0" in sql else {}
        counted = [connection.execute(text, values).fetchone() for text in (sql, cheap)]
        plan = connection.execute(f"EXPLAIN QUERY PLAN {cheap}", values).fetchall()
    assert counted[0] == counted[1]
    assert not any("_nodes" in row[3] or "RECURSIVE" in row[3] for row in plan)


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from steps",
        "select count(*) from (select * from steps limit 3) where status = 'failed'",
        "select count(*) from (select prompt from steps limit 3)",
        "select * from (select count(*) from (select * from steps limit 3))",
    ],
)
def test_no_other_statement_is_changed(sql: str) -> None:
    """What somebody has written stays what it is."""
    assert count_cheaply(sql) == sql


def test_each_question_is_in_the_documentation() -> None:
    """By its address."""
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    told = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `/history/")]
    assert told == [f"/history/{query.name}" for query in QUERIES]


def test_the_entry_point_is_declared() -> None:
    """Whoever installs the package beside Datasette has the plugin."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["datasette"] == {
        "taskhistory": "otel_taskhistory.datasette_plugin"
    }
    assert any(
        name.startswith("datasette>=0.65") for name in project["optional-dependencies"]["datasette"]
    )
