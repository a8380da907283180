# SPDX-License-Identifier: Apache-2.0
"""The steps of a task as a list, part by part."""

from __future__ import annotations

import json
import re
from typing import Final

from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import (
    brief,
    error_text,
    icon,
    short_tokens,
    thumbnail,
    tokens,
    took,
)
from otel_taskhistory.store.overview.steps import StepLine, StepList, step_list
from otel_taskhistory.store.overview.texts import cut_off
from otel_taskhistory.text import one_line

_PLAIN_NAME: Final = re.compile(
    r"step(?: -?[0-9]+)?|(?:chat|completion|text_completion|generate_content)(?: \S+)?",
    re.IGNORECASE,
)


def steps_fragment(history: TaskHistory, task_id: str, cursor: str | None, links: Links) -> str:
    """A part of the list of steps; `cursor` as `step_list` takes it, None for the first part.

    Raises:
        TaskNotFound: there is no such task.
        SettingsError: that is no cursor.
    """
    found = history.read(lambda c: step_list(c, task_id, cursor))
    task = history.task(task_id) if not found.lines else None
    whole_id = task.task_id if task is not None else found.lines[0].step.task_id
    return steps_markup(whole_id, found, links, None).markup


def steps_markup(task_id: str, found: StepList, links: Links, selected: str | None) -> Html:
    """The steps, and links to what comes before and after them."""
    before = after = None
    if found.before is not None:
        place = found.lines[0].step.step_id
        before = el(
            "li",
            el("a", "Earlier steps", href=links.task(task_id, place)),
            class_="more",
            data_load=links.steps(task_id, found.before),
            data_at="start",
        )
    if found.after is not None:
        place = found.lines[-1].step.step_id
        after = el(
            "li",
            el("a", "Later steps", href=links.task(task_id, place)),
            class_="more",
            data_load=links.steps(task_id, found.after),
            data_at="end",
        )
    return join(
        before, [step_item(line, links, selected, found.agent) for line in found.lines], after
    )


def step_item(
    line: StepLine, links: Links, selected: str | None = None, agent: str | None = None
) -> Html:
    """A step of the list."""
    step = line.step
    first, second = _words(line)
    why = brief(error_text(step.error, step.error_type), 200)
    picture = None
    if line.picture is not None:
        picture = thumbnail(line.picture, links, "")
    below: list[Node] = []
    if step.agent and step.agent != agent:
        below.append(el("span", brief(step.agent, 40), class_="agent"))
    if step.attempt > 1:
        below.append(el("span", f"attempt {step.attempt}", class_="tag"))
    if line.tools > 1:
        below.append(el("span", f"{line.tools} calls", class_="tag"))
    if line.failed_tools:
        below.append(el("span", f"{line.failed_tools} failed", class_="tag bad"))
    if second and not why:
        below.append(second)
    used = None
    if short_tokens(step):
        used = el("span", short_tokens(step), title=f"{tokens(step)} tokens", class_="used")
    status = step.status if step.status in STATUSES else "unknown"
    link = el(
        "a",
        el("span", icon(step.status), class_="c-icon"),
        el("span", str(step.step_index), class_="no"),
        el(
            "span",
            el("span", first, class_="first", dir="auto"),
            el("span", why, class_="why", dir="auto") if why else None,
            el("span", below, class_="second", dir="auto") if below else None,
            class_="what",
        ),
        el("span", picture, class_="c-shot"),
        el("span", took(step), used, class_="c-time"),
        el("span", f", {step.status}", class_="visually-hidden"),
        href=links.task(step.task_id, step.step_id),
        aria_current="step" if step.step_id == selected else None,
    )
    return el(
        "li",
        link,
        class_=f"step {status}",
        data_id=step.step_id,
        data_index=step.step_index,
        data_status=status,
        data_agent=step.agent,
    )


def _words(line: StepLine) -> tuple[Node, str]:
    """What a step did in two lines: its name or call, and what the model said."""
    step = line.step
    said = brief(line.said, 160)
    call: Node = None
    if step.tool_name is not None:
        call = [el("b", brief(step.tool_name, 60)), " ", _arguments(step.tool_arguments)]
    if is_named(step.name, step.model):
        name = el("span", brief(step.name, 100), class_="name")
        return ([name, " ", el("span", call, class_="call")] if call else name), said
    return (call, said) if call else (said or "(nothing)", "")


def is_named(name: str, model: str | None = None) -> bool:
    """Whether a step has a name that says something: not ``step 3``, not ``chat MODEL``."""
    flat = one_line(name)
    if model and flat.endswith(one_line(model)) and len(flat.split()) <= 2:
        return False
    return bool(flat) and _PLAIN_NAME.fullmatch(flat) is None


def _arguments(text: str | None) -> str:
    """Arguments of a call in a few words."""
    if text is None:
        return ""
    shown, whole = cut_off(text)
    if whole is None:
        try:
            parsed = json.loads(shown)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            return brief(
                ", ".join(
                    f"{name}={json.dumps(value, ensure_ascii=False)}"
                    for name, value in parsed.items()
                ),
                120,
            )
    return brief(text, 120)
