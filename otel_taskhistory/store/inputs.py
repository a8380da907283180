# SPDX-License-Identifier: Apache-2.0
"""Pictures inside prompts, decisions and tool results, as rows of ``screenshots``.

A picture that is sent again with every prompt has one ``input`` row in its task, at the step whose
model call was the first to show it. Decisions and tool results that are pictures are ``output``.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from typing import Any, Final

from otel_taskhistory.store.times import iso

_REMEMBERED_NODES: Final = 50_000
"""How many nodes are known to have been looked at; what is forgotten is only looked at again."""

_PICTURES_OF_CONTENT: Final = """
SELECT artifact FROM _content_pictures WHERE content = ?1
UNION ALL
SELECT picture.artifact FROM _contents AS own, json_each(own.text) AS piece
JOIN _content_pictures AS picture ON picture.content = abs(piece.value)
WHERE own.id = ?1 AND own.template AND piece.type = 'integer'
"""

_INSERT: Final = """
INSERT INTO screenshots (task_id, step_id, role, sha256, path, media_type, width, height, bytes,
    captured_at, status, span, position, told, artifact)
SELECT task.task_id, step_span.span_id, ?1, art.sha256, art.path, art.media_type, art.width,
    art.height, art.bytes, ?2, art.status, own.id,
    (SELECT coalesce(max(position) + 1, 0) FROM screenshots WHERE span = own.id AND role = ?1),
    1, art.id
FROM _spans AS own, _artifacts AS art
LEFT JOIN tasks AS task ON task.id = ?3
LEFT JOIN _steps AS step ON step.id = ?4
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE own.id = ?5 AND art.id = ?6
"""


class InputPictures:
    """Writes these rows over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._looked_at: OrderedDict[tuple[int, int], int] = OrderedDict()

    def forget(self) -> None:
        """The transaction was rolled back: what was looked at in it must be again."""
        self._looked_at.clear()

    def of_calls(self, span: int) -> None:
        """Rows for the pictures in the prompts and decisions of a span's model calls."""
        for call in self._connection.execute(
            "SELECT prompt_node, prompt_text, decision_node, decision_text, task, step,"
            " started_ns, coalesce(ended_ns, started_ns) FROM _model_calls WHERE span = ?",
            (span,),
        ).fetchall():
            node, text, answer_node, answer_text, task, step, asked, answered = call
            if task is None:
                continue
            for artifact in self._pictures(task, node, text, asked):
                self._input(span, task, step, artifact, asked)
            for artifact in self._pictures(None, answer_node, answer_text, answered):
                self._output(span, task, step, artifact, answered)

    def of_result(self, span: int) -> None:
        """Rows for the pictures in the result of a tool call."""
        row = self._connection.execute(
            "SELECT result_content, task, step, coalesce(ended_ns, started_ns)"
            " FROM _tool_calls WHERE span = ?",
            (span,),
        ).fetchone()
        if row is None or row[0] is None or row[1] is None:
            return
        for (artifact,) in self._connection.execute(_PICTURES_OF_CONTENT, (row[0],)).fetchall():
            self._output(span, row[1], row[2], artifact, row[3])

    def _pictures(self, task: int | None, node: int | None, text: int | None, at: int) -> list[int]:
        """Artifacts in a prompt, in order; with a task only those not looked at before `at`."""
        if text is not None:
            return [row[0] for row in self._connection.execute(_PICTURES_OF_CONTENT, (text,))]
        contents: list[int] = []
        while node is not None:
            parent, content, pictures, before = self._connection.execute(
                "SELECT node.parent, node.content, node.pictures,"
                " coalesce(parent.pictures, 0) FROM _nodes AS node"
                " LEFT JOIN _nodes AS parent ON parent.id = node.parent WHERE node.id = ?",
                (node,),
            ).fetchone()
            if not pictures or (task is not None and self._was_looked_at(task, node, at)):
                break
            if pictures > before:
                contents.append(content)
            node = parent
        return [
            row[0]
            for content in reversed(contents)
            for row in self._connection.execute(_PICTURES_OF_CONTENT, (content,)).fetchall()
        ]

    def _was_looked_at(self, task: int, node: int, at: int) -> bool:
        known = self._looked_at.get((task, node))
        if known is not None and known <= at:
            return True
        self._looked_at[task, node] = at
        if len(self._looked_at) > _REMEMBERED_NODES:
            self._looked_at.popitem(last=False)
        return False

    def _input(self, span: int, task: int, step: int | None, artifact: int, at: int) -> None:
        known = self._connection.execute(
            "SELECT shot.id, shot.captured_at, own.span_id > mine.span_id, shot.span = mine.id"
            " FROM screenshots AS shot JOIN _spans AS own ON own.id = shot.span, _spans AS mine"
            " WHERE shot.artifact = ? AND shot.role = 'input' AND mine.id = ?"
            " AND shot.task_id = (SELECT task_id FROM tasks WHERE id = ?)",
            (artifact, span, task),
        ).fetchone()
        if known is not None:
            row, captured, later_id, same = known
            if same or (captured, later_id) < (iso(at), True):
                return
            self._connection.execute("DELETE FROM screenshots WHERE id = ?", (row,))
        self._insert("input", span, task, step, artifact, at)

    def _output(self, span: int, task: int, step: int | None, artifact: int, at: int) -> None:
        known = self._connection.execute(
            "SELECT 1 FROM screenshots WHERE span = ? AND role = 'output' AND artifact = ?",
            (span, artifact),
        ).fetchone()
        if known is None:
            self._insert("output", span, task, step, artifact, at)

    def _insert(self, role: str, span: int, task: int, step: Any, artifact: int, at: int) -> None:
        self._connection.execute(_INSERT, (role, iso(at), task, step, span, artifact))
