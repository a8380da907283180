# SPDX-License-Identifier: Apache-2.0
"""The real model behind an endpoint: what it sends, and what becomes of a bad answer."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from otel_taskhistory.demo.host_agent.demo import unused_port
from otel_taskhistory.demo.host_agent.model import ModelError
from otel_taskhistory.demo.host_agent.openai_compatible import (
    DEFAULT_MODEL,
    OpenAICompatibleModel,
)
from otel_taskhistory.demo.host_agent.runner import TaskRunner
from otel_taskhistory.demo.host_agent.tools import standard_tools
from otel_taskhistory.demo.host_agent.workspace import Workspace

HELLO = [{"role": "user", "content": "hello"}]


def test_messages_and_tools_are_sent_as_they_are(endpoint: Any, workspace: Workspace) -> None:
    """To ``/chat/completions`` below the base URL, with the key; the reply comes back whole."""
    endpoint.reply({"role": "assistant", "content": "hi"})
    tools = standard_tools(workspace).definitions()
    reply = OpenAICompatibleModel(endpoint.url + "/", "small", "k-1").chat(HELLO, tools)

    assert reply["choices"][0]["message"]["content"] == "hi"
    assert endpoint.asked == [
        ("/v1/chat/completions", {"model": "small", "messages": HELLO, "tools": tools})
    ]
    assert endpoint.headers[0]["authorization"] == "Bearer k-1"


def test_without_a_key_none_is_sent(endpoint: Any) -> None:
    """Local servers need none."""
    endpoint.reply({"role": "assistant", "content": "hi"})
    OpenAICompatibleModel(endpoint.url).chat(HELLO, [])
    assert "authorization" not in endpoint.headers[0]
    assert endpoint.asked[0][1]["model"] == DEFAULT_MODEL


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b"out of memory", "answered 500: out of memory"),
        (401, b'{"error": "bad key"}', "answered 401"),
        (200, b"<html>welcome</html>", "sent no JSON"),
        (200, b"\xff\xfe\x00", "sent no JSON"),
        (200, b"[1, 2]", "sent list, not a chat completion"),
        (200, b'{"object": "list"}', "no chat completion"),
        (200, b'{"choices": []}', "no chat completion"),
    ],
)
def test_a_bad_answer_is_a_failed_task(
    endpoint: Any, recorder: Any, workspace: Workspace, status: int, body: bytes, why: str
) -> None:
    """Error statuses and bodies of any kind fail the task, with a reason; nothing is raised."""
    endpoint.answer = lambda: (status, body)
    model = OpenAICompatibleModel(endpoint.url, api_key="k-secret")
    outcome = TaskRunner(model, standard_tools(workspace), recorder).run("hello")

    assert (outcome.status, outcome.steps) == ("failed", 1)
    assert why in outcome.text
    assert "k-secret" not in outcome.text
    assert recorder.tasks[0].status == "failed"


def test_a_silent_endpoint_is_given_up(endpoint: Any) -> None:
    """The timeout is an error that says how long it waited."""
    release = threading.Event()

    def wait() -> tuple[int, bytes]:
        release.wait(30)
        return 200, b"{}"

    endpoint.answer = wait
    model = OpenAICompatibleModel(endpoint.url, timeout=0.2)
    try:
        with pytest.raises(ModelError, match=r"silent for 0\.2 s"):
            model.chat(HELLO, [])
    finally:
        release.set()


def test_an_endpoint_that_is_not_there() -> None:
    """A refused connection is a `ModelError`."""
    model = OpenAICompatibleModel(f"http://127.0.0.1:{unused_port()}/v1")
    with pytest.raises(ModelError, match="refused"):
        model.chat(HELLO, [])


@pytest.mark.parametrize("url", ["file:///etc", "localhost:8000", "http://", "http://[bad"])
def test_an_address_that_is_none(url: str) -> None:
    """A mistake in ``OPENAI_BASE_URL`` is a `ModelError` that names it."""
    with pytest.raises(ModelError):
        OpenAICompatibleModel(url).chat(HELLO, [])


def test_the_environment_decides() -> None:
    """Only a base URL switches to a real endpoint; the other variables say which model and key."""
    assert OpenAICompatibleModel.from_environment({}) is None
    assert OpenAICompatibleModel.from_environment({"OPENAI_API_KEY": "k"}) is None
    found = OpenAICompatibleModel.from_environment(
        {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "m", "OPENAI_API_KEY": "k"}
    )
    assert found is not None
    assert found.name == "m"


def test_tool_calls_of_a_real_model_are_carried_out(
    endpoint: Any, recorder: Any, workspace: Workspace
) -> None:
    """Over HTTP, two rounds: the second request holds the tool's result."""
    call = {
        "id": "call_x",
        "type": "function",
        "function": {"name": "measure_module", "arguments": '{"path": "shop/till.py"}'},
    }
    replies = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "five lines"},
    ]

    def next_reply() -> tuple[int, bytes]:
        message = replies.pop(0)
        return 200, json.dumps({"choices": [{"message": message}]}).encode()

    endpoint.answer = next_reply
    model = OpenAICompatibleModel(endpoint.url)
    outcome = TaskRunner(model, standard_tools(workspace), recorder).run("How long is the till?")

    assert (outcome.status, outcome.text) == ("succeeded", "five lines")
    last = endpoint.asked[1][1]["messages"][-1]
    assert (last["role"], last["tool_call_id"]) == ("tool", "call_x")
    assert json.loads(last["content"])["lines"] == 5
