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


@pytest.fixture(autouse=True)
def _no_real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have one configured."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_a_second_run_adds_to_the_first(tmp_path: Path) -> None:
    """Every goal of both runs is a task of its own, as it ended, with all its steps."""
    first = run_demo(tmp_path / "history", out=io.StringIO())
    second = run_demo(tmp_path / "history", out=io.StringIO())

    history = TaskHistory(tmp_path / "history")
    tasks = {task.task_id: task for task in history.tasks(limit=50)}
    assert set(tasks) == {*first, *second}
    assert len(tasks) == 16
    for run in (first, second):
        assert [tasks[task_id].status for task_id in run] == ["succeeded"] * 7 + ["failed"]
        assert "ConnectionRefusedError" in tasks[run[-1]].error
        assert len(history.steps(run[6])) == tasks[run[6]].step_count >= 8


def test_each_step_is_complete(tmp_path: Path) -> None:
    """Prompt, decision, tool call, result, tokens and a sound picture, in every step."""
    run_demo(tmp_path / "history", out=io.StringIO())
    history = TaskHistory(tmp_path / "history")
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


def test_an_agent_without_recording_works_the_same() -> None:
    """On a provider that records nothing, the goals end as they do otherwise."""
    outcomes = run_goals(TaskTracer(NoOpTracerProvider()), out=io.StringIO())
    assert [outcome.status for outcome in outcomes] == ["succeeded"] * 7 + ["failed"]
