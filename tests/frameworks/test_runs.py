# SPDX-License-Identifier: Apache-2.0
"""Agents of real frameworks, run as their users do, and what the history shows meanwhile and then.

Gaps of a framework's spans are those of `tests.frameworks.expected`, and no others.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.frameworks.offline import GOAL, MODEL, SYSTEM, TURNS
from otel_taskhistory import TaskHistory
from otel_taskhistory.history import Step, Task, ToolCall
from tests.frameworks.environments import ready
from tests.frameworks.expected import Framework
from tests.frameworks.guides import guides
from tests.frameworks.running import PATIENCE, Example

STOPPED = -2  # what SIGINT leaves


@pytest.fixture
def example(framework: Framework, tmp_path: Path) -> Iterator[Example]:
    """The framework's example, running; its model waits to be let say each turn."""
    with Example(framework.name, tmp_path) as running:
        yield running


def the_task(history: TaskHistory) -> Task:
    """The only task; a run leaves no other traces that look like one."""
    (task,) = history.tasks(kind=None)
    return task


def calls_of(history: TaskHistory, step: Step) -> list[ToolCall]:
    """The tool calls of a step."""
    return history.tool_calls(step.task_id, step.step_id)


def held(said: str | None) -> list[Any]:
    """Everything that stands in messages, in its order: texts, numbers; JSON in texts is opened."""
    found: list[Any] = []
    left: list[Any] = [said]
    while left:
        value = opened(left.pop())
        if isinstance(value, dict):
            left += reversed(value.values())
        elif isinstance(value, list):
            left += reversed(value)
        elif value is not None:
            found.append(value)
    return found


def opened(value: Any) -> Any:
    """What stands in a text that is JSON; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def asked_for(decision: str | None) -> list[tuple[str, str, Any]]:
    """The tool calls of a decision: id, name, arguments."""
    return [
        (part["id"], part["name"], opened(part["arguments"]))
        for message in json.loads(decision or "[]")
        for part in message["parts"]
        if part["type"] == "tool_call"
    ]


def in_order(wanted: list[str], values: list[Any]) -> bool:
    """Whether the values hold the texts, one after the other."""
    left = iter([str(value) for value in values])
    return all(any(text in value for value in left) for text in wanted)


def check_first_step(history: TaskHistory, framework: Framework, step: Step) -> None:
    """The step that has ended: what was sent, what came, what the tool was asked and said."""
    assert (step.step_index, step.status, step.error) == (1, "succeeded", None)
    assert step.agent == (None if framework.no_agent else "storekeeper")
    (call,) = calls_of(history, step)
    assert (call.name, call.status) == ("count", "succeeded")
    assert call.call_id == (None if framework.no_call_ids else "call_1")
    if framework.no_model_calls:
        assert (call.arguments, call.result, step.input_tokens) == (None, None, None)
        return
    assert in_order([SYSTEM, GOAL], held(step.prompt))
    assert not in_order([TURNS[0].text], held(step.prompt))
    assert in_order([TURNS[0].text], held(step.decision))
    assert asked_for(step.decision) == [("call_1", "count", {"part": "A-17"})]
    assert (step.model, step.input_tokens, step.output_tokens) == (MODEL, 100, 10)
    assert call.arguments is not None
    assert json.loads(call.arguments) == {"part": "A-17"}
    assert in_order(["A-17", "3"], held(call.result))


def test_a_running_step_is_seen_by_others(framework: Framework, example: Example) -> None:
    """While the model thinks about its second turn another process sees the task running, the
    first step with all that belongs to it, and the second one running; then the agent goes on.
    """
    example.answer(1)
    example.until_asked(2)
    count = 1 if framework.no_model_calls else 2
    example.until_seen(
        lambda history: the_task(history).step_count == count, "the second step was not seen"
    )
    with TaskHistory(example.directory) as history:
        task = the_task(history)
        assert (task.status, task.ended_at) == ("running", None)
        assert task.goal == (None if framework.no_model_calls else GOAL)
        steps = history.steps(task.task_id)
        if framework.no_model_calls:
            check_first_step(history, framework, steps[0])
        else:
            first, second = steps
            assert first.decision is not None
            assert (second.status, second.decision) == ("running", None)
            if framework.no_prompt_yet:
                assert second.prompt is None
            else:
                assert in_order([SYSTEM, GOAL, TURNS[0].text], held(second.prompt))
            (call,) = calls_of(history, first)
            assert (call.name, call.status) == ("count", "succeeded")
    example.answer(2)
    example.answer(3)
    assert example.end() == 0, example.said()


def test_a_run_is_one_task_with_its_steps(framework: Framework, tmp_path: Path) -> None:
    """Run by one command, with nobody watching: goal, agent, prompts as sent, decisions, both tool
    calls of which one fails, tokens counted once, and the answer.
    """
    with Example(framework.name, tmp_path, gated=False) as example:
        assert example.end() == 0, example.said()
    with TaskHistory(example.directory) as history:
        task = the_task(history)
        steps = history.steps(task.task_id)
        assert (task.kind, task.status, task.error) == ("agent", "succeeded", None)
        assert task.agent == (None if framework.no_agent else "storekeeper")
        assert task.step_count == len(steps) == (2 if framework.no_model_calls else 3)
        check_first_step(history, framework, steps[0])
        check_second_step(history, framework, steps[1])
        if framework.no_model_calls:
            return
        assert (task.goal, task.model) == (GOAL, MODEL)
        assert (task.input_tokens, task.output_tokens) == (450, 36)
        assert (task.result or "").strip() == TURNS[2].text
        check_last_step(history, framework, steps[2])
    # The example shows its user the same.
    assert f"succeeded: {GOAL}" in example.said()
    assert "450 + 36 tokens" in example.said()


def check_second_step(history: TaskHistory, framework: Framework, step: Step) -> None:
    """The step whose tool fails; it is sent what was said before it, and is no failure itself."""
    (call,) = calls_of(history, step)
    assert (call.name, call.status) == ("count", "failed")
    assert call.call_id == (None if framework.no_call_ids else "call_2")
    if not framework.no_tool_error:
        assert "there is no part B-2" in (call.error or "") + (call.result or "")
    if framework.no_model_calls:
        return
    assert (step.step_index, step.status) == (2, "succeeded")
    sent = [SYSTEM, GOAL, TURNS[0].text]
    assert in_order([*sent, "A-17", "3"], held(step.prompt))
    if not framework.rewords_calls:
        assert in_order([*sent, "call_1", "call_1"], held(step.prompt))
    assert in_order([TURNS[1].text], held(step.decision))
    assert asked_for(step.decision) == [("call_2", "count", {"part": "B-2"})]
    assert (step.model, step.input_tokens, step.output_tokens) == (MODEL, 150, 12)
    assert call.arguments is not None
    assert json.loads(call.arguments) == {"part": "B-2"}


def check_last_step(history: TaskHistory, framework: Framework, step: Step) -> None:
    """The step with the answer."""
    assert (step.step_index, step.status) == (3, "succeeded")
    assert in_order([SYSTEM, GOAL, TURNS[0].text, TURNS[1].text], held(step.prompt))
    assert in_order([TURNS[2].text], held(step.decision))
    asked = [name for _, name, _ in asked_for(step.decision)]
    assert asked == (["final_answer"] if framework.answers_by_tool else [])
    assert (step.input_tokens, step.output_tokens) == (200, 14)
    calls = [call.name for call in calls_of(history, step)]
    assert calls == asked


def test_a_run_that_raises_has_failed(framework: Framework, example: Example) -> None:
    """The model fails at its second turn and the exception leaves the program: task and step have
    failed and say why, and what was done before is all there.
    """
    example.answer(1)
    example.answer(2, "fail")
    assert example.end() == 1, example.said()
    with TaskHistory(example.directory) as history:
        task = the_task(history)
        assert task.status == "failed"
        assert "the model is overloaded" in (task.error or "")
        first, *further = history.steps(task.task_id)
        check_first_step(history, framework, first)
        if not framework.no_model_calls:
            (second,) = further
            assert (second.status, second.decision) == ("failed", None)
            assert "the model is overloaded" in (second.error or "")
            assert calls_of(history, second) == []


def test_a_run_that_is_stopped_is_cancelled(framework: Framework, example: Example) -> None:
    """Ctrl-C while the model thinks about its second turn: task and step are cancelled, and what
    was done before is all there.
    """
    example.answer(1)
    example.until_asked(2)
    count = 1 if framework.no_model_calls else 2
    example.until_seen(
        lambda history: the_task(history).step_count == count, "the second step was not seen"
    )
    example.interrupt()
    assert example.end() == STOPPED, example.said()
    with TaskHistory(example.directory) as history:
        task = the_task(history)
        assert (task.status, task.result) == (framework.cancelled, None)
        assert task.ended_at is not None
        first, *further = history.steps(task.task_id)
        check_first_step(history, framework, first)
        if not framework.no_model_calls:
            (second,) = further
            assert (second.status, second.decision) == (framework.cancelled_step, None)


def test_the_lines_to_paste_run(framework: Framework, tmp_path: Path) -> None:
    """Those of the guide are accepted by the framework, without a warning."""
    program = tmp_path / "pasted.py"
    program.write_text(guides()[framework.name], encoding="utf-8")
    done = subprocess.run(
        [ready(framework.name), program],
        env={**os.environ, "OTEL_TASKHISTORY_DIRECTORY": str(tmp_path / "history")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "history" / "history.db").exists()
