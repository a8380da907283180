# SPDX-License-Identifier: Apache-2.0
"""The example agent: its loop, what it records, and the demo that it is run by."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from PIL import Image

from otel_taskhistory.demo.host_agent.demo import demo_goals, run_goals, unused_port
from otel_taskhistory.demo.host_agent.model import Message, ModelError, Reply
from otel_taskhistory.demo.host_agent.policy import PolicyModel
from otel_taskhistory.demo.host_agent.runner import StepReport, TaskRunner
from otel_taskhistory.demo.host_agent.service import InventoryService
from otel_taskhistory.demo.host_agent.tools import Tool, Toolbox, standard_tools
from otel_taskhistory.demo.host_agent.workspace import Workspace

LARGEST = "Find the two largest modules of the Python package shop."


class Script:
    """A model that gives these replies, one after the other, and keeps what it was asked."""

    name = "script"

    def __init__(self, *replies: Message | Exception) -> None:
        self._replies = list(replies)
        self.asked: list[list[Message]] = []

    def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        self.asked.append(json.loads(json.dumps(messages)))
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return {"choices": [{"index": 0, "message": reply}]}


def calls(*asked: tuple[str, str]) -> Message:
    """An assistant message that asks for tools, each given by name and arguments as JSON."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(asked)
        ],
    }


def answer(text: str) -> Message:
    """An assistant message that ends the task."""
    return {"role": "assistant", "content": text}


def echo_tools() -> Toolbox:
    """A toolbox with a tool that returns what it is given, and one that fails."""

    def fail() -> None:
        raise OSError("the disk is gone")

    return Toolbox(
        [
            Tool(
                "echo", "Say it again.", {"text": {"type": "string"}}, ("text",), lambda text: text
            ),
            Tool("fail", "Fail.", {}, (), fail),
        ]
    )


def test_a_task_is_recorded_step_by_step(recorder: Any) -> None:
    """Each step has the prompt that the model got in it, decision, tools, result, picture."""
    model = Script(calls(("echo", '{"text": "a"}')), answer("done"))
    outcome = TaskRunner(model, echo_tools(), recorder, name="desk-1").run("say a")

    (task,) = recorder.tasks
    assert (task.name, task.facts, task.status, task.value) == (
        *("say a", {"agent": "desk-1"}),
        *("succeeded", "done"),
    )
    assert (outcome.status, outcome.text, outcome.steps) == ("succeeded", "done", 2)
    assert outcome.task_id == task.id

    first, second = task.children
    assert [first.prompts, second.prompts] == [[asked] for asked in model.asked]
    assert [m["role"] for m in second.prompts[0]] == ["system", "user", "assistant", "tool"]
    assert first.decisions[0]["choices"][0]["message"]["tool_calls"][0]["id"] == "c0"
    (call,) = first.children
    assert (call.name, call.facts, call.value, call.status) == (
        *("echo", {"arguments": {"text": "a"}, "call_id": "c0"}),
        *("a", "succeeded"),
    )
    assert first.value == "1 tool calls, 0 failed"
    assert second.value == "done"
    assert {"echo", "fail", "give_up"} == {t["function"]["name"] for t in first.facts["tools"]}
    for step in (first, second):
        with Image.open(io.BytesIO(step.pictures[0])) as picture:
            picture.load()
            assert picture.format == "PNG"


def test_tools_of_one_decision_run_side_by_side(recorder: Any) -> None:
    """Two calls that each wait for the other both end: they really overlap."""
    meeting = threading.Barrier(2, timeout=30)
    tool = Tool("meet", "Wait.", {}, (), lambda: meeting.wait() >= 0)
    model = Script(calls(("meet", "{}"), ("meet", "{}")), answer("met"))
    TaskRunner(model, Toolbox([tool]), recorder).run("meet")

    step = recorder.tasks[0].children[0]
    assert [(call.status, call.value) for call in step.children] == [("succeeded", True)] * 2
    results = [m for m in model.asked[1] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["c0", "c1"]


def test_a_failed_tool_is_told_to_the_model(recorder: Any) -> None:
    """One of two calls fails: its exception is recorded, the model told, the task goes on."""
    model = Script(calls(("fail", ""), ("echo", '{"text": "b"}')), answer("half of it"))
    outcome = TaskRunner(model, echo_tools(), recorder).run("try")

    first = recorder.tasks[0].children[0]
    by_name = {call.name: call for call in first.children}
    assert isinstance(by_name["fail"].error, OSError)
    assert by_name["echo"].status == first.status == outcome.status == "succeeded"
    told = [m["content"] for m in model.asked[1] if m["role"] == "tool"]
    assert told == ['{"error": "OSError: the disk is gone"}', '"b"']


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (("nonsense", "{}"), "LookupError: there is no tool 'nonsense'"),
        (("echo", "not json"), "ValueError: the arguments are no JSON object"),
        (("echo", '["list"]'), "ValueError: the arguments are no JSON object"),
        (("echo", '{"volume": 11}'), "TypeError"),
    ],
)
def test_a_call_that_cannot_be_carried_out(recorder: Any, call: tuple[str, str], why: str) -> None:
    """Unknown tools and unfit arguments fail the call and the step, and the model may try again."""
    model = Script(calls(call), answer("sorry"))
    outcome = TaskRunner(model, echo_tools(), recorder).run("try")

    step = recorder.tasks[0].children[0]
    assert [step.status, step.children[0].status] == ["failed", "failed"]
    assert step.error.startswith(why)
    assert model.asked[1][-1]["content"].startswith(f'{{"error": "{why}')
    assert outcome.status == "succeeded"


def test_giving_up_fails_the_task(recorder: Any) -> None:
    """The model's reason becomes the task's error; the step in which it said so has worked."""
    model = Script(calls(("give_up", '{"reason": "no such thing"}')))
    outcome = TaskRunner(model, echo_tools(), recorder).run("find it")

    (task,) = recorder.tasks
    assert (task.status, task.error) == ("failed", "no such thing")
    assert task.children[0].status == "succeeded"
    assert (outcome.status, outcome.text) == ("failed", "no such thing")


def test_a_model_that_cannot_be_asked_fails_the_task(recorder: Any) -> None:
    """The prompt is recorded, step and task have the error, and the runner's caller goes on."""
    model = Script(ModelError("no line"))
    outcome = TaskRunner(model, echo_tools(), recorder).run("ask")

    (task,) = recorder.tasks
    (step,) = task.children
    assert step.prompts == model.asked
    assert isinstance(step.error, ModelError)
    assert task.error is step.error
    assert (outcome.status, outcome.text, outcome.steps) == ("failed", "no line", 1)
    assert outcome.task_id == task.id


@pytest.mark.parametrize("reply", [{}, {"choices": []}, {"choices": [{"message": "hi"}]}])
def test_a_reply_that_is_no_completion_fails_the_task(recorder: Any, reply: Reply) -> None:
    """What the model sent is recorded as its decision before it is found useless."""

    class Broken:
        name = "broken"

        def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
            return reply

    outcome = TaskRunner(Broken(), echo_tools(), recorder).run("ask")
    assert outcome.status == recorder.tasks[0].status == "failed"
    assert recorder.tasks[0].children[0].decisions == [reply]


def test_an_endless_task_is_stopped(recorder: Any) -> None:
    """After `max_steps` the task fails and says so."""
    model = Script(*[calls(("echo", '{"text": "again"}'))] * 3)
    outcome = TaskRunner(model, echo_tools(), recorder, max_steps=3).run("go on")

    assert (outcome.status, outcome.steps) == ("failed", 3)
    assert recorder.tasks[0].error == outcome.text == "no answer after 3 steps"


def test_an_interrupt_goes_on_to_the_caller(recorder: Any) -> None:
    """The runner does not swallow Ctrl-C."""

    class Interrupted:
        name = "interrupted"

        def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TaskRunner(Interrupted(), echo_tools(), recorder).run("wait")
    assert isinstance(recorder.tasks[0].error, KeyboardInterrupt)


def test_one_runner_runs_several_goals_at_once(recorder: Any, workspace: Workspace) -> None:
    """Two goals in two threads do not see each other's conversation."""
    runner = TaskRunner(PolicyModel(), standard_tools(workspace), recorder)
    goals = [LARGEST, "Where in shop is sell defined, and what does it do?"]
    threads = [threading.Thread(target=runner.run, args=(goal,)) for goal in goals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for task in recorder.tasks:
        assert task.status == "succeeded"
        for step in task.children:
            assert step.prompts[0][1] == {"role": "user", "content": task.name}


def test_whoever_watches_is_told_of_each_step(recorder: Any, workspace: Workspace) -> None:
    """A report a step, with its calls and the state of the task after it."""
    seen: list[StepReport] = []
    tools = standard_tools(workspace)
    TaskRunner(PolicyModel(), tools, recorder, on_step=seen.append).run(LARGEST)

    assert [(report.number, report.status) for report in seen] == [
        *((1, "running"), (2, "running"), (3, "succeeded")),
    ]
    assert [done.asked.name for done in seen[1].done] == ["measure_module"] * 4


def test_the_demo_does_real_work(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All goals end as they should, the reasons are real, and every step has a picture."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    out = io.StringIO()
    outcomes = run_goals(recorder, out=out)

    assert [outcome.status for outcome in outcomes] == ["succeeded"] * 7 + ["failed"]
    assert "ConnectionRefusedError" in outcomes[-1].text
    assert max(outcome.steps for outcome in outcomes) >= 8
    steps = [step for task in recorder.tasks for step in task.children]
    assert any(len(step.children) > 1 for step in steps)
    assert all(
        len(step.pictures) == len(step.prompts) == len(step.decisions) == 1 for step in steps
    )
    numbers = re.findall(r"^  step (\d+)", out.getvalue(), re.MULTILINE)
    assert len(numbers) == len(steps)
    for outcome in outcomes:
        assert outcome.goal in out.getvalue()


def test_a_real_endpoint_is_used_when_one_is_set(
    recorder: Any, endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``OPENAI_BASE_URL`` replaces the policy; the goals are the same."""
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_MODEL", "small")
    endpoint.reply({"role": "assistant", "content": "forty-two"})
    outcomes = run_goals(recorder, out=io.StringIO(), goals=["What is the answer?"])

    assert [outcome.text for outcome in outcomes] == ["forty-two"]
    (asked,) = endpoint.asked
    assert asked[1]["model"] == "small"
    assert asked[1]["messages"] == recorder.tasks[0].children[0].prompts[0]


def test_the_demos_goals_are_known_to_the_policy() -> None:
    """The policy has a first move for each of them."""
    model = PolicyModel()
    with InventoryService() as service:
        goals = demo_goals(service.url, f"http://127.0.0.1:{unused_port()}")
    for goal in goals:
        reply = model.chat([{"role": "user", "content": goal}], [])
        names = [c["function"]["name"] for c in reply["choices"][0]["message"]["tool_calls"]]
        assert names
        assert "give_up" not in names
