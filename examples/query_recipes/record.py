# SPDX-License-Identifier: Apache-2.0
"""``python -m examples.query_recipes.record``: a small history to try the recipes on.

It is recorded in ``OTEL_TASKHISTORY_DIRECTORY``, by our tracer with a simulated clock, so that it
and all answers are always the same.
"""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from PIL import Image, ImageDraw

from examples.fleet_parquet.simulated import Clock
from otel_taskhistory import Step, TaskHistoryExporter, TaskTracer

BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Act:
    """What a step does: it says something, uses a tool, and waits for both."""

    says: str
    tool: str
    arguments: dict[str, Any]
    answer: Any = None
    error: str | None = None
    tool_ms: float = 40
    model_ms: float = 900
    tokens: tuple[int, int] = (400, 30)


BOOKING = (
    Act("I look for free tables.", "browser.open", {"path": "/tables"}, "3 tables", None, 850),
    Act("I take the one at the window.", "browser.click", {"on": "window"}, "form", None, 210),
    Act("I send the form.", "browser.click", {"on": "Book"}, "code T101", None, 190),
)
INVOICE = (
    Act("I read the invoice.", "files.read", {"name": "17.pdf"}, "250 euro to Ada", None, 12),
    Act(
        "I hand it to the bank.",
        "http.post",
        {"path": "/payments", "euro": 250},
        error="TimeoutError: no answer within 5 s",
        tool_ms=5000,
        tokens=(900, 60),
    ),
)
LETTERS = (
    Act("I read the first letter.", "files.read", {"name": "a.txt"}, "4 pages", None, 15),
    Act("I read the second letter.", "files.read", {"name": "b.txt"}, "6 pages", None, 18),
    Act(
        "Both are read; I answer.",
        "mail.send",
        {"to": "tax office"},
        "sent",
        None,
        640,
        3100,
        (2600, 420),
    ),
)


def record(directory: Path) -> list[str]:
    """Record four tasks; returns their ids."""
    exporter = TaskHistoryExporter(directory, durability="normal")
    clock = Clock(exporter)
    clock.ns = int(BEGIN.timestamp()) * 10**9
    provider = TracerProvider()
    provider.add_span_processor(clock)
    tasks = TaskTracer(provider, exporter=exporter)
    try:
        return [
            _task(tasks, clock, "Book a table for two", "desk", "small-1", BOOKING),
            _task(tasks, clock, "Pay invoice 17", "clerk", "small-1", INVOICE),
            _task(tasks, clock, "Answer the letters", "clerk", "large-1", LETTERS),
            _task(tasks, clock, "Pay invoice 17 once more", "clerk", "small-1", INVOICE),
        ]
    finally:
        provider.shutdown()


def _task(
    tasks: TaskTracer, clock: Clock, goal: str, agent: str, model: str, acts: tuple[Act, ...]
) -> str:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You are the {agent}."},
        {"role": "user", "content": goal},
    ]
    with tasks.task(goal, agent=agent) as task:
        for number, act in enumerate(acts, start=1):
            with task.step(act.tool) as step:
                _step(step, clock, act, messages, model, f"{goal}: {act.says}")
            messages = [
                *messages,
                {"role": "assistant", "content": act.says},
                {"role": "user", "content": f"{act.tool} said: {act.error or act.answer}"},
            ]
            if number == 2 and acts is LETTERS:
                # As agents do when a conversation becomes long: a summary instead of what was said.
                note = {
                    "role": "user",
                    "content": "Summary: two letters, 10 pages, both about tax.",
                }
                messages = [*messages[:2], note]
            clock.wait(300)
        if acts[-1].error is None:
            task.result(acts[-1].answer)
        else:
            task.fail(acts[-1].error)
    clock.wait(60_000)
    return task.id


def _step(
    step: Step, clock: Clock, act: Act, messages: list[dict[str, Any]], model: str, shown: str
) -> None:
    step.prompt(messages, model=model)
    clock.wait(act.model_ms)
    given, made = act.tokens
    step.decision(act.says, usage={"input_tokens": given, "output_tokens": made})
    with step.tool_call(act.tool, act.arguments) as call:
        clock.wait(act.tool_ms)
        if act.error is None:
            call.result(act.answer)
        else:
            call.fail(act.error)
    if act.tool.startswith("browser."):
        step.screenshot(_picture(shown), caption=act.says)
    if act.error is None:
        step.result(act.answer)
    else:
        step.fail(act.error)


def _picture(text: str) -> bytes:
    image = Image.new("RGB", (420, 60), "white")
    ImageDraw.Draw(image).text((12, 22), text, fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


if __name__ == "__main__":
    folder = os.environ.get("OTEL_TASKHISTORY_DIRECTORY")
    if not folder:
        sys.exit("set OTEL_TASKHISTORY_DIRECTORY to a folder for this history: it is not yours")
    print(f"{len(record(Path(folder)))} tasks recorded")
