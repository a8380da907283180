# SPDX-License-Identifier: Apache-2.0
"""The policy model: what it answers follows from what the tools found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.demo.host_agent.demo import unused_port
from otel_taskhistory.demo.host_agent.model import Message
from otel_taskhistory.demo.host_agent.policy import PolicyModel, observations, rough_tokens
from otel_taskhistory.demo.host_agent.runner import Outcome, TaskRunner
from otel_taskhistory.demo.host_agent.service import InventoryService
from otel_taskhistory.demo.host_agent.tools import standard_tools
from otel_taskhistory.demo.host_agent.workspace import Workspace

LARGEST = "Find the two largest modules of the Python package shop."


@pytest.fixture
def run(recorder: Any, workspace: Workspace) -> Callable[[str], Outcome]:
    """Carry out a goal with the policy and the real tools on the test's package."""
    return TaskRunner(PolicyModel(), standard_tools(workspace), recorder).run


def test_the_largest_modules_are_those_on_the_disk(
    run: Callable[[str], Outcome], shop: Path
) -> None:
    """Another tree, another answer; and lines count, not bytes."""
    before = run(LARGEST).text
    assert before.splitlines()[0] == "The 2 largest of 5 modules:"
    assert "1. shop/parts/bolt.py: 21 lines (21 of code), 0 functions, 0 classes" in before

    (shop / "wide.py").write_text(f"x = '{'w' * 5000}'\n")
    (shop / "long.py").write_text("def f():\n    pass\n" * 30)
    after = run(LARGEST).text.splitlines()
    assert after[0] == "The 2 largest of 7 modules:"
    assert after[1] == "1. shop/long.py: 60 lines (60 of code), 30 functions, 0 classes"
    assert after[2].startswith("2. shop/parts/bolt.py: 21 lines")


def test_a_module_that_cannot_be_parsed_is_left_out(
    run: Callable[[str], Outcome], shop: Path
) -> None:
    """The failed measurement is no end of the task."""
    (shop / "broken.py").write_text("def (:\n" * 100)
    outcome = run(LARGEST)
    assert outcome.status == "succeeded"
    assert "broken.py" not in outcome.text


def test_imports_are_followed_where_they_lead(run: Callable[[str], Outcome], shop: Path) -> None:
    """One step a module; with a new import the walk is longer and the answer deeper."""
    goal = "Follow the imports from shop/desk.py: which modules does it need, how deep is it?"
    before = run(goal)
    assert before.text.splitlines() == [
        "3 further modules, 1 imports deep at most, in the order found:",
        "shop/desk.py",
        "  shop/till.py",
        "  shop/__init__.py",
        "  shop/parts/bolt.py",
    ]
    assert before.steps == 5

    (shop / "till.py").write_text("from shop import coins\n")
    (shop / "coins.py").write_text("")
    after = run(goal)
    assert after.text.startswith("4 further modules, 2 imports deep at most")
    assert after.steps == 6


def test_a_definition_is_found_and_read(run: Callable[[str], Outcome], shop: Path) -> None:
    """Place, signature and the first paragraph of the docstring; a name that is not there fails."""
    goal = "Where in shop is sell defined, and what does it do?"
    assert run(goal).text == "shop/desk.py line 6: def sell(item): Sell one item."
    (shop / "desk.py").write_text("")
    outcome = run(goal)
    assert (outcome.status, outcome.text) == ("failed", "nothing called sell is defined in shop")


def test_a_licence_is_quoted_from_real_files(recorder: Any) -> None:
    """The metadata of an installed project is searched and its licence file read, in parallel."""
    workspace = Workspace.of_installed("sqlite-utils")
    runner = TaskRunner(PolicyModel(), standard_tools(workspace), recorder)
    outcome = runner.run("Which licence does sqlite-utils use, and where does it say so?")
    assert outcome.status == "succeeded"
    first, *places = outcome.text.splitlines()
    assert first.startswith("sqlite-utils ")
    assert places
    for place in places:
        if " line " in place:
            path, rest = place.split(" line ", 1)
            number, text = rest.split(": ", 1)
            assert workspace.resolve(path).read_text().splitlines()[int(number) - 1] == text
        else:
            path, text = place.split(" begins: ", 1)
            assert " ".join(workspace.resolve(path).read_text().split()).startswith(text)


def test_a_project_that_is_not_installed_is_given_up(run: Callable[[str], Outcome]) -> None:
    """The reason is the one that the tool gave."""
    outcome = run("Which licence does no-such-project-at-all use?")
    assert outcome.status == "failed"
    assert "PackageNotFoundError" in outcome.text


def test_the_broken_endpoint_is_found(run: Callable[[str], Outcome]) -> None:
    """Of everything the service offers, the policy names what failed, with the status it got."""
    with InventoryService() as service:
        outcome = run(f"Which endpoint of the service at {service.url} is broken, and how?")
    first, *broken = outcome.text.splitlines()
    assert first == "1 of 4 endpoints:"
    assert broken[0].startswith("/projects/sqlite-utils/signature: HttpError: 500")


def test_nothing_listens_there(run: Callable[[str], Outcome], recorder: Any) -> None:
    """A connection that is refused is tried twice, then the task fails for that reason."""
    outcome = run(f"Fetch today's report from http://127.0.0.1:{unused_port()}/report and stop.")
    assert (outcome.status, outcome.steps) == ("failed", 3)
    assert "failed 2 times, last with ConnectionRefusedError" in outcome.text
    (task,) = recorder.tasks
    assert [step.status for step in task.children] == ["failed", "failed", "succeeded"]
    assert isinstance(task.children[0].children[0].error, ConnectionRefusedError)


def test_what_answers_is_fetched(run: Callable[[str], Outcome]) -> None:
    """The same goal succeeds when something listens."""
    with InventoryService() as service:
        outcome = run(f"Fetch the health from {service.url}/health")
    assert outcome.status == "succeeded"
    assert "'status': 'ok'" in outcome.text


def test_an_unknown_goal_is_given_up(run: Callable[[str], Outcome]) -> None:
    """The policy says that it has no skill for it."""
    outcome = run("Write a sonnet.")
    assert (outcome.status, outcome.steps) == ("failed", 1)
    assert "no skill" in outcome.text


def test_the_policy_decides_from_the_messages_alone() -> None:
    """A fresh model goes on with a conversation as it is; another result, another answer."""

    def after(lines: int) -> str:
        conversation: list[Message] = [{"role": "user", "content": LARGEST}]
        results = [
            {"total": 1, "files": [{"path": "shop/a.py", "bytes": 9}]},
            {"path": "shop/a.py", "lines": lines, "code_lines": 1, "functions": 0, "classes": 0},
        ]
        for result in results:
            message = PolicyModel().chat(conversation, [])["choices"][0]["message"]
            (call,) = message["tool_calls"]
            told = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
            conversation += [message, told]
        return str(PolicyModel().chat(conversation, [])["choices"][0]["message"]["content"])

    assert "shop/a.py: 7 lines" in after(7)
    assert "shop/a.py: 8 lines" in after(8)


def test_call_ids_are_unique_within_a_conversation(
    run: Callable[[str], Outcome], recorder: Any
) -> None:
    """No result can be taken for that of another call."""
    run(LARGEST)
    ids = [call.facts["call_id"] for step in recorder.tasks[0].children for call in step.children]
    assert len(ids) == len(set(ids)) == 5


def test_observations_pair_calls_with_results() -> None:
    """By call id, whatever the order of the results; errors are told apart from values."""
    call = {"type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    messages: list[Message] = [
        {"role": "assistant", "tool_calls": [{"id": "a", **call}, {"id": "b", **call}]},
        {"role": "tool", "tool_call_id": "b", "content": '{"error": "OSError: gone"}'},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
    ]
    first, second = observations(messages)
    assert (first.name, first.arguments, first.value, first.error) == ("look", {"at": 1}, 3, None)
    assert (second.value, second.error) == (None, "OSError: gone")


def test_usage_grows_with_the_conversation() -> None:
    """The rough count is one of the messages and tools really sent."""
    assert rough_tokens([{"a": "two words"}]) > rough_tokens([{"a": "two"}])
    short = PolicyModel().chat([{"role": "user", "content": "x"}], [])["usage"]
    long = PolicyModel().chat([{"role": "user", "content": "x " * 50}], [])["usage"]
    assert long["prompt_tokens"] - short["prompt_tokens"] == 49
    assert long["total_tokens"] == long["prompt_tokens"] + long["completion_tokens"]
