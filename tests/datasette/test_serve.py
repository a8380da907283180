# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory serve`` as a process: what it says, whom it answers, that it only reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli.serve import TOKEN_VARIABLE, serve_command
from otel_taskhistory.datasette_plugin.answers import FILE_POLICY
from otel_taskhistory.errors import HistoryNotFound, SchemaTooNew, TaskHistoryError
from otel_taskhistory.store.schema import SCHEMA_VERSION
from tests.recorded import one_task, recording

from .recorded_here import PUBLIC, Elements, Recorded, sha256_of
from .serving import PATIENCE, ROOT, Server
from .test_pages import change_version
from .test_reading import files_of

TOKEN = "a-token-of-some-length"
STEPS = 200

AGENT = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from tests.recorded import PICTURES, chat

exporter = TaskHistoryExporter(sys.argv[1], busy_timeout=0.5)
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(TaskHistoryProcessor(exporter))
tasks = TaskTracer(provider, exporter=exporter)
picture = (PICTURES / "png_ok.png").read_bytes()
with tasks.task("two hundred steps", agent="desk") as task:
    print(task.id, flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        with task.step(f"step {number}") as step:
            step.prompt(chat("be brief", "x" * 2_000, str(number)), model="model-1")
            step.decision("answer", usage={"input_tokens": 500, "output_tokens": 1})
            with step.tool_call("look", {"at": number}) as call:
                call.result("seen")
            step.screenshot(picture + b"%d" % number)
stats = exporter.stats()
provider.shutdown()
print(json.dumps(stats), flush=True)
"""


def run(directory: Path, *options: str) -> Result:
    """The command in this process, for what it refuses before it serves."""
    return CliRunner().invoke(serve_command, ["--directory", str(directory), *options])


def test_it_says_where_it_is_and_ends_when_told(recorded: Recorded) -> None:
    """The address alone on stdout; by Ctrl-C and by SIGTERM, with status 0 and without noise."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with Server(recorded.directory) as server:
            assert server.addresses == [f"http://127.0.0.1:{server.port}/"]
            start = server.get("/")
            assert (start.status, start.headers["location"]) == (303, "/-/taskhistory/")
            page = server.get("/-/taskhistory/")
            assert page.status == 200
            assert recorded.failed_id in page.text
            status, errors = server.end(number)
        assert status == 0
        assert errors.splitlines() == [
            f"the history of host-agent at {recorded.directory}; Ctrl-C ends it"
        ]


def test_it_ends_also_while_somebody_is_connected(recorded: Recorded) -> None:
    """A browser keeps its connections open."""
    with (
        Server(recorded.directory) as server,
        socket.create_connection(("127.0.0.1", server.port or 0), timeout=PATIENCE),
    ):
        assert server.get("/-/taskhistory/").status == 200
        status, _ = server.end()
    assert status == 0


def test_datasettes_own_pages_and_json_are_there(recorded: Recorded) -> None:
    """Below the same protection, and never to be stored by a browser or framed by a page."""
    with Server(recorded.directory) as server:
        for path in ("/history", *(f"/history/{table}" for table in PUBLIC)):
            page = server.get(path)
            assert page.status == 200, path
            assert page.headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert page.headers["referrer-policy"] == "no-referrer"
        rows = json.loads(server.get("/history/tasks.json?_shape=array").body)
        assert {row["task_id"] for row in rows} == {recorded.task_id, recorded.failed_id}
        databases = json.loads(server.get("/-/databases.json").body)
        found = databases if isinstance(databases, list) else databases["databases"]
        assert [one["name"] for one in found] == ["history"]
        assert server.get("/history.db").status in (403, 404)
        picture = server.get(f"/-/taskhistory/artifacts/{sha256_of('png_ok.png')}")
        assert picture.headers["content-security-policy"] == FILE_POLICY
        assert "immutable" in picture.headers["cache-control"]
        head = server.get(f"/-/taskhistory/artifacts/{sha256_of('png_ok.png')}", "HEAD")
        assert (head.status, head.body) == (200, b"")


def test_other_names_and_methods_are_refused(recorded: Recorded) -> None:
    """Over the wire: a name that points here by somebody else's doing, and whatever writes."""
    with Server(recorded.directory) as server:
        for path in ("/", "/-/taskhistory/", "/history/tasks.json", "/-/static/app.css"):
            answer = server.get(path, Host=f"evil.example:{server.port}")
            assert answer.status == 421
            assert recorded.task_id not in answer.text
            assert server.get(path, Host="localhost").status in (200, 303)
            assert server.get(path, "POST").status == 405
            assert server.get(path, X_Forwarded_Host="evil.example").status in (200, 303)


def test_a_name_can_be_allowed(recorded: Recorded) -> None:
    """``--allow-host``, for a machine that is called otherwise."""
    with Server(recorded.directory, "--allow-host", "box.test") as server:
        assert server.get("/-/taskhistory/", Host="box.test:80").status == 200
        assert server.get("/-/taskhistory/", Host="other.test:80").status == 421


def test_elsewhere_a_random_token_is_needed(recorded: Recorded) -> None:
    """It is in the printed addresses; shown once it becomes a cookie; nothing is there without."""
    with Server(recorded.directory, "--host", "0.0.0.0", tells=2) as server:
        local, by_name = server.addresses
        assert local.startswith(f"http://127.0.0.1:{server.port}/?token=")
        query = local.partition("?")[2]
        assert by_name.endswith(query)
        assert len(query) > 40
        for path in ("/", "/-/taskhistory/", "/history/tasks.json", "/-/static/app.css"):
            assert server.get(path).status == 401
        shown = server.get(f"/?{query}")
        assert (shown.status, shown.headers["location"]) == (303, "/")
        cookie = shown.headers["set-cookie"].partition(";")[0]
        assert query.partition("=")[2] not in cookie
        assert server.get("/-/taskhistory/", Cookie=cookie).status == 200
        token = query.partition("=")[2]
        answer = server.get("/history/tasks.json", Authorization=f"Bearer {token}")
        assert answer.status == 200
        _, errors = server.end()
    assert token not in errors


@pytest.mark.parametrize("way", ["option", "environment"])
def test_a_token_of_ones_own_is_needed_here_too_and_not_printed(
    recorded: Recorded, way: str
) -> None:
    """On a machine that others use as well."""
    options = ("--token", TOKEN) if way == "option" else ()
    environ = {} if way == "option" else {TOKEN_VARIABLE: TOKEN}
    with Server(recorded.directory, *options, environ=environ) as server:
        assert "token" not in server.addresses[0]
        assert server.get("/-/taskhistory/").status == 401
        answer = server.get("/-/taskhistory/", Authorization=f"Bearer {TOKEN}")
        assert answer.status == 200
        status, errors = server.end()
    assert status == 0
    assert TOKEN not in errors


def test_a_port_in_use_is_one_sentence(recorded: Recorded) -> None:
    """It says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run(recorded.directory, "--port", str(port))
    assert isinstance(result.exception, TaskHistoryError)
    assert str(result.exception) == (
        f"port {port} is in use (another serve?): choose another with --port, or --port 0 for any"
        " that is free"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_one_sentence(recorded: Recorded, host: str) -> None:
    """It names the option."""
    result = run(recorded.directory, "--host", host, "--port", "0")
    assert isinstance(result.exception, TaskHistoryError)
    assert "--host must be an address of this machine" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_short_token_is_refused(recorded: Recorded) -> None:
    """Before anything is served."""
    result = run(recorded.directory, "--token", "secret", "--port", "0")
    assert isinstance(result.exception, TaskHistoryError)
    assert "can be guessed" in str(result.exception)


def test_a_history_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    """Where it was looked for, and how to point elsewhere; nothing is made there."""
    result = run(tmp_path / "none", "--port", "0")
    assert isinstance(result.exception, HistoryNotFound)
    assert str(tmp_path / "none") in str(result.exception)
    assert "--directory" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_history_is_shown_with_a_word_or_refused(recorded: Recorded) -> None:
    """As far as it says itself that it can be read."""
    change_version(recorded.database, SCHEMA_VERSION + 1, readable_from=SCHEMA_VERSION)
    with Server(recorded.directory) as server:
        assert server.get("/-/taskhistory/").status == 200
        _, errors = server.end()
    assert "a newer version has written this history" in errors
    change_version(recorded.database, SCHEMA_VERSION + 2, readable_from=SCHEMA_VERSION + 1)
    assert isinstance(run(recorded.directory, "--port", "0").exception, SchemaTooNew)


def test_without_datasette_it_says_what_to_install(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run(recorded.directory)
    assert "pip install 'otel-taskhistory[datasette]'" in str(result.exception)


def test_nothing_is_left_in_a_folder_where_one_may_not_write(recorded: Recorded) -> None:
    """Neither while it is served nor afterwards."""
    before = files_of(recorded.directory)
    os.chmod(recorded.directory, 0o500)
    try:
        with Server(recorded.directory) as server:
            for path in (
                "/-/taskhistory/",
                "/history/steps",
                f"/-/taskhistory/tasks/{recorded.task_id}",
            ):
                assert server.get(path).status == 200
            small = server.get(f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}")
            assert small.status == 200
            assert files_of(recorded.directory) == before
            server.end()
        assert files_of(recorded.directory) == before
    finally:
        os.chmod(recorded.directory, 0o700)


def test_a_writing_agent_is_never_held_up(directory: Path) -> None:
    """All its steps are stored, none waits or is lost, while pages are fetched all the time."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(directory), str(STEPS)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert agent.stdin is not None
        assert agent.stdout is not None
        task_id = agent.stdout.readline().strip()
        with Server(directory) as server:
            task = f"/-/taskhistory/tasks/{task_id}"
            paths = [
                "/-/taskhistory/",
                task,
                f"{task}/steps",
                f"{task}/axis.json",
                f"{task}/film",
                f"{task}/changes.json?after=0",
                "/-/taskhistory/plots",
                "/history/steps",
                "/history/tasks.json?_shape=array",
                "/history/timeline",
            ]
            assert {server.get(path).status for path in paths} == {200}
            agent.stdin.write("\n")
            agent.stdin.flush()
            statuses: list[int] = []
            with ThreadPoolExecutor(2) as readers:
                while agent.poll() is None:
                    statuses += [answer.status for answer in readers.map(server.get, paths)]
            said, _ = agent.communicate(timeout=PATIENCE)
            stats = json.loads(said)
            assert set(statuses) == {200}
            assert len(statuses) >= len(paths)
            assert (stats["lost"], stats["waiting"], stats["errors"]) == (0, 0, {})
            rows = json.loads(server.get("/history/tasks.json?_shape=array").body)
            assert [(row["status"], row["step_count"]) for row in rows] == [("succeeded", STEPS)]
            page = Elements(server.get(task).text)
            assert "two hundred steps" in page.text
    finally:
        if agent.poll() is None:
            agent.kill()
        agent.communicate(timeout=PATIENCE)
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM steps").fetchone() == (STEPS,)


def test_a_history_may_go_and_come_while_it_is_served(recorded: Recorded, tmp_path: Path) -> None:
    """Gone is said; what comes in its place is shown; the server goes on."""
    with Server(recorded.directory) as server:
        assert server.get("/-/taskhistory/").status == 200
        shutil.rmtree(recorded.directory)
        for path in ("/-/taskhistory/", f"/-/taskhistory/tasks/{recorded.task_id}"):
            gone = server.get(path)
            assert gone.status == 404
            assert "There is no history at" in gone.text
        with recording(tmp_path / "new") as tasks:
            new = one_task(tasks, "of the new one")
        (tmp_path / "new").rename(recorded.directory)
        page = server.get("/-/taskhistory/")
        assert page.status == 200
        assert new in page.text
        assert recorded.failed_id not in page.text
        status, _ = server.end()
    assert status == 0
