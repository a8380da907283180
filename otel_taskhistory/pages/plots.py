# SPDX-License-Identifier: Apache-2.0
"""Figures over many tasks, to be looked at; the numbers stand in tables below."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.shell import document
from otel_taskhistory.pages.svg import Series, bars, columns, legend
from otel_taskhistory.store.overview.plots import (
    CALLS,
    Day,
    ToolTimes,
    days,
    newest_task_ns,
    tool_times,
)
from otel_taskhistory.text import count, duration, one_line

DAYS: Final = 30
_WEEK: Final = 7


def plots_page(history: TaskHistory, links: Links) -> str:
    """Tokens and failures by day, and how long tools take."""
    newest = history.read(newest_task_ns)
    now = int(datetime.now(UTC).timestamp() * 1e9)
    # A history that was put away is shown as it was when it was in use.
    until = now if newest is None else max(min(now, newest + (DAYS - 1) * 86_400 * 10**9), newest)
    by_day = _from_first(history.read(lambda c: days(c, until, DAYS)))
    tools = history.read(tool_times)
    panels = [_tokens(by_day), _failures(by_day), _tools(tools)]
    main = join(el("h1", "Plots"), el("div", panels, class_="panels"))
    return document("Plots", main, links, page="plots", history=history)


def _from_first(by_day: list[Day]) -> list[Day]:
    """Without the days before the first task, but a week at least."""
    first = next((number for number, day in enumerate(by_day) if day.tasks), len(by_day))
    return by_day[min(first, len(by_day) - _WEEK) :]


def _panel(title: str, about: str, plot: Node, table: Node, class_: str = "plot-box") -> Html:
    return el(
        "section",
        el("h2", title),
        el("p", about, class_="dim"),
        el("div", plot, class_=class_),
        el("details", el("summary", "Numbers"), el("div", table, class_="scroll")),
        class_="panel",
    )


def _tokens(by_day: list[Day]) -> Html:
    labels = [day.day[5:] for day in by_day]
    series = [
        Series("input", "c-input", [day.input_tokens for day in by_day]),
        Series("output", "c-output", [day.output_tokens for day in by_day]),
    ]
    plot: Node = [
        legend([("input", "c-input"), ("output", "c-output")]),
        columns(labels, series, _amount, "Tokens by day"),
    ]
    if not any(day.input_tokens or day.output_tokens for day in by_day):
        plot = el("p", "No tokens were counted in these days.", class_="dim")
    rows = [
        (day.day, count(day.tasks), count(day.input_tokens), count(day.output_tokens))
        for day in reversed(by_day)
        if day.tasks
    ]
    table = _table(("Day (UTC)", "Tasks", "Input tokens", "Output tokens"), rows)
    return _panel(
        "Tokens by day",
        f"The last {DAYS} days, by when a task began (UTC).",
        plot,
        table,
        "plot-box days",
    )


def _failures(by_day: list[Day]) -> Html:
    labels = [day.day[5:] for day in by_day]
    series = [
        Series("failed", "c-failed", [day.failed for day in by_day]),
        Series("not failed", "c-good", [day.tasks - day.failed for day in by_day]),
    ]
    plot: Node = [
        legend([("failed or interrupted", "c-failed"), ("all other tasks", "c-good")]),
        columns(labels, series, _amount, "Tasks and failures by day"),
    ]
    if not any(day.tasks for day in by_day):
        plot = el("p", "There were no tasks in these days.", class_="dim")
    rows = [
        (day.day, count(day.tasks), count(day.failed), f"{100 * day.failed / day.tasks:.0f} %")
        for day in reversed(by_day)
        if day.tasks
    ]
    table = _table(("Day (UTC)", "Tasks", "Failed", "Share"), rows)
    return _panel(
        "Failures by day", "Tasks that failed or were interrupted.", plot, table, "plot-box days"
    )


def _tools(tools: list[ToolTimes]) -> Html:
    plot: Node = el("p", "No tool was called.", class_="dim")
    if tools:
        rows = [
            (one_line(tool.name)[:60] or "(no name)", tool.median_ms, tool.p95_ms) for tool in tools
        ]
        plot = [
            legend([("median", "median"), ("95 % within", "p95")]),
            bars(rows, duration, "How long tools take"),
        ]
    table = _table(
        ("Tool", "Calls", "Failed", "Median", "95 % within", "Longest"),
        [
            (
                one_line(tool.name)[:120],
                f"newest {count(tool.calls)}" if tool.capped else count(tool.calls),
                count(tool.failed),
                duration(tool.median_ms),
                duration(tool.p95_ms),
                duration(tool.longest_ms),
            )
            for tool in tools
        ],
    )
    about = f"Of each tool's newest {count(CALLS)} calls; the scale is logarithmic."
    return _panel("How long tools take", about, plot, table)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Html:
    return el(
        "table",
        el("thead", el("tr", [el("th", head, scope="col") for head in heads])),
        el(
            "tbody",
            [
                el("tr", el("th", row[0], scope="row"), [el("td", cell) for cell in row[1:]])
                for row in rows
            ],
        ),
        class_="numbers",
    )


def _amount(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"
