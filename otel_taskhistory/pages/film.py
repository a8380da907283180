# SPDX-License-Identifier: Apache-2.0
"""The pictures of a task in the order of its steps."""

from __future__ import annotations

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.html import Html, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import thumbnail
from otel_taskhistory.store.overview.film import Film, film
from otel_taskhistory.text import one_line


def film_fragment(history: TaskHistory, task_id: str, cursor: str | None, links: Links) -> str:
    """A part of the pictures; `cursor` is what the part before gave, None for the first part.

    Raises:
        TaskNotFound: there is no such task.
        SettingsError: that is no cursor.
    """
    return film_markup(task_id, history.read(lambda c: film(c, task_id, cursor)), links).markup


def film_markup(task_id: str, found: Film, links: Links) -> Html:
    """The pictures as list items, and a link to what comes after them."""
    items = []
    for index, picture in found.pictures:
        label = f"Step {index}" if index is not None else "Outside of the steps"
        caption = f"{label}: {one_line(picture.caption)}" if picture.caption else label
        shown = [thumbnail(picture, links, caption), el("span", label, class_="label")]
        target = links.task(picture.task_id or task_id, picture.step_id)
        items.append(
            el("li", el("a", shown, href=target, data_step=picture.step_id), class_="frame")
            if picture.step_id
            else el("li", shown, class_="frame")
        )
    if not items and found.after is None:
        return el("li", "No pictures.", class_="dim")
    more = None
    if found.after is not None:
        where = links.film(task_id, found.after)
        more = el("li", el("a", "More pictures", href=where), class_="more", data_load=where)
    return join(items, more)
