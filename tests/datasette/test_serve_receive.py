# SPDX-License-Identifier: Apache-2.0
"""``serve --receive``: agents may write where people read, and nothing else may."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="an extra")

from click.testing import CliRunner

from otel_taskhistory.cli.serve import TOKEN_VARIABLE, serve_command
from otel_taskhistory.errors import TaskHistoryError
from tests.processes import rows
from tests.recorded import one_task, recording
from tests.transport.receiving import Receiver, request, span, text, trace_id

TOKEN = "a-token-of-some-length"
GOAL = [
    text("gen_ai.operation.name", "invoke_agent"),
    text("taskhistory.role", "task"),
    text("taskhistory.task.goal", "seen while it is written"),
]


def serving(directory: Path, *options: str, **more: object) -> Receiver:
    """A server that receives too."""
    return Receiver(directory, *options, command=("serve", "--receive"), **more)  # type: ignore[arg-type]


def test_what_agents_send_is_on_the_pages(tmp_path: Path) -> None:
    """At once, in a history that was not there before; both end together."""
    with serving(tmp_path / "history") as server:
        assert server.addresses == [f"{server.address}/"]
        trace = trace_id()
        assert server.post(request(span(trace, 1, attributes=GOAL))).status == 200
        page = server.post(b"", "/-/taskhistory/", Method="GET")
        assert page.status == 200
        assert b"seen while it is written" in page.body
        task = server.post(b"", f"/-/taskhistory/tasks/{trace}", Method="GET")
        assert task.status == 200
        status, errors = server.end()
    assert status == 0
    assert errors.splitlines() == [
        f"the history of host-agent at {tmp_path / 'history'}; Ctrl-C ends it",
        f"for senders: OTEL_EXPORTER_OTLP_ENDPOINT={server.address}",
        "received 1 span or log record in 1 request",
    ]


def test_everything_else_can_only_be_read(tmp_path: Path) -> None:
    """The pages' own protection is as it was, at every other path."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
    with serving(tmp_path / "history") as server:
        for path in ("/", "/-/taskhistory/", "/history/tasks", "/v1/metrics", "/v1/traces/x"):
            for method in ("POST", "PUT", "DELETE"):
                assert server.post(request(), path, Method=method).status == 405
        assert server.post(b"", "/-/taskhistory/", Method="GET", Host="evil.example").status == 421
        assert server.post(request(), Host="evil.example").status == 421
        assert server.post(request(), Origin=server.address).status == 403
        assert server.post(b"", Method="GET").status == 405


def test_the_token_is_needed_to_send_as_well(tmp_path: Path) -> None:
    """In the header: neither the cookie of a browser nor the address lets anybody write."""
    with serving(tmp_path / "history", environ={TOKEN_VARIABLE: TOKEN}) as server:
        shown = server.post(b"", f"/?token={TOKEN}", Method="GET")
        cookie = shown.headers["set-cookie"].partition(";")[0]
        trace = trace_id()
        body = request(span(trace, 1))
        assert server.post(body).status == 401
        assert server.post(body, Cookie=cookie).status == 401
        assert server.post(body, f"/v1/traces?token={TOKEN}").status == 401
        assert server.post(body, Authorization=f"Bearer {TOKEN}").status == 200
        _, errors = server.end()
    assert TOKEN not in errors
    assert rows(tmp_path / "history", "SELECT trace_id FROM spans") == [(trace,)]


def test_without_the_option_nothing_can_be_sent(tmp_path: Path) -> None:
    """And options about senders are refused."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
    with Receiver(tmp_path / "history", command=("serve",)) as server:
        assert server.post(request(span(trace_id(), 1))).status == 405
    options = ["--directory", str(tmp_path / "history"), "--max-body", "1MiB"]
    result = CliRunner().invoke(serve_command, options)
    assert result.exit_code == 2
    assert "--max-body needs --receive" in result.output


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasette alone does not do."""
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda wanted, *rest: None if wanted == "starlette" else found(wanted, *rest),
    )
    options = ["--directory", str(tmp_path / "history"), "--receive", "--port", "0"]
    result = CliRunner().invoke(serve_command, options)
    assert isinstance(result.exception, TaskHistoryError)
    assert "pip install 'otel-taskhistory[otlp]'" in str(result.exception)
