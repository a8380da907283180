# SPDX-License-Identifier: Apache-2.0
"""What leaves by each policy, in the bytes that left; and our own ``receive`` at the other end."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.cli import cli
from tests.processes import rows
from tests.recorded import PICTURES, one_task, recording
from tests.transport.forwarding import Receiver, committed
from tests.transport.receiving import Receiver as Ours

CONTENT = (
    *("goal", "prompt", "decision", "arguments", "result", "exception", "stack", "caption"),
    *(
        "step-result",
        "task-result",
        "nested",
        "event",
        "attribute",
        "link",
        "resource",
        "cancelled",
    ),
)
"""What is said in the task below, each by a marker of its own."""


def marker(what: str) -> str:
    """A text that stands nowhere else."""
    return f"MARKER-{what}-z9q"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of a task that is full of markers."""
    directory = tmp_path_factory.mktemp("told") / "history"
    exporter = TaskHistoryExporter(directory=directory, durability="normal")
    resource = Resource.create({"service.name": "desk-service", "home": marker("resource")})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tasks = TaskTracer(provider, exporter=exporter)
    picture = (PICTURES / "png_ok.png").read_bytes()
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": marker("prompt")},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }
    ]
    other = trace.SpanContext(1, 2, is_remote=True)
    link = trace.Link(other, {"why": marker("link")})
    with tasks.task(marker("goal"), agent="desk", links=[link]) as task:
        with task.step("look") as step:
            step.prompt(messages, model="model-1")
            step.decision(marker("decision"), usage={"input_tokens": 812, "output_tokens": 40})
            with step.tool_call("browser.click", {"at": {"deep": [marker("arguments")]}}) as call:
                call.result(f'{{"said": "{{\\"inner\\": \\"{marker("nested")}\\"}}"}}')
            step.screenshot(picture, caption=marker("caption"))
            step.set_attribute("note", marker("attribute"))
            step.span.add_event("noticed", {"what": marker("event")})
            step.result(marker("step-result"))
        with task.step("fail") as step:
            with step.tool_call("browser.type", {"text": "x"}) as call:
                call.result(marker("result"))
            try:
                raise ValueError(marker("exception"))
            except ValueError as error:
                error.add_note(marker("stack"))
                step.fail(error)
        with task.step("stop") as step:
            step.cancel(marker("cancelled"))
        task.result(marker("task-result"))
    provider.shutdown()
    return directory


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with Receiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


def left(receiver: Receiver, directory: Path, policy: str, *more: str) -> bytes:
    """The bytes that leave by a policy, not compressed."""
    receiver.script()
    arguments = ["forward", "--endpoint", receiver.url, "--policy", policy, "--again", *more]
    done = CliRunner().invoke(cli, [*arguments, "--directory", str(directory)])
    assert done.exit_code == 0, done.output
    return b"".join(receiver.bodies())


def of_picture() -> bytes:
    """A piece of the picture as base64 writes it, wherever it begins."""
    return base64.b64encode((PICTURES / "png_ok.png").read_bytes())[40:80]


def test_by_default_nothing_leaves_but_what_is_meant_to(told: Path, receiver: Receiver) -> None:
    """None of the markers is in the bytes that left; structure, names and numbers are."""
    body = left(receiver, told, "ids_only")
    assert [what for what in CONTENT if marker(what).encode() in body] == []
    assert b"MARKER" not in body
    assert of_picture() not in body
    assert b"artifacts" not in body
    for known in (b"desk-service", b"model-1", b"browser.click", b"desk", b"ValueError"):
        assert known in body, known
    assert set(receiver.kept()) == committed(told)


def test_everything_leaves_when_that_is_asked_for(told: Path, receiver: Receiver) -> None:
    """So the test above would see what must not leave; and the local history has it all."""
    body = left(receiver, told, "everything")
    assert [what for what in CONTENT if marker(what).encode() not in body] == []
    assert of_picture() in body


def test_without_pictures_the_rest_leaves(told: Path, receiver: Receiver) -> None:
    """Content goes, pictures stay here."""
    body = left(receiver, told, "no_images")
    assert marker("prompt").encode() in body
    assert of_picture() not in body


def test_secrets_are_masked_wherever_they_stand(
    told: Path, receiver: Receiver, tmp_path: Path
) -> None:
    """Those that were named on the command line, and those in a file."""
    file = tmp_path / "secrets"
    file.write_text(f"{marker('nested')}\n\n{marker('exception')}\n")
    secrets = ("--secret", marker("arguments"), "--secrets-file", str(file))
    body = left(receiver, told, "scrub", *secrets)
    for gone in ("nested", "exception", "arguments"):
        assert marker(gone).encode() not in body
    for there in ("prompt", "decision", "goal"):
        assert marker(there).encode() in body


COMPARED = {
    "tasks": "task_id, status, agent, goal, result, step_count, input_tokens, conversation_id",
    "steps": "task_id, step_index, step_id, name, status, prompt, decision, tool_name, result,"
    " error",
    "tool_calls": "span_id, call_id, name, arguments, result, status",
    "spans": "trace_id, span_id, parent_span_id, name, kind, start_time_unix_nano,"
    " end_time_unix_nano, status_code, status_message, attributes, events, resource, scope",
}
"""Of public tables, the columns that do not depend on where a history is."""


def test_our_own_receiver_shows_what_was_recorded(told: Path, tmp_path: Path) -> None:
    """Forwarded whole, tasks, steps, tool calls and spans are there the same as here."""
    here, there = tmp_path / "here", tmp_path / "there"
    with recording(here) as tasks:
        one_task(tasks, "first", steps=2)
        one_task(tasks, "second")
    with Ours(there) as receiver:
        arguments = ["forward", "--endpoint", receiver.address, "--policy", "everything"]
        done = CliRunner().invoke(cli, [*arguments, "--directory", str(here)])
        assert done.exit_code == 0, done.output
        for table, columns in COMPARED.items():
            query = f"SELECT {columns} FROM {table} ORDER BY 1, 2"
            assert rows(there, query) == rows(here, query)
        assert rows(there, "SELECT count(*) FROM tasks") == [(2,)]
        again = CliRunner().invoke(cli, [*arguments, "--again", "--directory", str(here)])
        assert again.exit_code == 0
        assert rows(there, "SELECT count(*) FROM spans") == rows(here, "SELECT count(*) FROM spans")


def test_our_own_receiver_shows_tasks_of_which_only_ids_came(told: Path, tmp_path: Path) -> None:
    """Structure, agent, tool names and statuses are there; what was said is not."""
    there = tmp_path / "there"
    with Ours(there) as receiver:
        arguments = ["forward", "--endpoint", receiver.address, "--again"]
        done = CliRunner().invoke(cli, [*arguments, "--directory", str(told)])
        assert done.exit_code == 0, done.output
        what = "SELECT task_id, status, agent, step_count, kind FROM tasks"
        assert rows(there, what) == rows(told, what)
        what = "SELECT step_id, step_index, name, status, tool_name, error_type FROM steps"
        assert rows(there, what) == rows(told, what)
        what = "SELECT goal, result FROM tasks UNION SELECT prompt, decision FROM steps"
        assert "MARKER" not in str(rows(there, what))
