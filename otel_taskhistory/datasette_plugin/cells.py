# SPDX-License-Identifier: Apache-2.0
"""Cells on Datasette's own pages: ids lead to tasks, pictures are seen, long text is folded.

Nothing here becomes markup by accident (see `pages.html`), and of a long value only its beginning
is put on the page, with its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from otel_taskhistory.datasette_plugin.pictures import HASH
from otel_taskhistory.pages.html import Html, Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.text import count, one_line

_TASK: Final = re.compile(r"[0-9a-f]{32}(?:-[0-9a-f]{16})?")
_STEP: Final = re.compile(r"[0-9a-f]{16}")
_PATH: Final = re.compile(r"[0-9a-f]{2}/([0-9a-f]{64})\.[a-z0-9]{1,8}")

_SHORT: Final = 160
"""Characters that a cell shows; a text that is not much longer is shown whole."""
_LABEL: Final = 80
"""Characters of a goal that stands for a task."""
_FOLDED: Final = 4_000
"""Characters that are on the page, folded; the rest is on the task page and in the JSON."""
_PARSED: Final = 100_000
"""Longer JSON is shown as it is stored: laying it out would take longer than the page."""


def cell(links: Links, column: str, value: Any, row: Callable[[str], Any]) -> Html | None:
    """What stands in a cell, or None for what Datasette makes of it.

    Args:
        links: addresses of the history's pages.
        column: its name, ours or of somebody's SQL.
        value: what is in it.
        row: gives another column of the same row, None when there is none of that name.
    """
    label = None
    if isinstance(value, dict):  # what a foreign key leads to, as Datasette puts it
        value, label = value.get("value"), value.get("label")
        if column != "task_id":  # a row of a table behind the public ones: nothing to look at
            return join(str(value))
    if not isinstance(value, str):
        return None
    made = _link(links, column, value, row, label) or _picture(links, column, value, row)
    if made is not None:
        return made
    if len(value) <= _SHORT + _SHORT // 4 and "\n" not in value:
        return join(value) if value else None
    return _folded(links, value, row)


def _link(
    links: Links, column: str, value: str, row: Callable[[str], Any], label: Any
) -> Html | None:
    if column in ("task_id", "parent_task_id") and _TASK.fullmatch(value):
        goal = one_line(str(label))[:_LABEL] if label else None
        return el("a", goal or value, href=links.task(value), title=value if goal else None)
    if column == "step_id" and _STEP.fullmatch(value):
        task_id = row("task_id")
        if isinstance(task_id, str) and _TASK.fullmatch(task_id):
            return el("a", value, href=links.task(task_id, value))
    return None


def _picture(links: Links, column: str, value: str, row: Callable[[str], Any]) -> Html | None:
    if column == "sha256" and HASH.fullmatch(value):
        if row("path") is None and row("status") is not None:  # no file was written
            return None
        sha256 = value
    elif column in ("screenshot", "path"):
        found = _PATH.fullmatch(value)
        if found is None or (column == "path" and row("sha256") is not None):
            return None
        sha256 = found[1]
    else:
        return None
    small = el(
        "img", src=links.thumbnail(sha256), alt=f"picture {sha256[:8]}", loading="lazy", width="160"
    )
    return el("a", small, href=links.artifact(sha256), class_="taskhistory-picture")


def _folded(links: Links, value: str, row: Callable[[str], Any]) -> Html:
    head = one_line(value[: _SHORT * 2])
    head = head if len(value) <= _SHORT and len(head) <= _SHORT else f"{head[:_SHORT].rstrip()}…"
    laid_out = _laid_out(value)
    shown = laid_out[:_FOLDED]
    rest: Node = None
    if len(laid_out) > len(shown):
        task_id, step_id = row("task_id"), row("step_id")
        said = f"the first {count(len(shown))} of {count(len(laid_out), 'character')}"
        where: Node = None
        if isinstance(task_id, str) and _TASK.fullmatch(task_id):
            step = step_id if isinstance(step_id, str) and _STEP.fullmatch(step_id) else None
            where = [": ", el("a", "all of it", href=links.task(task_id, step))]
        rest = el("p", said, where)
    return el(
        "details",
        el("summary", head, " ", el("small", count(len(value), "character"))),
        el("pre", shown),
        rest,
        class_="taskhistory-long",
    )


def _laid_out(value: str) -> str:
    """JSON on several lines; anything else as it is."""
    if len(value) > _PARSED or not value.startswith(("{", "[")):
        return value
    try:
        return json.dumps(json.loads(value), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return value
