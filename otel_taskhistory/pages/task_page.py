# SPDX-License-Identifier: Apache-2.0
"""A task: what it was for and what became of it, its axis, its steps, and one of them whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from otel_taskhistory.errors import TaskNotFound
from otel_taskhistory.history import Task, TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import (
    brief,
    error_text,
    icon,
    lasted,
    long_text,
    moment,
    outcome,
    tokens,
    took,
)
from otel_taskhistory.pages.shell import document, notice
from otel_taskhistory.pages.step_list import is_named, steps_markup
from otel_taskhistory.pages.step_pane import step_markup
from otel_taskhistory.store.overview.step import StepView, step_view
from otel_taskhistory.store.overview.steps import (
    StepList,
    first_step,
    last_step,
    step_list,
    steps_around,
)
from otel_taskhistory.store.overview.tasks import TaskHead, task_head
from otel_taskhistory.text import count, one_line

_RESULT: Final = (500, 4)
"""Characters and lines of a result that stand at the top unfolded."""


def task_page(history: TaskHistory, task_id: str, links: Links, step_id: str | None = None) -> str:
    """The page.

    Args:
        task_id: an id, the beginning of one, or ``latest``.
        step_id: which step is opened; None for what `opens_at` says.

    Raises:
        TaskNotFound: there is no such task, or several.
    """
    head = history.read(lambda c: task_head(c, task_id))
    whole_id = head.task.task_id
    problem: Node = None
    found: StepList | None = None
    if step_id is not None:
        wanted = step_id
        try:
            found = history.read(lambda c: steps_around(c, whole_id, wanted))
        except TaskNotFound as error:
            problem, step_id = notice(f"{error}.", "alarm"), None
    if step_id is None:
        step_id = opens_at(
            head,
            lambda: history.read(lambda c: first_step(c, whole_id)),
            lambda: history.read(lambda c: last_step(c, whole_id)),
        )
    if found is None and step_id is not None:
        chosen = step_id
        found = history.read(lambda c: steps_around(c, whole_id, chosen))
    elif found is None:
        found = history.read(lambda c: step_list(c, whole_id, None))
    view = None
    if step_id is not None:
        shown = step_id
        view = history.read(lambda c: step_view(c, whole_id, shown))
    main = task_markup(head, found, view, links, problem)
    title = brief(head.task.goal or whole_id, 80)
    return document(title, main, links, page="task", history=history)


def opens_at(
    head: TaskHead, first: Callable[[], str | None], last: Callable[[], str | None]
) -> str | None:
    """The step that a task opens at: where one looks first.

    Of a task that failed or was interrupted the first step that did, of a running one the newest,
    of any other the first.

    Args:
        first, last: give the id of its first and of its last step; None when there is none.
    """
    if head.task.status in ("failed", "interrupted") and head.first_failed is not None:
        return head.first_failed[0]
    return last() if head.task.status == "running" else first()


def task_markup(
    head: TaskHead, found: StepList, view: StepView | None, links: Links, problem: Node = None
) -> Html:
    """The content of the page."""
    task = head.task
    return join(
        problem,
        head_markup(head, links),
        axis_markup(task, links),
        el(
            "div",
            _steps(task, found, view, links),
            el(
                "div",
                step_markup(view, links) if view is not None else el("p", "No step.", class_="dim"),
                id="pane",
                role="region",
                aria_label="The step that is chosen",
            ),
            class_="split",
        ),
    )


def _steps(task: Task, found: StepList, view: StepView | None, links: Links) -> Html:
    selected = None if view is None else view.step.step_id
    follow = None
    if task.status == "running":
        follow = el(
            "button", "Follow", type="button", id="follow", aria_pressed="false", hidden=True
        )
    empty = el("p", "No steps were recorded.", class_="dim") if not found.lines else None
    return el(
        "section",
        el(
            "div",
            el(
                "h2",
                el("span", count(found.total), id="step-count"),
                el("span", " step" if found.total == 1 else " steps", id="step-unit"),
            ),
            follow,
            class_="section-head",
        ),
        empty,
        el("ol", steps_markup(task.task_id, found, links, selected), id="steps", class_="steps"),
        class_="step-list",
        aria_label="Steps",
    )


def axis_markup(task: Task, links: Links, saved: str | None = None) -> Html:
    """Where the script draws; without it there is a link to all pictures.

    Args:
        saved: the bars as JSON, on a page that has no server to ask.
    """
    buttons = [
        el("button", sign, type="button", data_zoom=what, aria_label=label, title=label)
        for sign, what, label in (
            ("−", "out", "Zoom out (−)"),
            ("+", "in", "Zoom in (+)"),
            ("Fit", "fit", "The whole task (0)"),
        )
    ]
    return el(
        "section",
        el(
            "div",
            el("h2", "Time"),
            el("span", class_="legend", aria_hidden="true"),
            el("div", buttons, class_="buttons", role="group", aria_label="Zoom"),
            class_="section-head",
        ),
        el("div", class_="strip", id="strip", aria_hidden="true"),
        el("div", el("canvas", role="img", aria_label="Bars of time"), class_="canvas", id="bars"),
        el("p", class_="axis-note dim", id="axis-note", hidden=True),
        el("details", el("summary", "Longest first"), el("div", id="longest"), class_="longest"),
        _film(task, links) if saved is None else None,
        id="axis",
        class_="axis",
        aria_label="Time axis",
        data_json=saved,
        data_axis=links.axis(task.task_id) if saved is None else None,
        data_thumbnails=links.thumbnail("") if saved is None else None,
    )


def _film(task: Task, links: Links) -> Html:
    where = links.film(task.task_id)
    first = el("li", el("a", "Pictures", href=where), class_="more", data_load=where)
    return el(
        "details",
        el("summary", "All pictures"),
        el("ol", first, class_="film"),
        class_="film-box",
    )


def head_markup(head: TaskHead, links: Links) -> Html:
    """Goal and outcome; what failed is plain to see, and a click away."""
    task = head.task
    return el(
        "section",
        el(
            "div",
            outcome(task.status),
            el("span", "live", class_="live", id="live", hidden=True)
            if task.status == "running"
            else None,
            el("h1", task.goal or "(no goal)", class_="goal", dir="auto"),
            class_="title",
        ),
        _failure(head, links),
        _result(task),
        _facts(head, links),
        id="task-head",
        class_="task-head",
        data_id=task.task_id,
        data_status=task.status,
        data_seq=head.seq,
        data_task=links.task(task.task_id),
        data_steps=links.steps(task.task_id),
        data_changes=links.changes(task.task_id),
    )


def _failure(head: TaskHead, links: Links) -> Node:
    task = head.task
    why = error_text(task.error, task.error_type)
    go: Node = None
    if head.first_failed is not None:
        step_id, index, name = head.first_failed
        named = f" ({one_line(name)[:60]})" if is_named(name) else ""
        number = sum(head.steps_by_status.get(bad, 0) for bad in ("failed", "interrupted"))
        what = "the failed step" if number == 1 else f"the first of {count(number)} failed steps"
        go = el(
            "a",
            icon("failed"),
            f" Go to {what}: step {index}{named}",
            href=links.task(task.task_id, step_id),
            class_="button go-failed",
            data_step=step_id,
            data_index=index,
        )
    if task.status in ("failed", "interrupted", "cancelled"):
        words: Node = long_text(why, None) if why else None
        if task.status == "interrupted" and not why:
            words = el("p", "The process that ran it is gone.")
        if words is None and go is None:
            return None
        return el(
            "div", words, go, class_="failure" if task.status != "cancelled" else "failure mild"
        )
    return el("div", go, class_="failure mild") if go is not None else None


def _result(task: Task) -> Node:
    if task.result is None:
        return None
    return el(
        "div", el("h2", "Result"), long_text(task.result, None, limit=_RESULT), class_="task-result"
    )


def _facts(head: TaskHead, links: Links) -> Html:
    task = head.task
    by_status = [
        join(icon(status), f" {count(number)} {status} ")
        for status, number in sorted(head.steps_by_status.items(), key=lambda one: -one[1])
    ]
    steps: Node = [count(task.step_count)]
    if len(by_status) > 1:
        steps = [count(task.step_count), " ", el("span", by_status, class_="by-status")]
    ended: Node = moment(task.ended_at)
    if task.status == "interrupted" and task.ended_at:
        ended = ["last seen ", moment(task.ended_at)]
    conversation = None
    if task.conversation_id:
        conversation = el("span", task.conversation_id, class_="id")
    rows: list[tuple[str, Node]] = [
        ("Begun", moment(task.started_at, ago=True)),
        ("Ended", ended),
        ("Took", took(task) if lasted(task) else None),
        ("Steps", steps),
        ("Agent", el("span", task.agent, dir="auto") if task.agent else None),
        ("Model", el("span", task.model, dir="auto") if task.model else None),
        ("Tokens", tokens(task) or None),
        ("Cost", f"{task.cost:.6g}" if task.cost is not None else None),
        ("Attempts", str(task.attempt) if task.attempt > 1 else None),
        ("Conversation", conversation),
        ("Begun by", _other(head.parent, task.parent_task_id, links)),
        ("Began", [_other(child, None, links) for child in head.children] or None),
        ("Key", el("span", task.key, class_="id") if task.key else None),
        ("Pinned", "yes" if task.pinned else None),
        ("Cut off", _dropped(task)),
        ("Id", el("span", task.task_id, class_="id")),
    ]
    return el(
        "dl",
        [el("div", el("dt", label), el("dd", value)) for label, value in rows if value is not None],
        class_="facts-grid",
    )


def _dropped(task: Task) -> str | None:
    if not task.dropped:
        return None
    what = count(task.dropped, "attribute, event or link", "attributes, events or links")
    return f"{what} by the SDK's limits"


def _other(task: Task | None, task_id: str | None, links: Links) -> Node:
    """A parent or child; only its id where it is not in this history."""
    if task is None:
        return el("span", task_id, class_="id") if task_id else None
    return el(
        "a",
        icon(task.status),
        " ",
        brief(task.goal or task.task_id, 80),
        el("span", f", {task.status}", class_="visually-hidden"),
        href=links.task(task.task_id),
        class_="other-task",
    )
