# SPDX-License-Identifier: Apache-2.0
"""The demo: the Host Agent carries out a handful of real goals on this machine, all recorded."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from opentelemetry.sdk.trace import TracerProvider

from .model import Model
from .openai_compatible import OpenAICompatibleModel
from .policy import PolicyModel
from .runner import Outcome, StepReport, TaskRunner
from .service import InventoryService
from .terminal import printable
from .tools import standard_tools
from .workspace import Workspace

if TYPE_CHECKING:
    from otel_taskhistory import TaskTracer

PROJECTS = ("otel-taskhistory", "sqlite-utils")
"""Installed projects whose files the agent may read."""


def run_demo(
    directory: Path | None = None,
    owner: str | None = None,
    *,
    out: TextIO,
    goals: Sequence[str] | None = None,
    model: Model | None = None,
) -> list[str]:
    """Carry out `goals` (by default the demo's own), recorded in the history at `directory`.

    Args:
        directory: the history; None for what environment and defaults say.
        owner: the owner of the history; None for what environment and defaults say.
        out: where a line per step is printed while the agent works.
        goals: goals of the caller's, instead of the demo's.
        model: by default a real one if ``OPENAI_BASE_URL`` is set, else the built-in policy.

    Returns:
        The task ids, in the order of the goals. All of them are in the history.

    Raises:
        TaskHistoryError: the history cannot be used.
    """
    import otel_taskhistory

    # A provider of our own: the process that runs the demo may have one for its own purposes.
    provider = TracerProvider()
    tasks = otel_taskhistory.configure(directory, owner, tracer_provider=provider, set_global=False)
    try:
        outcomes = run_goals(tasks, out=out, goals=goals, model=model)
    finally:
        provider.shutdown()
    return [outcome.task_id for outcome in outcomes]


def run_goals(
    tasks: TaskTracer,
    *,
    out: TextIO,
    goals: Sequence[str] | None = None,
    model: Model | None = None,
) -> list[Outcome]:
    """Carry out `goals` one after the other under the tracer `tasks`; see `run_demo`."""
    model = model or OpenAICompatibleModel.from_environment() or PolicyModel()
    workspace = Workspace.of_installed(*PROJECTS)
    outcomes: list[Outcome] = []
    with InventoryService() as service:
        runner = TaskRunner(
            model,
            standard_tools(workspace),
            tasks,
            system=system_prompt(workspace, service.url),
            on_step=lambda report: _say(out, f"  step {report.number:<2}  {summary(report)}"),
        )
        goals = goals or demo_goals(service.url, f"http://127.0.0.1:{unused_port()}")
        _say(out, f"model: {model.name}; inventory service: {service.url}")
        for number, goal in enumerate(goals, start=1):
            _say(out, f"\ngoal {number} of {len(goals)}: {goal}")
            outcome = runner.run(goal)
            _say(out, f"  {outcome.status}:")
            for line in outcome.text.splitlines():
                _say(out, f"    {line}")
            outcomes.append(outcome)
    return outcomes


def demo_goals(inventory: str, nowhere: str) -> list[str]:
    """The demo's goals.

    Args:
        inventory: URL of the inventory service.
        nowhere: URL of a port on which nothing listens.
    """
    return [
        "Find the three largest modules of the Python package sqlite_utils.",
        "Which licence does otel-taskhistory use, and where does it say so?",
        f"Which core dependency of otel-taskhistory takes the most room, by {inventory}?",
        f"Which endpoint of the service at {inventory} is broken, and how?",
        "Where in sqlite_utils is enable_wal defined, and what does it do?",
        "Does sqlite-utils report the version that its metadata claims?",
        "Follow the imports from sqlite_utils/cli.py: which modules does it need, how deep is it?",
        f"Fetch today's report from {nowhere}/report and sum it up.",
    ]


def system_prompt(workspace: Workspace, inventory: str) -> str:
    """What the model is told about its job and its surroundings."""
    return (
        "You are a Host Agent on a developer's machine. Reach the user's goal with your tools; "
        "ask for several tools at once when they do not depend on each other. State only what the "
        "tools told you. When you are done, answer in plain text without a tool call; when the "
        "goal cannot be reached, call give_up with the reason.\n"
        f"Paths you can read begin with: {', '.join(workspace.names)}.\n"
        f"An inventory of the installed Python projects is served at {inventory} "
        "(GET /projects/NAME)."
    )


def summary(report: StepReport) -> str:
    """A step in one line: the calls it made, with their arguments when there is only one."""
    if not report.done:
        return "answers" if report.status == "succeeded" else "gives up"
    names = [done.asked.name for done in report.done]
    if len(names) == 1:
        arguments = ", ".join(f"{k}={v!r}" for k, v in report.done[0].asked.arguments.items())
        text = f"{names[0]}({arguments})"
    else:
        counts = {name: names.count(name) for name in dict.fromkeys(names)}
        text = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
        text += " in parallel"
    failed = [done.error for done in report.done if done.error]
    return f"{text}: {len(failed)} failed, {failed[0]}" if failed else text


def unused_port() -> int:
    """A port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(out: TextIO, text: str) -> None:
    print("\n".join(printable(line) for line in text.split("\n")), file=out, flush=True)
