# SPDX-License-Identifier: Apache-2.0
"""The agent's loop, and all of its recording: look at the page, ask the model, act, look again."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from examples.browser_agent.browser import Tools
from examples.host_agent.model import (
    Asked,
    Message,
    Model,
    ModelError,
    asked_in,
    message_of,
    text_of,
)
from otel_taskhistory import Step, TaskTracer

SYSTEM = (
    "You work in a web browser. Reach the user's goal with your tools, one call at a time; each"
    " returns what the page shows then, with numbered elements. When you are done, answer in plain"
    " text without a tool call; when the goal cannot be reached, call give_up with the reason."
)
MAX_STEPS = 15


def carry_out(
    goal: str,
    *,
    model: Model,
    browser: Tools,
    tasks: TaskTracer,
    pictures: bool = True,
    say: Callable[[str], None] = print,
) -> str:
    """Carry out `goal`, recorded as a task.

    Args:
        goal: what to do.
        model: asked once a step.
        browser: on the page where the work begins.
        tasks: where it is recorded.
        pictures: show the model the page as a picture, too.
        say: told in one line what a step did.

    Returns:
        The id of the task.
    """
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{goal}\n\nThe page:\n{json.dumps(browser.look())}"},
    ]
    with tasks.task(goal, agent="browser-agent") as task:
        for _ in range(MAX_STEPS):
            if pictures:
                messages.append(_picture(browser.screenshot()))
            with task.step() as step:
                status, text = _turn(step, messages, model, browser, say)
            if status == "succeeded":
                task.result(text)
                return task.id
            if status == "failed":
                task.fail(text)
                return task.id
        task.fail(f"no answer after {MAX_STEPS} steps")
    return task.id


def _turn(
    step: Step, messages: list[Message], model: Model, browser: Tools, say: Callable[[str], None]
) -> tuple[str, str]:
    """One step: the task's status after it, and its answer or why there is none."""
    tools = browser.definitions()
    step.prompt(messages, model=model.name, tools=tools)
    try:
        reply = model.chat(messages, tools)
        message = message_of(reply)
        asked = asked_in(message)
    except ModelError as error:
        say(f"  {error}")
        step.fail(error)
        return "failed", str(error)
    step.decision(reply)
    messages.append(message)
    if not asked:
        answer = text_of(message)
        say(f"  answers: {answer}")
        step.result(answer)
        return "succeeded", answer
    failures = []
    for item in asked:
        if item.name == "give_up":
            reason = str(item.arguments.get("reason"))
            say(f"  gives up: {reason}")
            step.result(f"gave up: {reason}")
            return "failed", reason
        value, failure = _act(step, item, browser)
        messages.append(
            {"role": "tool", "tool_call_id": item.call_id, "content": json.dumps(value)}
        )
        shown = f"{item.name}({', '.join(f'{k}={v!r}' for k, v in item.arguments.items())})"
        say(f"  {shown}{f': failed, {failure}' if failure else ''}")
        # Of a failure, too: it is then that one wants to see what the page looked like.
        step.screenshot(browser.screenshot(), caption=f"after {shown}")
        failures += [failure] if failure else []
    if failures:
        step.fail(failures[0])
    else:
        step.result(browser.look()["title"])
    return "running", ""


def _act(step: Step, item: Asked, browser: Tools) -> tuple[Any, str | None]:
    """(what the model is told of one call, why it failed)."""
    try:
        with step.tool_call(f"browser.{item.name}", item.arguments, call_id=item.call_id) as call:
            if item.problem is not None:
                raise ValueError(item.problem)
            value = browser.run(item.name, item.arguments)
            call.result(value)
            return value, None
    except Exception as error:  # whatever it is, the model is told and decides what to do
        lines = str(error).splitlines() or [""]
        failure = f"{type(error).__name__}: {lines[0]}"
        # Playwright's log of what it tried says what lay in the way.
        detail = next((line.strip("- ") for line in lines if "intercepts pointer" in line), None)
        failure = f"{failure} ({detail})" if detail else failure
        return {"error": failure, "page": browser.look()}, failure


def _picture(shot: bytes) -> Message:
    """The page as the model sees it; the history keeps it once, however often it is sent."""
    address = f"data:image/png;base64,{base64.b64encode(shot).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}
