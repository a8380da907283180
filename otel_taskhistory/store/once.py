# SPDX-License-Identifier: Apache-2.0
"""Prompts of a task, written one after the other so that no message need be written twice.

A conversation sends all that was said before with every call, so whole prompts grow with the
square of a task's length. A prompt's messages are a chain of nodes that shares its beginning with
the prompts before it: what is new is the end of the chain, and one number says how much is not.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.store.rebuild import Texts

Place = tuple[str, int, int]
"""(span id, ordinal, messages): so many messages of the prompt of a model call."""

_PROMPTS: Final = """
SELECT own.span_id, call.ordinal, call.prompt_node, call.prompt_text
FROM tasks AS task
JOIN _spans AS at ON at.trace = task.trace AND at.span_id = :step_id
JOIN _steps AS step ON step.span = at.id AND step.task = task.id
JOIN _model_calls AS call ON call.step = step.id
JOIN _spans AS own ON own.id = call.span
WHERE task.task_id = :task_id AND call.twin_of IS NULL
    AND coalesce(call.prompt_node, call.prompt_text) IS NOT NULL
ORDER BY call.started_ns, own.span_id, call.ordinal
"""


@dataclass(frozen=True, slots=True)
class OncePrompt:
    """A prompt without what was written before it.

    Attributes:
        text: all of it, when it is plain text; else None.
        begins_as: how many of its messages are those of which call before it; None for none.
        messages: the ones after that, each as JSON.
        nodes: their nodes, for those that come after.
    """

    span_id: str
    ordinal: int
    text: str | None
    begins_as: Place | None
    messages: tuple[str, ...]
    nodes: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many messages the whole prompt has; 1 for plain text."""
        before = 0 if self.begins_as is None else self.begins_as[2]
        return 1 if self.text is not None else before + len(self.messages)


class Written:
    """Where each message was written that was written already."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}

    def prompts(
        self, connection: sqlite3.Connection, task_id: str, step_id: str
    ) -> list[OncePrompt]:
        """Those of a step, in the order of its calls; counts as written once `add` was told.

        Args:
            task_id, step_id: whole ids.
        """
        texts = Texts(connection)
        own: dict[int, Place] = {}
        prompts = []
        rows = connection.execute(_PROMPTS, {"task_id": task_id, "step_id": step_id}).fetchall()
        for span_id, ordinal, node, text in rows:
            if text is not None:
                whole = texts.content(text)
                prompts.append(OncePrompt(span_id, ordinal, whole, None, (), ()))
                continue
            prompt = self._prompt(connection, texts, (span_id, ordinal), node, own)
            own.update(_places(prompt))
            prompts.append(prompt)
        return prompts

    def add(self, prompts: list[OncePrompt]) -> None:
        """They are written."""
        for prompt in prompts:
            self._places.update(_places(prompt))

    def _prompt(
        self,
        connection: sqlite3.Connection,
        texts: Texts,
        call: tuple[str, int],
        node: int,
        own: dict[int, Place],
    ) -> OncePrompt:
        new: list[tuple[int, int]] = []
        at: int | None = node
        while at is not None and at not in self._places and at not in own:
            parent, content = connection.execute(
                "SELECT parent, content FROM _nodes WHERE id = ?", (at,)
            ).fetchone()
            new.append((at, content))
            at = parent
        new.reverse()
        return OncePrompt(
            *call,
            text=None,
            begins_as=None if at is None else own.get(at) or self._places[at],
            messages=tuple(texts.content(content) for _, content in new),
            nodes=tuple(one for one, _ in new),
        )


def _places(prompt: OncePrompt) -> dict[int, Place]:
    before = 0 if prompt.begins_as is None else prompt.begins_as[2]
    return {
        node: (prompt.span_id, prompt.ordinal, number)
        for number, node in enumerate(prompt.nodes, start=before + 1)
    }
