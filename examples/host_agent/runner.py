# SPDX-License-Identifier: Apache-2.0
"""The task runner: asks a model what to do, carries out the tools it asks for, until it is done.

Everything recorded about a task is recorded here, by the calls on ``task``, ``step`` and
``record``. The tracer is handed in; with one that does not record, the runner works the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .model import Asked, Message, Model, ModelError, asked_in, message_of, text_of
from .terminal import Terminal
from .tools import Tool, Toolbox

if TYPE_CHECKING:
    from otel_taskhistory import Step, TaskTracer

MAX_PARALLEL = 16

GIVE_UP = Tool(
    "give_up",
    "End the task as failed, when the goal cannot be reached; say why.",
    {"reason": {"type": "string"}},
    ("reason",),
    lambda reason: reason,
)


@dataclass(frozen=True, slots=True)
class Done:
    """One tool call that was carried out."""

    asked: Asked
    value: Any = None
    error: str | None = None
    """``Type: message`` when it failed."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did, for whoever watches the agent live."""

    number: int
    status: str
    """Of the task after this step: ``running``, ``succeeded`` or ``failed``."""
    done: tuple[Done, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended."""

    goal: str
    status: str
    """``succeeded`` or ``failed``."""
    text: str
    """The answer, or why there is none."""
    steps: int
    task_id: str


class TaskRunner:
    """Carries out goals, one step after the other; one runner can run several goals at once."""

    def __init__(
        self,
        model: Model,
        tools: Toolbox,
        tracer: TaskTracer,
        *,
        name: str = "host-agent",
        system: str = "You are a Host Agent. Reach the goal with your tools, then answer in text.",
        max_steps: int = 25,
        on_step: Callable[[StepReport], None] = lambda report: None,
    ) -> None:
        self._model = model
        self._tools = tools
        self._tracer = tracer
        self._name = name
        self._system = system
        self._max_steps = max_steps
        self._on_step = on_step
        self._offered = [*tools.definitions(), GIVE_UP.definition()]

    def run(self, goal: str) -> Outcome:
        """Carry out `goal`; a model that cannot be asked makes it fail, it does not raise."""
        number, task_id = 0, ""
        terminal = Terminal(goal)
        messages: list[Message] = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": goal},
        ]
        try:
            with self._tracer.task(goal, agent=self._name) as task:
                task_id = task.id
                for number in range(1, self._max_steps + 1):
                    with task.step() as step:
                        status, text = self._turn(step, number, messages, terminal)
                    if status == "succeeded":
                        task.result(text)
                        return Outcome(goal, status, text, number, task_id)
                    if status == "failed":
                        task.fail(text)
                        return Outcome(goal, status, text, number, task_id)
                text = f"no answer after {self._max_steps} steps"
                task.fail(text)
                return Outcome(goal, "failed", text, number, task_id)
        except ModelError as error:
            # Step and task are recorded as failed already: the exception left both.
            return Outcome(goal, "failed", str(error), number, task_id)

    def _turn(
        self, step: Step, number: int, messages: list[Message], terminal: Terminal
    ) -> tuple[str, str]:
        """One step: ask the model, do what it asks; the task's status after it, and why."""
        step.prompt(messages, model=self._model.name, tools=self._offered)
        reply = self._model.chat(messages, self._offered)
        step.decision(reply)

        message = message_of(reply)
        asked, said = asked_in(message), text_of(message)
        reason = next((str(a.arguments.get("reason")) for a in asked if a.name == "give_up"), None)
        done: list[Done] = []
        if reason is not None:
            status, text = "failed", reason
            step.result(f"gave up: {reason}")
            terminal.error(f"gave up: {reason}")
        elif not asked:
            status, text = "succeeded", said
            step.result(said)
            terminal.answer(said)
        else:
            done = self._carry_out(step, asked)
            failures = [item for item in done if item.error is not None]
            status, text = "running", f"{len(done)} tool calls, {len(failures)} failed"
            if len(failures) < len(done):
                step.result(text)
            else:
                step.fail(failures[0].error)
            messages.append(message)
            messages.extend(_tool_message(item) for item in done)
            _show(terminal, said, done)

        step.screenshot(terminal.screenshot(number), caption=f"terminal after step {number}")
        self._on_step(StepReport(number, status, tuple(done)))
        return status, text

    def _carry_out(self, step: Step, asked: list[Asked]) -> list[Done]:
        """All calls of one decision, side by side, each in a thread of its own."""

        def call(item: Asked) -> Done:
            try:
                with step.tool_call(item.name, item.arguments, call_id=item.call_id) as record:
                    if item.problem is not None:
                        raise ValueError(item.problem)
                    value = self._tools.run(item.name, item.arguments)
                    record.result(value)
                    return Done(item, value)
            except Exception as error:  # whatever it is, the model is told and decides what to do
                return Done(item, error=f"{type(error).__name__}: {error}")

        with ThreadPoolExecutor(max_workers=min(len(asked), MAX_PARALLEL)) as pool:
            return list(pool.map(call, asked))


def _tool_message(item: Done) -> Message:
    """What the model is told of a call: its value, or ``{"error": ...}``, as JSON."""
    content = item.value if item.error is None else {"error": item.error}
    return {
        "role": "tool",
        "tool_call_id": item.asked.call_id,
        "content": json.dumps(content, ensure_ascii=False),
    }


def _show(terminal: Terminal, said: str, done: list[Done]) -> None:
    if said:
        terminal.said(said)
    for item in done:
        terminal.command(item.asked.name, item.asked.arguments)
        if item.error is None:
            terminal.output(item.value)
        else:
            terminal.error(item.error)
