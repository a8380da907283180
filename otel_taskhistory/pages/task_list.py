# SPDX-License-Identifier: Apache-2.0
"""The list of tasks, newest first, to be scanned and filtered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.history import KINDS, STATUSES, TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import (
    brief,
    error_text,
    moment,
    outcome,
    short_tokens,
    thumbnail,
    tokens,
    took,
)
from otel_taskhistory.pages.shell import document, notice
from otel_taskhistory.store.overview.tasks import TaskLine, agents, task_lines
from otel_taskhistory.store.reader import TaskFilter, count_tasks
from otel_taskhistory.store.times import LATEST_NS
from otel_taskhistory.text import count
from otel_taskhistory.units import parse_moment

PER_PAGE: Final = 50
FILTERS: Final = ("status", "agent", "kind", "since", "until")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SINCE: Final = (("1h", "last hour"), ("24h", "last 24 hours"), ("7d", "last 7 days"))


@dataclass(slots=True)
class Wanted:
    """What was asked for, and what of it makes no sense."""

    which: TaskFilter
    given: dict[str, str]
    problems: list[str] = field(default_factory=list)


def task_list_page(history: TaskHistory, params: Mapping[str, str], links: Links) -> str:
    """The page.

    Args:
        params: ``status``, ``agent``, ``kind`` (``agent``, ``other`` or ``all``), ``since`` and
            ``until`` (as `parse_moment` reads them, UTC unless they say a zone), ``cursor``. With
            ``q`` it is the page of a search.
    """
    if params.get("q", "").strip():
        from otel_taskhistory.pages.search import search_page

        return search_page(history, params["q"], links)
    wanted = _wanted(params)
    names = history.read(agents)
    content: Node
    if wanted.problems:
        content = [notice(problem, "alarm") for problem in wanted.problems]
    else:
        try:
            content = _list(history, wanted, params.get("cursor") or None, links)
        except SettingsError as error:
            content = notice(str(error), "alarm")
    main = join(
        el("h1", "Tasks", class_="visually-hidden"),
        _filters(wanted, names, links),
        content,
    )
    return document("Tasks", main, links, page="tasks", history=history)


def _wanted(params: Mapping[str, str]) -> Wanted:
    given = {name: params[name].strip() for name in FILTERS if params.get(name, "").strip()}
    status, kind = given.get("status"), given.get("kind", "agent")
    problems = []
    if status is not None and status not in STATUSES:
        problems.append(f"There is no status {status!r}: use one of {', '.join(STATUSES)}.")
    if kind not in (*KINDS, "all"):
        problems.append(f"There is no kind {kind!r}: use agent, other or all.")
    times: dict[str, int] = {}
    for name in ("since", "until"):
        try:
            if name in given:
                times[name] = _moment_ns(given[name])
        except SettingsError as error:
            problems.append(f"{error}.")
    which = TaskFilter(
        status=status,
        since_ns=times.get("since"),
        until_ns=times.get("until"),
        agent=given.get("agent"),
        kind=None if kind == "all" else kind,
    )
    return Wanted(which, given, problems)


def _moment_ns(typed: str) -> int:
    """A time as typed, as ns since 1970.

    Raises:
        SettingsError: it is none.
    """
    ns = (parse_moment(typed, UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(max(ns, 0), LATEST_NS)


def _filters(wanted: Wanted, names: list[str], links: Links) -> Html:
    given = wanted.given

    def select(name: str, label: str, options: list[tuple[str, str]]) -> Html:
        chosen = given.get(name, "")
        if chosen and chosen not in [value for value, _ in options]:
            options = [*options, (chosen, chosen)]
        return el(
            "label",
            el("span", label),
            el(
                "select",
                [
                    el("option", shown, value=value, selected=value == chosen)
                    for value, shown in options
                ],
                name=name,
            ),
        )

    fields = [
        select("status", "Status", [("", "any"), *((status, status) for status in STATUSES)]),
        select("agent", "Agent", [("", "any"), *((name, brief(name, 40)) for name in names)]),
        select("since", "Begun", [("", "any time"), *_SINCE]),
        select("kind", "Kind", [("", "agents"), ("other", "other traces"), ("all", "all")]),
        el("button", "Filter", type="submit"),
        el("a", "Reset", href=links.task_list(), class_="reset") if given else None,
    ]
    if "until" in given:
        fields.append(el("input", type="hidden", name="until", value=given["until"]))
    return el("form", fields, action=links.task_list(), method="get", class_="filters")


def _list(history: TaskHistory, wanted: Wanted, cursor: str | None, links: Links) -> Html:
    page = history.read(lambda c: task_lines(c, wanted.which, PER_PAGE, cursor))
    if not page and cursor is None:
        return _nothing(wanted, links)
    total = len(page)
    if page.next or cursor:
        total = history.read(lambda c: count_tasks(c, wanted.which))
    shown = f"{count(len(page))} of {count(total)}" if total != len(page) else count(total)
    foot = el(
        "p",
        el("span", f"{shown} {'task' if total == 1 else 'tasks'}", class_="dim"),
        el("a", "Newest", href=links.task_list(**wanted.given)) if cursor else None,
        el(
            "a",
            f"Next {PER_PAGE}",
            href=links.task_list(**wanted.given, cursor=page.next),
            rel="next",
            class_="button",
        )
        if page.next
        else None,
        class_="paging",
    )
    heads = ("", "Goal", "Outcome", "Begun", "Took", "Steps", "Tokens in → out")
    return join(
        el("div", [el("span", head) for head in heads], class_="heads", aria_hidden="true"),
        el("ol", [_line(line, links) for line in page], class_="tasks"),
        foot,
    )


def _nothing(wanted: Wanted, links: Links) -> Html:
    if wanted.given:
        return el(
            "div",
            el("p", "No task is like that.", class_="lead"),
            el("p", el("a", "All tasks", href=links.task_list())),
            class_="empty",
        )
    return el(
        "div",
        el("p", "No task has been recorded yet.", class_="lead"),
        el(
            "p",
            "It appears here as soon as an agent begins one; ",
            el("code", "demo"),
            " makes some.",
        ),
        class_="empty",
    )


def _line(line: TaskLine, links: Links) -> Html:
    task = line.task
    goal = brief(task.goal, 240) if task.goal else "(no goal)"
    picture: Node = el("span", class_="thumb empty", aria_hidden="true")
    if line.picture is not None:
        picture = thumbnail(line.picture, links, "Last screenshot")
    facts = [
        el("span", task.agent, class_="agent", dir="auto") if task.agent else None,
        el("span", brief(task.model, 40), class_="model") if task.model else None,
        el("span", f"attempt {task.attempt}") if task.attempt > 1 else None,
        el("span", "pinned", class_="tag") if task.pinned else None,
    ]
    why = brief(error_text(task.error, task.error_type), 200)
    used = short_tokens(task)
    return el(
        "li",
        el("div", picture, class_="c-thumb"),
        el(
            "div",
            el("a", goal, href=links.task(task.task_id), class_="goal", dir="auto"),
            el("div", why, class_="why", dir="auto") if why else None,
            el("div", facts, class_="facts"),
            class_="c-goal",
        ),
        el("div", outcome(task.status), class_="c-outcome"),
        el("div", moment(task.started_at, ago=True), class_="c-when"),
        el("div", took(task), class_="c-took"),
        el("div", count(task.step_count), _unit("step", task.step_count), class_="c-steps"),
        el("div", used, _unit("token", 2) if used else None, title=tokens(task), class_="c-tokens"),
        class_=f"task {task.status if task.status in STATUSES else 'unknown'}",
    )


def _unit(noun: str, number: int) -> Html:
    return el("span", f" {noun}" + ("" if number == 1 else "s"), class_="unit")
