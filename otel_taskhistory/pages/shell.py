# SPDX-License-Identifier: Apache-2.0
"""The frame of every page: head, bar with the search, help for the keyboard."""

from __future__ import annotations

from typing import Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links, anchor
from otel_taskhistory.store.schema import SCHEMA_VERSION
from otel_taskhistory.text import one_line

_KEYS: Final = (
    ("j", "↓", "next step"),
    ("k", "↑", "previous step"),
    ("f", "", "next failure"),
    ("Home", "", "first step"),
    ("End", "", "last step"),
    ("p", "", "the whole prompt of this step"),
    ("+", "−", "zoom the axis in, out"),
    ("0", "", "the whole task on the axis"),
    ("/", "", "search"),
    ("?", "", "this help"),
)


def document(
    title: str,
    main: Node,
    links: Links,
    *,
    page: str,
    history: TaskHistory | None = None,
    query: str = "",
) -> str:
    """A whole page.

    Args:
        title: of the window.
        main: its content.
        page: which one it is, for the script.
        history: whose owner is named.
        query: what stands in the search field.
    """
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{one_line(title)[:120]} · Task history"),
        el("link", rel="stylesheet", href=links.asset("page.css")),
        el("link", rel="icon", type="image/svg+xml", href=links.asset("icon.svg")),
        el("script", src=links.asset("page.js"), defer=True),
    )
    body = el(
        "body",
        el("a", "Skip to the content", href=anchor("main"), class_="skip"),
        _bar(links, page, history, query),
        _newer(history),
        el("main", main, id="main", tabindex="-1"),
        keyboard_help(),
        data_page=page,
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}"


def _newer(history: TaskHistory | None) -> Html | None:
    if history is None or history.identity.schema_version <= SCHEMA_VERSION:
        return None
    return notice("A newer version has written this history: what it added is not shown.")


def _bar(links: Links, page: str, history: TaskHistory | None, query: str) -> Html:
    def here(name: str) -> str | None:
        return "page" if page == name else None

    tables = links.table("tasks")
    owner = None if history is None else history.identity.owner
    return el(
        "header",
        el(
            "a",
            el("span", class_="mark", aria_hidden="true"),
            el("b", "Task history"),
            el("span", owner, class_="owner") if owner else None,
            href=links.task_list(),
            class_="brand",
        ),
        el(
            "nav",
            el("a", "Tasks", href=links.task_list(), aria_current=here("tasks")),
            el("a", "Plots", href=links.plots(), aria_current=here("plots")),
            el("a", "Tables", href=tables) if tables else None,
            aria_label="Pages",
        ),
        el(
            "form",
            el(
                "input",
                type="search",
                name="q",
                value=query,
                id="q",
                placeholder="Search everything",
                aria_label="Search goals, prompts, decisions, arguments, results and errors",
                autocomplete="off",
            ),
            el("kbd", "/", aria_hidden="true"),
            action=links.search(),
            method="get",
            role="search",
        ),
        el("button", "?", type="button", class_="help-button", aria_label="Keyboard help"),
        class_="bar",
    )


def keyboard_help() -> Html:
    """What the keys do; opened by the script."""
    rows = [
        el(
            "tr",
            el("td", el("kbd", key), [" ", el("kbd", other)] if other else None),
            el("td", what),
        )
        for key, other, what in _KEYS
    ]
    return el(
        "dialog",
        el("h2", "Keyboard", id="help-title"),
        el("table", el("tbody", rows)),
        el("form", el("button", "Close", autofocus=True), method="dialog"),
        id="help",
        aria_labelledby="help-title",
    )


def notice(message: Node, kind: str = "note") -> Html:
    """A line that stands out: ``note`` or ``alarm``."""
    return el("p", message, class_=f"notice {kind}", role="alert" if kind == "alarm" else "status")


def problem_page(title: str, message: str, links: Links, history: TaskHistory | None = None) -> str:
    """A page that says what went wrong and what to do."""
    main = join(
        el("h1", title),
        el("p", message, class_="lead", dir="auto"),
        el("p", el("a", "All tasks", href=links.task_list())),
    )
    return document(title, main, links, page="problem", history=history)
