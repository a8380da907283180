# SPDX-License-Identifier: Apache-2.0
"""Every address on the pages: ours, below one base, all that was recorded in it quoted."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from otel_taskhistory.pages.html import Url


class Links:
    """Where things are.

    Args:
        base: where Datasette is mounted; ends with a slash.
        database: how Datasette calls the history; empty when its own pages are not served.
    """

    def __init__(self, base: str = "/", database: str = "") -> None:
        self.base = base if base.endswith("/") else f"{base}/"
        self.database = database

    def task_list(self, **params: str | None) -> Url:
        """The list of tasks; `params` are its filters."""
        return self._ours("", **params)

    def task(self, task_id: str, step_id: str | None = None) -> Url:
        """A task, with a step opened."""
        return self._ours(f"tasks/{_part(task_id)}", step=step_id)

    def steps(self, task_id: str, cursor: str | None = None) -> Url:
        """A part of the list of steps."""
        return self._ours(f"tasks/{_part(task_id)}/steps", cursor=cursor)

    def step(self, task_id: str, step_id: str, full: bool = False) -> Url:
        """A step by itself, with all of its prompt and values when `full`."""
        where = f"tasks/{_part(task_id)}/steps/{_part(step_id)}"
        return self._ours(where, full="1" if full else None)

    def axis(self, task_id: str) -> Url:
        """The bars of a task, as JSON."""
        return self._ours(f"tasks/{_part(task_id)}/axis.json")

    def film(self, task_id: str, cursor: str | None = None) -> Url:
        """A part of the pictures of a task."""
        return self._ours(f"tasks/{_part(task_id)}/film", cursor=cursor)

    def changes(self, task_id: str, after: int | None = None) -> Url:
        """What happened to a task after a number of the timeline, as JSON."""
        after_text = None if after is None else str(after)
        return self._ours(f"tasks/{_part(task_id)}/changes.json", after=after_text)

    def search(self, q: str | None = None) -> Url:
        """What says `q`."""
        return self._ours("search", q=q)

    def plots(self) -> Url:
        """Figures over many tasks."""
        return self._ours("plots")

    def artifact(self, sha256: str) -> Url:
        """A picture as it was recorded."""
        return self._ours(f"artifacts/{_part(sha256)}")

    def original(self, sha256: str) -> Url | None:
        """Where a picture opens by itself; None when it does not."""
        return self.artifact(sha256)

    def thumbnail(self, sha256: str, width: int | None = None) -> Url:
        """A small picture, of a width that there is (`thumbnails.SIZES`)."""
        wanted = None if width is None else str(width)
        return self._ours(f"thumbnails/{_part(sha256)}", w=wanted)

    def asset(self, name: str) -> Url:
        """A file of the pages themselves; its address changes with its content."""
        from otel_taskhistory.pages.assets import VERSIONS

        return self._ours(f"assets/{_part(name)}", v=VERSIONS[name])

    def table(self, name: str, **filters: str) -> Url:
        """Datasette's own page of a table or view; empty when there is none."""
        if not self.database:
            return Url("")
        query = f"?{urlencode(filters, errors='backslashreplace')}" if filters else ""
        return Url(f"{self.base}{_part(self.database)}/{_part(name)}{query}")

    def _ours(self, where: str, **params: str | None) -> Url:
        given = {name: value for name, value in params.items() if value}
        query = f"?{urlencode(given, errors='backslashreplace')}" if given else ""
        return Url(f"{self.base}-/taskhistory/{where}{query}")


def anchor(name: str) -> Url:
    """A place on the same page."""
    return Url(f"#{_part(name)}")


def _part(text: str) -> str:
    return quote(text, safe="", errors="backslashreplace")
