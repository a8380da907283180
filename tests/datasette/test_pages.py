# SPDX-License-Identifier: Apache-2.0
"""The addresses of our pages: what is there, with which headers, and what is said of failures."""

from __future__ import annotations

import json
import logging
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.datasette_plugin import routes
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.pages import ASSETS
from otel_taskhistory.store.schema import SCHEMA_VERSION
from tests.recorded import one_task, recording

from .conftest import Open
from .recorded_here import Recorded, assert_inert, sha256_of

POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGES = (
    "",
    "tasks/{task}",
    "tasks/{task}?step={step}",
    "tasks/{task}/steps",
    "tasks/{task}/steps/{step}",
    "tasks/{task}/steps/{step}?full=1",
    "tasks/{task}/film",
    "search?q=PWNED",
    "search",
    "plots",
)
JSON = ("tasks/{task}/axis.json", "tasks/{task}/changes.json?after=0")


def at(recorded: Recorded, pattern: str, step: int = -1) -> str:
    """An address of our pages."""
    where = pattern.format(task=recorded.task_id, step=recorded.step_ids[step])
    return f"/-/taskhistory/{where}"


@pytest.mark.parametrize("pattern", PAGES)
async def test_a_page_has_its_headers_and_nothing_recorded_acts(
    datasette: Any, recorded: Recorded, pattern: str
) -> None:
    """Strict policy, no guessing of types, nothing kept or told to others; all text is text."""
    for step in range(len(recorded.step_ids)) if "{step}" in pattern else [0]:
        response = await datasette.client.get(at(recorded, pattern, step))
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        elements = assert_inert(response.text)
        assert elements.scripts == ""
        assert not any(
            name == "style" or name.startswith("on")
            for _, attributes in elements.found
            for name in attributes
        )


@pytest.mark.parametrize("pattern", JSON)
async def test_json_is_strict_and_has_the_same_headers(
    datasette: Any, recorded: Recorded, pattern: str
) -> None:
    """What the script loads is JSON that any parser takes."""
    response = await datasette.client.get(at(recorded, pattern))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["cache-control"] == "no-store"
    json.loads(response.text, parse_constant=pytest.fail)


@pytest.mark.parametrize("name", [*ASSETS, "table.css"])
async def test_the_files_of_the_pages_are_kept_for_ever(datasette: Any, name: str) -> None:
    """Their address changes with their content."""
    response = await datasette.client.get(f"/-/taskhistory/assets/{name}")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"] == POLICY
    assert response.content


async def test_there_are_no_other_files(datasette: Any) -> None:
    """Names are looked up, not opened."""
    for name in ("none.css", "..%2f__init__.py", "%2e%2e", "page.css%00"):
        response = await datasette.client.get(f"/-/taskhistory/assets/{name}")
        assert response.status_code == 404


async def test_every_link_of_a_task_page_leads_somewhere(
    datasette: Any, recorded: Recorded
) -> None:
    """Pages, parts and pictures that a page names are there."""
    page = await datasette.client.get(at(recorded, "tasks/{task}?step={step}"))
    elements = assert_inert(page.text)
    addresses = {
        attributes[name]
        for _, attributes in elements.found
        for name in ("href", "src")
        if (attributes.get(name) or "").startswith("/")
    }
    assert any("/artifacts/" in address for address in addresses)
    for address in sorted(addresses):
        response = await datasette.client.get(address)
        assert response.status_code == 200, address


async def test_the_beginning_of_an_id_leads_to_the_whole(
    datasette: Any, recorded: Recorded
) -> None:
    """One page has one address; latest works too, and a step is kept."""
    for short in (recorded.task_id[:8], recorded.task_id[:8].upper()):
        response = await datasette.client.get(f"/-/taskhistory/tasks/{short}?step=abc")
        assert response.status_code == 302
        whole = f"/-/taskhistory/tasks/{recorded.task_id}?step=abc"
        assert response.headers["location"] == whole
    latest = await datasette.client.get("/-/taskhistory/tasks/latest")
    assert latest.headers["location"] == f"/-/taskhistory/tasks/{recorded.failed_id}"


async def test_an_unknown_task_is_a_page_with_near_ones(datasette: Any, recorded: Recorded) -> None:
    """404, and the near ones are links; what was typed is shown, and is no link."""
    typed = recorded.task_id[:-1] + ("0" if recorded.task_id[-1] != "0" else "1")
    response = await datasette.client.get(f"/-/taskhistory/tasks/{typed}")
    assert response.status_code == 404
    elements = assert_inert(response.text)
    assert f"/-/taskhistory/tasks/{recorded.task_id[:8]}" in elements.links()
    assert f"/-/taskhistory/tasks/{typed}" not in elements.links()
    assert typed in elements.text


@pytest.mark.parametrize(
    "typed",
    [
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%ff%fe",
        "%22onmouseover%3Dx()",
        "a" * 5_000,
        "%27%20OR%201=1--",
    ],
)
async def test_an_id_that_means_harm_is_just_unknown(datasette: Any, typed: str) -> None:
    """In every address that takes one."""
    for rest in ("", "/steps", "/film", "/axis.json", "/changes.json", "/steps/abc"):
        response = await datasette.client.get(f"/-/taskhistory/tasks/{typed}{rest}")
        assert response.status_code == 404, rest
        if rest.endswith(".json"):
            assert response.json()["status"] == 404
        else:
            assert_inert(response.text)
            assert "<script>alert" not in response.text
            assert len(response.text) < 20_000


async def test_the_beginning_of_several_ids_is_a_list_of_them(
    directory: Path, open_datasette: Open
) -> None:
    """Each with its goal, so that one can choose."""
    with recording(directory) as tasks:
        ids = sorted(one_task(tasks, f"goal <b>{number}</b>") for number in range(40))
    first = next(a for a, b in pairwise(ids) if a[0] == b[0])
    datasette = await open_datasette(directory / "history.db")
    response = await datasette.client.get(f"/-/taskhistory/tasks/{first[0]}")
    assert response.status_code == 404
    listed = [own for own in ids if own[0] == first[0]]
    links = assert_inert(response.text).links()
    assert [link for link in links if len(link) > 50][: len(listed)] == [
        f"/-/taskhistory/tasks/{own}" for own in listed
    ]
    assert "goal &lt;b&gt;" in response.text


async def test_a_cursor_that_is_none_is_said(datasette: Any, recorded: Recorded) -> None:
    """400 or a page that says so; never a failure."""
    for where in ("tasks/{task}/steps?cursor=x", "tasks/{task}/film?cursor=x", "?cursor=x"):
        response = await datasette.client.get(at(recorded, where))
        assert response.status_code in (200, 400)
        assert "cursor=&#39;x&#39;" in response.text


async def test_only_reading_is_answered(datasette: Any, recorded: Recorded) -> None:
    """HEAD as GET; everything else is refused."""
    head = await datasette.client.request("HEAD", at(recorded, ""))
    assert head.status_code == 200
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        response = await datasette.client.request(method, at(recorded, "tasks/{task}"))
        assert response.status_code in (403, 405)


async def test_the_base_address_is_kept(recorded: Recorded, open_datasette: Open) -> None:
    """Behind a proxy all links and redirects begin with it."""
    datasette = await open_datasette(recorded.database, settings={"base_url": "/under/"})
    page = await datasette.client.get("/-/taskhistory/")
    assert page.status_code == 200
    links = [link for link in assert_inert(page.text).links() if link.startswith("/")]
    assert links
    assert all(link.startswith("/under/") for link in links)
    moved = await datasette.client.get("/-/taskhistory")
    assert moved.headers["location"] == "/under/-/taskhistory/"


async def test_a_failure_tells_nothing_of_the_inside(
    datasette: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Neither SQL nor what was recorded is on the page; the log has it."""

    def fail(*_: Any, **__: Any) -> str:
        raise TaskHistoryError("is damaged (no such column: secret_prompt in SELECT)")

    monkeypatch.setattr(routes.pages, "plots_page", fail)
    monkeypatch.setattr(routes.pages, "axis", fail)
    with caplog.at_level(logging.ERROR):
        for where in ("plots", "tasks/{task}/axis.json"):
            response = await datasette.client.get(at(recorded, where))
            assert response.status_code == 503
            assert "secret_prompt" not in response.text
            assert "SELECT" not in response.text
    assert "secret_prompt" in caplog.text


async def test_a_bug_is_a_page_too(
    datasette: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """500 without its text."""

    def fail(*_: Any, **__: Any) -> str:
        raise ValueError("the prompt was: hunter2")

    monkeypatch.setattr(routes.pages, "plots_page", fail)
    response = await datasette.client.get("/-/taskhistory/plots")
    assert response.status_code == 500
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text


async def test_permissions_of_datasette_hold_for_our_pages(
    recorded: Recorded, open_datasette: Open
) -> None:
    """Who may not see the database, or one of its tables, sees no page and no picture."""
    for rule in (
        {"allow": {"id": "root"}},
        {"tables": {"steps": {"allow": False}, "screenshots": {"allow": False}}},
    ):
        options = {"databases": {"history": rule}}
        try:
            datasette = await open_datasette(recorded.database, config=options)
        except TypeError:  # Datasette 0.65 calls it metadata
            datasette = await open_datasette(recorded.database, metadata=options)
        for where in (*PAGES, *JSON, f"artifacts/{sha256_of('png_ok.png')}"):
            response = await datasette.client.get(at(recorded, where))
            assert response.status_code == 403, where
            assert "PWNED" not in response.text
        thumbnail = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}"
        assert (await datasette.client.get(thumbnail)).status_code == 403
        menu = await datasette.client.get("/")
        assert "/-/taskhistory/" not in menu.text


async def test_a_newer_schema_is_read_where_it_can_be(
    recorded: Recorded, open_datasette: Open
) -> None:
    """When it says so itself; else the page says which version is needed."""
    change_version(recorded.database, SCHEMA_VERSION + 1, readable_from=SCHEMA_VERSION)
    datasette = await open_datasette(recorded.database)
    assert (await datasette.client.get("/-/taskhistory/")).status_code == 200
    change_version(recorded.database, SCHEMA_VERSION + 2, readable_from=SCHEMA_VERSION + 1)
    response = await datasette.client.get("/-/taskhistory/")
    assert response.status_code == 503
    assert f"has schema version {SCHEMA_VERSION + 2}" in response.text


def change_version(database: Path, version: int, *, readable_from: int) -> None:
    """Make it a history of a newer version of this library."""
    connection = sqlite3.connect(database)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(
        "INSERT INTO _meta (key, value) VALUES ('readable_from', ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (str(readable_from),),
    )
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
