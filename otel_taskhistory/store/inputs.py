# SPDX-License-Identifier: Apache-2.0
"""Pictures inside prompts, decisions and tool results, as rows of ``screenshots``.

A picture that is sent again with every prompt has one ``input`` row in its task, at the step whose
model call was the first to show it. Decisions and tool results that are pictures are ``output``.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.store.times import iso

_REMEMBERED_TASKS: Final = 200
"""Of how many tasks it is known which nodes were looked at; others are only looked at again."""

_Moment = tuple[str, str]
"""When and by which span a picture was shown: ISO time and span id."""

_PICTURES_OF_CONTENT: Final = """
SELECT artifact FROM _content_pictures WHERE content = :content
UNION ALL
SELECT picture.artifact FROM _contents AS own, json_each(own.text) AS piece
JOIN _content_pictures AS picture ON picture.content = abs(piece.value)
WHERE own.id = :content AND own.template AND piece.type = 'integer'
"""

_CALLS: Final = """
SELECT call.span, own.span_id, call.ordinal, task.task_id, step_span.span_id, call.started_ns,
    coalesce(call.ended_ns, call.started_ns), call.prompt_node, call.prompt_text,
    call.decision_node, call.decision_text
FROM _spans AS own
JOIN _model_calls AS call ON call.span = own.id
JOIN tasks AS task ON task.id = call.task
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
LEFT JOIN _nodes AS asked ON asked.id = call.prompt_node
LEFT JOIN _nodes AS answered ON answered.id = call.decision_node
LEFT JOIN _contents AS question ON question.id = call.prompt_text
LEFT JOIN _contents AS answer ON answer.id = call.decision_text
WHERE {where} AND call.twin_of IS NULL
    AND max(coalesce(asked.pictures, 0), coalesce(answered.pictures, 0),
        coalesce(question.pictures, 0), coalesce(answer.pictures, 0)) > 0
"""

_RESULTS: Final = """
SELECT call.span, task.task_id, step_span.span_id, coalesce(call.ended_ns, call.started_ns),
    call.result_content
FROM _spans AS own
JOIN _tool_calls AS call ON call.span = own.id
JOIN tasks AS task ON task.id = call.task
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
JOIN _contents AS result ON result.id = call.result_content
WHERE {where} AND call.twin_of IS NULL AND result.pictures > 0
"""

_ROWS: Final = """
SELECT shot.id, shot.span, shot.role, shot.position, shot.task_id, shot.step_id, shot.artifact,
    shot.captured_at
FROM _spans AS own JOIN screenshots AS shot ON shot.span = own.id
WHERE {where} AND shot.role <> 'screenshot'
"""

_OF_TRACE: Final = "own.trace = ?"
_OF_SPAN: Final = "own.id = ?"

_INSERT: Final = """
INSERT INTO screenshots (span, role, position, task_id, step_id, captured_at, told, artifact,
    sha256, path, media_type, width, height, bytes, status)
SELECT ?, ?, ?, ?, ?, ?, 1, id, sha256, iif(status = 'not_stored', NULL, path), media_type, width,
    height, bytes, status
FROM _artifacts WHERE id = ?
"""


@dataclass(frozen=True, slots=True)
class _Call:
    """A model call with pictures, in the order of `_CALLS`."""

    span: int
    span_id: str
    ordinal: int
    task_id: str
    step_id: str | None
    started_ns: int
    answered_ns: int
    prompt_node: int | None
    prompt_text: int | None
    decision_node: int | None
    decision_text: int | None

    @property
    def moment(self) -> _Moment:
        return (iso(self.started_ns), self.span_id)

    @property
    def order(self) -> tuple[str, str, int]:
        return (*self.moment, self.ordinal)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a row of ``screenshots`` says."""

    span: int
    role: str
    position: int
    task_id: str
    step_id: str | None
    artifact: int
    captured_at: str


class InputPictures:
    """Writes these rows over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._looked_at: OrderedDict[str, dict[int, _Moment]] = OrderedDict()

    def forget(self) -> None:
        """The transaction was rolled back: what was looked at in it must be again."""
        self._looked_at.clear()

    def of_trace(self, trace: int) -> None:
        """Bring the rows of a whole trace up to date."""
        calls = sorted(self._calls(_OF_TRACE, trace), key=lambda call: call.order)
        wanted: list[_Row] = []
        shown: dict[str, set[int]] = defaultdict(set)
        positions: dict[int, int] = defaultdict(int)
        for task_id in {call.task_id for call in calls}:
            self._looked_at.pop(task_id, None)
        for call in calls:
            for artifact in self._news_in(call):
                if artifact in shown[call.task_id]:
                    continue
                shown[call.task_id].add(artifact)
                wanted.append(_input(call, artifact, positions[call.span]))
                positions[call.span] += 1
        wanted += self._outputs(_OF_TRACE, trace, calls)
        self._write(_OF_TRACE, trace, wanted, {"input", "output"})

    def of_span(self, span: int) -> None:
        """Bring the rows up to date after a span has come or has grown.

        A picture that a span showed before and does not any more needs `of_trace`.
        """
        if not self._has_any():
            return
        calls = sorted(self._calls(_OF_SPAN, span), key=lambda call: call.order)
        for call in calls:
            for artifact in self._news_in(call):
                self._show(call, artifact)
        self._write(_OF_SPAN, span, self._outputs(_OF_SPAN, span, calls), {"output"})

    def _has_any(self) -> bool:
        """Whether the history has any picture within a text: most agents send none."""
        found = self._connection.execute("SELECT 1 FROM _content_pictures LIMIT 1")
        return found.fetchone() is not None

    # --- what there is to show ---

    def _calls(self, where: str, value: int) -> Iterator[_Call]:
        for row in self._connection.execute(_CALLS.format(where=where), (value,)).fetchall():
            yield _Call(*row)

    def _news_in(self, call: _Call) -> list[int]:
        """The pictures in a prompt, in order, but for those in messages that an earlier one had."""
        if call.prompt_text is not None:
            return self._in_content(call.prompt_text)
        looked_at = self._looked_at.setdefault(call.task_id, {})
        self._looked_at.move_to_end(call.task_id)
        if len(self._looked_at) > _REMEMBERED_TASKS:
            self._looked_at.popitem(last=False)
        contents: list[int] = []
        for node, content in self._messages(call.prompt_node):
            known = looked_at.get(node)
            if known is not None and known <= call.moment:
                break  # then so were those before it
            looked_at[node] = call.moment
            if content is not None:
                contents.append(content)
        return [artifact for row in reversed(contents) for artifact in self._in_content(row)]

    def _messages(self, node: int | None) -> Iterator[tuple[int, int | None]]:
        """(node, content if it has pictures itself), the last message first."""
        while node is not None:
            parent, content, pictures, before = self._connection.execute(
                "SELECT node.parent, node.content, node.pictures,"
                " coalesce(parent.pictures, 0) FROM _nodes AS node"
                " LEFT JOIN _nodes AS parent ON parent.id = node.parent WHERE node.id = ?",
                (node,),
            ).fetchone()
            if not pictures:
                return
            yield node, content if pictures > before else None
            node = parent

    def _in_content(self, content: int) -> list[int]:
        found = self._connection.execute(_PICTURES_OF_CONTENT, {"content": content})
        return [row[0] for row in found.fetchall()]

    def _outputs(self, where: str, value: int, calls: list[_Call]) -> list[_Row]:
        wanted: list[_Row] = []
        shown: dict[int, set[int]] = defaultdict(set)

        def add(span: int, task_id: str, step_id: str | None, artifact: int, at: int) -> None:
            if artifact not in shown[span]:
                position = len(shown[span])
                shown[span].add(artifact)
                wanted.append(_Row(span, "output", position, task_id, step_id, artifact, iso(at)))

        for call in calls:
            contents = [content for _, content in self._messages(call.decision_node) if content]
            contents.reverse()
            if call.decision_text is not None:
                contents = [call.decision_text]
            for content in contents:
                for artifact in self._in_content(content):
                    add(call.span, call.task_id, call.step_id, artifact, call.answered_ns)
        results = self._connection.execute(_RESULTS.format(where=where), (value,)).fetchall()
        for span, task_id, step_id, at, content in results:
            for artifact in self._in_content(content):
                add(span, task_id, step_id, artifact, at)
        return wanted

    # --- rows ---

    def _show(self, call: _Call, artifact: int) -> None:
        """Make this call the one that showed the picture first, unless an earlier one did."""
        known = self._connection.execute(
            "SELECT shot.id, shot.captured_at, own.span_id"
            " FROM screenshots AS shot JOIN _spans AS own ON own.id = shot.span"
            " WHERE shot.artifact = ? AND shot.task_id = ? AND shot.role = 'input'",
            (artifact, call.task_id),
        ).fetchone()
        if known is not None:
            if call.moment >= known[1:]:
                return
            self._connection.execute("DELETE FROM screenshots WHERE id = ?", (known[0],))
        position = self._connection.execute(
            "SELECT coalesce(max(position) + 1, 0) FROM screenshots"
            " WHERE span = ? AND role = 'input'",
            (call.span,),
        ).fetchone()[0]
        self._insert(_input(call, artifact, position))

    def _write(self, where: str, value: int, wanted: list[_Row], roles: set[str]) -> None:
        """Make the rows of these roles those that are wanted."""
        missing = dict.fromkeys(wanted)
        for key, *said in self._connection.execute(_ROWS.format(where=where), (value,)).fetchall():
            row = _Row(*said)
            if row.role not in roles:
                continue
            if row in missing:
                del missing[row]
            else:
                self._connection.execute("DELETE FROM screenshots WHERE id = ?", (key,))
        for row in missing:
            self._insert(row)

    def _insert(self, row: _Row) -> None:
        values: tuple[Any, ...] = (row.span, row.role, row.position, row.task_id, row.step_id)
        self._connection.execute(_INSERT, (*values, row.captured_at, row.artifact))


def _input(call: _Call, artifact: int, position: int) -> _Row:
    at = iso(call.started_ns)
    return _Row(call.span, "input", position, call.task_id, call.step_id, artifact, at)
