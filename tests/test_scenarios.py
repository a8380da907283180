# SPDX-License-Identifier: Apache-2.0
"""The specification's scenarios, by name: what is persisted when, and by and for whom."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.testing import Recorded
from tests.processes import SOUND_PNG, Program, check, listing, run, run_badly


def seen_by_another_process(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of the public tables, as a program of its own reads them."""
    found: dict[str, list[dict[str, Any]]] = json.loads(run("reader", directory))
    return found


def test_a_step_completes_during_goal_execution(tmp_path: Path) -> None:
    """Status, index, actual prompt and response, tool call, result and screenshot of a step are
    persisted before the next step begins.
    """
    directory = tmp_path / "history"
    with Program("agent", directory, "succeeds") as agent:
        agent.until("before the task")
        agent.go_on()
        task_id = agent.line().removeprefix("task ")
        while line := _next(agent):
            if line == "step 1 ended":
                break
        # The agent stands between the two steps; nobody else has touched the history yet.
        seen = seen_by_another_process(directory)
        (step,) = seen["steps"]
        (task,) = seen["tasks"]
        assert (task["task_id"], task["status"]) == (task_id, "running")
        assert (step["status"], step["step_index"]) == ("succeeded", 1)
        assert [
            (message["role"], [part["content"] for part in message["parts"]])
            for message in json.loads(step["prompt"])
        ] == [("system", ["be brief"]), ("user", ["what is in folder 1?"])]
        assert step["decision"] == "I list folder 1"
        assert (step["model"], step["input_tokens"], step["output_tokens"]) == ("model-1", 10, 4)
        assert step["tool_name"] == "list_files"
        assert json.loads(step["tool_arguments"]) == {"folder": 1}
        assert json.loads(step["tool_result"]) == ["a1", "b1"]
        assert step["result"] == "folder 1 has 2 files"
        assert step["ended_at"] is not None
        assert (directory / "artifacts" / step["screenshot"]).read_bytes() == SOUND_PNG
        (shot,) = seen["screenshots"]
        assert (shot["status"], shot["caption"]) == ("ok", "folder 1")
        assert shot["sha256"] == hashlib.sha256(SOUND_PNG).hexdigest()


def _next(agent: Program) -> str:
    agent.go_on()
    return agent.line()


@pytest.mark.parametrize(("how", "status"), [("succeeds", "succeeded"), ("fails", "failed")])
def test_an_assignment_finishes_succeeded_or_failed(tmp_path: Path, how: str, status: str) -> None:
    """The full step history stays queryable after the task is discarded, and in a new process."""
    directory = tmp_path / "history"
    with Program("agent", directory, how) as agent:
        while agent.line() != "task ended":
            agent.go_on()
        while_it_lives = seen_by_another_process(directory)
        agent.go_on()
        agent.end()
    afterwards = seen_by_another_process(directory)
    assert afterwards == while_it_lives
    (task,) = afterwards["tasks"]
    assert (task["status"], task["goal"]) == (status, "find the number of files")
    assert task["result"] == ("4 files" if how == "succeeds" else None)
    assert (task["error"] or "").endswith("the third folder is gone" if how == "fails" else "")
    steps = sorted(afterwards["steps"], key=lambda step: step["step_index"])
    assert [step["step_index"] for step in steps] == [1, 2]
    for number, step in enumerate(steps, start=1):
        assert step["status"] == "succeeded"
        assert step["decision"] == f"I list folder {number}"
        assert step["result"] == f"folder {number} has 2 files"
    # The second prompt was the whole conversation until then, as it was sent.
    assert [message["parts"][0]["content"] for message in json.loads(steps[1]["prompt"])] == [
        *("be brief", "what is in folder 1?", "I list folder 1", "what is in folder 2?")
    ]
    assert len(afterwards["tool_calls"]) == len(afterwards["screenshots"]) == 2
    with TaskHistory(directory) as history:
        assert [step.status for step in history.steps("latest")] == ["succeeded"] * 2
    check(directory)


def test_host_agent_and_local_runtime_api_on_one_machine_with_their_default_configurations(
    tmp_path: Path,
) -> None:
    """Each reads and writes its own history; neither observes nor modifies the other's."""
    home = tmp_path / "home"
    home.mkdir()
    agents = {"HOME": str(home)}
    runtimes = {"HOME": str(home), "OTEL_TASKHISTORY_OWNER": "runtime-api"}
    with Program("component", "desk-agent", "configure", environ=agents) as agent:
        agent.until("open")
        agent.go_on()
        agent.until("recorded")
        (agents_own,) = home.rglob("host-agent")
        before = listing(agents_own)
        with Program("component", "runtime-api", "configure", environ=runtimes) as runtime:
            runtime.until("open")
            runtime.go_on()
            runtime.until("recorded")
            assert listing(agents_own) == before
            (runtimes_own,) = home.rglob("runtime-api")
            between = listing(runtimes_own)
            agent.go_on()
            assert json.loads(agent.end()) == ["the work of desk-agent"]
            assert listing(runtimes_own) == between
            runtime.go_on()
            assert json.loads(runtime.end()) == ["the work of runtime-api"]
    assert agents_own.parent == runtimes_own.parent
    goals = {
        owner.name: [task["goal"] for task in seen_by_another_process(owner)["tasks"]]
        for owner in (agents_own, runtimes_own)
    }
    assert goals == {
        "host-agent": ["the work of desk-agent"],
        "runtime-api": ["the work of runtime-api"],
    }


@pytest.mark.parametrize("how", ["configure", "exporter"])
def test_a_second_component_with_the_default_owner_is_refused_before_a_byte_is_written(
    tmp_path: Path, how: str
) -> None:
    """Two services that both left the owner alone do not share a history by mistake; the error
    names both and the setting to change.
    """
    environ = {"HOME": str(tmp_path), "OTEL_SERVICE_NAME": "desk-agent"}
    with Program("component", "desk-agent", how, environ=environ) as agent:
        agent.until("open")
        agent.go_on()
        agent.until("recorded")
        before = listing(tmp_path)
        environ["OTEL_SERVICE_NAME"] = "runtime-api"
        status, errors = run_badly("component", "runtime-api", how, environ=environ)
        assert status != 0
        said = errors.strip().splitlines()[-1]
        assert said.startswith("otel_taskhistory.errors.HistoryRefused: ")
        assert "desk-agent" in said
        assert "runtime-api" in said
        assert "OTEL_TASKHISTORY_OWNER" in said
        assert listing(tmp_path) == before
        agent.go_on()
        assert json.loads(agent.end()) == ["the work of desk-agent"]


class FakeModel:
    """Answers, and remembers exactly what it was given."""

    def __init__(self) -> None:
        self.given: list[list[dict[str, str]]] = []

    def ask(self, messages: list[dict[str, str]]) -> str:
        self.given.append([dict(message) for message in messages])
        return f"answer {len(self.given)}"


def test_the_prompt_stored_is_what_was_handed_to_the_model_in_that_very_step(
    taskhistory: Recorded,
) -> None:
    """Over 50 steps of a conversation that grows and is then trimmed, and never the goal."""
    model = FakeModel()
    goal = "book a table for two"
    messages = [{"role": "system", "content": "you act on web pages"}]
    with taskhistory.tasks.task(goal, agent="desk-1") as task:
        for number in range(1, 51):
            with task.step() as step:
                messages.append({"role": "user", "content": f"page {number}: " + "x" * number * 20})
                if number > 30 and len(messages) > 10:
                    del messages[1:4]  # the agent forgets its oldest turns
                step.prompt(messages, model="m")
                reply = model.ask(messages)
                step.decision(reply)
                messages.append({"role": "assistant", "content": reply})
    steps = taskhistory.history.steps(task.id, limit=100)
    assert [step.step_index for step in steps] == list(range(1, 51))
    for step, given in zip(steps, model.given, strict=True):
        assert step.prompt is not None
        assert goal not in step.prompt
        assert [
            {"role": message["role"], "content": message["parts"][0]["content"]}
            for message in json.loads(step.prompt)
        ] == given
        assert all(len(message["parts"]) == 1 for message in json.loads(step.prompt))
    assert [step.decision for step in steps] == [f"answer {n}" for n in range(1, 51)]
