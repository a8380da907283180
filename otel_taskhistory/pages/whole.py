# SPDX-License-Identifier: Apache-2.0
"""A whole task, to be written to a file: its head, and its steps one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.pages.axis import as_json
from otel_taskhistory.pages.redaction import bare_head, bare_line, bare_view
from otel_taskhistory.store.overview.axis import axis_of
from otel_taskhistory.store.overview.step import StepView, step_view
from otel_taskhistory.store.overview.steps import StepLine, step_list
from otel_taskhistory.store.overview.tasks import TaskHead, task_head


@dataclass(frozen=True, slots=True)
class WholeTask:
    """A task of a history.

    Attributes:
        task_id: the whole id.
        redact: without contents: see `otel_taskhistory.pages.redaction`.
    """

    history: TaskHistory
    task_id: str
    redact: bool = False

    def head(self) -> TaskHead:
        """What stands at its top, nothing cut."""
        found = self.history.read(lambda c: task_head(c, self.task_id, None))
        return bare_head(found) if self.redact else found

    def axis(self) -> dict[str, object]:
        """Its bars, as `otel_taskhistory.pages.axis.axis` gives them."""
        found = as_json(self.history.read(lambda c: axis_of(c, self.task_id)))
        if self.redact:
            found["shots"] = {"sha256": [], "at": [], "step": []}
        return found

    def steps(self) -> Iterator[StepLine]:
        """Its steps as a list shows them."""
        cursor: str | None = None
        while True:
            part = self.history.read(partial(step_list, task_id=self.task_id, cursor=cursor))
            for line in part.lines:
                yield bare_line(line) if self.redact else line
            cursor = part.after
            if cursor is None:
                return

    def step(self, step_id: str, most: int | None = None) -> StepView:
        """One step; `most` bytes of each value, None for all."""
        view = self.history.read(lambda c: step_view(c, self.task_id, step_id, most=most))
        return bare_view(view) if self.redact else view

    def picture(self, sha256: str, path: str | None) -> bytes | None:
        """The bytes of a picture; None when its file is not there."""
        if path is None or self.redact:
            return None
        try:
            return self.history.artifact(path).read_bytes()
        except (OSError, ValueError):  # gone, or a path that is none of ours
            return None
