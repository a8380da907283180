# SPDX-License-Identifier: Apache-2.0
"""Where a history says something."""

from __future__ import annotations

from typing import Final

from otel_taskhistory.history import Hit, Hits, TaskHistory
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import brief, moment
from otel_taskhistory.pages.shell import document, notice
from otel_taskhistory.text import count, one_line

HITS: Final = 50


def search_page(history: TaskHistory, typed: str, links: Links) -> str:
    """The page of a search; `typed` as somebody typed it, which is never an error."""
    content: Node = el(
        "p",
        'All words must be in one value, in any order; "several words" in this order; book* with'
        " any ending.",
        class_="dim",
    )
    if typed.strip():
        content = _hits(history.search(typed, limit=HITS), typed, links)
    title = f"Search: {one_line(typed)[:60]}" if typed.strip() else "Search"
    main = join(el("h1", "Search"), content)
    return document(title, main, links, page="search", history=history, query=typed)


def _hits(hits: Hits, typed: str, links: Links) -> Html:
    notes: list[Node] = []
    if not hits:
        notes.append(el("p", "Nothing says ", el("b", brief(typed, 80)), ".", class_="lead"))
    elif hits.more:
        notes.append(
            el("p", f"The newest {count(len(hits), 'hit')}; there are more.", class_="dim")
        )
    else:
        notes.append(el("p", count(len(hits), "hit"), class_="dim"))
    if hits.indexing:
        notes.append(
            notice(
                "The search index is being made anew while an agent runs: older values may be"
                " missing (otel-taskhistory doctor --fix makes it now)."
            )
        )
    elif not hits.complete:
        notes.append(notice("The search ended before the oldest values: add a rarer word."))
    return join(notes, el("ol", [_hit(hit, links) for hit in hits], class_="hits"))


def _hit(hit: Hit, links: Links) -> Html:
    start, end = hit.match
    snippet = join(hit.snippet[:start], el("mark", hit.snippet[start:end]), hit.snippet[end:])
    label = one_line(hit.label)
    where = f"Step {hit.step_index} · {label}" if hit.step_index is not None else label
    return el(
        "li",
        el("a", where, href=links.task(hit.task_id, hit.step_id), class_="where"),
        el("span", brief(hit.goal, 120), class_="of-task", dir="auto") if hit.goal else None,
        el("div", snippet, class_="snippet", dir="auto"),
        el(
            "div",
            el("a", hit.task_id[:8], href=links.task(hit.task_id), class_="id"),
            el("span", f"{count(hit.times)} times") if hit.times > 1 else None,
            el("span", f"of {count(hit.value_length, 'character')}"),
            moment(hit.at, ago=True),
            class_="facts",
        ),
        class_="hit",
    )
