# SPDX-License-Identifier: Apache-2.0
"""The page about a task that is not there, or is not the only one whose id begins so."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.html import Node, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.shell import document
from otel_taskhistory.text import local_time, one_line

_MOST: Final = 20
_ID: Final = re.compile(r"\b[0-9a-f]{8,}(?:-[0-9a-f]{1,16})?\b")

_BEGIN_SO: Final = """
SELECT task_id, status, agent, substr(goal, 1, 300), started_at FROM tasks
WHERE task_id >= :start AND task_id < :start || char(0x10ffff) ORDER BY task_id LIMIT :limit
"""


def unknown_task_page(history: TaskHistory, typed: str, message: str, links: Links) -> str:
    """The page.

    Args:
        history: where it was looked for.
        typed: what was taken for an id.
        message: what `TaskNotFound` says; the ids in it become links.

    Raises:
        TaskHistoryError: the history cannot be read.
    """
    wanted = typed.strip().lower()
    found = history.read(lambda connection: _beginning_with(connection, wanted)) if wanted else []
    several: Node = None
    if found:
        several = el(
            "ul",
            [
                el(
                    "li",
                    el("a", task_id, href=links.task(task_id)),
                    f" · {status} · {local_time(started_at)}",
                    f" · {agent}" if agent else None,
                    el("br"),
                    one_line(goal or "")[:160],
                )
                for task_id, status, agent, goal, started_at in found[:_MOST]
            ],
            el("li", "…") if len(found) > _MOST else None,
        )
    main = join(
        el("h1", "Which task?" if found else "No such task"),
        el("p", _with_links(message, typed, links), class_="lead", dir="auto"),
        several,
        el("p", el("a", "All tasks", href=links.task_list())),
    )
    return document("No such task", main, links, page="problem", history=history)


def _beginning_with(connection: sqlite3.Connection, wanted: str) -> list[tuple[str, ...]]:
    values = {"start": wanted, "limit": _MOST + 1}
    return connection.execute(_BEGIN_SO, values).fetchall()


def _with_links(message: str, typed: str, links: Links) -> list[Node]:
    """The message, the ids in it as links; what was typed stands in it too, and leads nowhere."""
    quoted = message.find(repr(typed.strip()))
    end = quoted + len(repr(typed.strip())) if quoted >= 0 else 0
    pieces: list[Node] = [message[:end]]
    for match in _ID.finditer(message, end):
        pieces += [message[end : match.start()], el("a", match[0], href=links.task(match[0]))]
        end = match.end()
    return [*pieces, message[end:]]
