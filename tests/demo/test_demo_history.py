# SPDX-License-Identifier: Apache-2.0
"""The demo as users run it: recorded in a real history, which is read back."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from opentelemetry.trace import NoOpTracerProvider

from otel_taskhistory import TaskHistory, TaskTracer
from otel_taskhistory.demo import run_demo
from otel_taskhistory.demo.host_agent.demo import run_goals
from otel_taskhistory.demo.host_agent.policy import PolicyModel


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A history, and the ids of the tasks of each of the two runs that are in it."""
    directory = tmp_path_factory.mktemp("demo") / "history"
    with pytest.MonkeyPatch.context() as environment:
        # Whoever runs the tests may have a real model configured.
        environment.delenv("OPENAI_BASE_URL", raising=False)
        first = run_demo(directory, out=io.StringIO())
        return directory, first, run_demo(directory, out=io.StringIO())


def test_a_second_run_adds_to_the_first(two_runs: tuple[Path, list[str], list[str]]) -> None:
    """Every goal of both runs is a task of its own, as it ended, with all its steps."""
    directory, first, second = two_runs
    history = TaskHistory(directory)
    tasks = {task.task_id: task for task in history.tasks(limit=50)}
    assert set(tasks) == {*first, *second}
    assert len(tasks) == 16
    for run in (first, second):
        assert [tasks[task_id].status for task_id in run] == ["succeeded"] * 7 + ["failed"]
        assert "ConnectionRefusedError" in tasks[run[-1]].error
        assert len(history.steps(run[6])) == tasks[run[6]].step_count >= 8


def test_each_step_is_complete(two_runs: tuple[Path, list[str], list[str]]) -> None:
    """Prompt, decision, tool call, result, tokens and a sound picture, in every step."""
    history = TaskHistory(two_runs[0])
    for task in history.tasks(limit=50):
        length = 0
        for step in history.steps(task.task_id):
            prompt = json.loads(step.prompt)
            assert prompt[1]["role"] == "user"
            assert task.goal in json.dumps(prompt[1], ensure_ascii=False)
            assert len(prompt) > length
            length = len(prompt)
            assert json.loads(step.decision)[0]["role"] == "assistant"
            assert step.model == PolicyModel.name
            assert step.input_tokens > 0
            assert step.screenshot


def test_an_agent_without_recording_works_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a provider that records nothing, the goals end as they do otherwise."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    outcomes = run_goals(TaskTracer(NoOpTracerProvider()), out=io.StringIO())
    assert [outcome.status for outcome in outcomes] == ["succeeded"] * 7 + ["failed"]
