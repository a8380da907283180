# SPDX-License-Identifier: Apache-2.0
"""Searches a history, newest values first, and says where each came first and how often.

The index only says which values may match; each is looked at before it is shown, and so is what
has been committed but not indexed yet. Values that nothing visible uses are passed over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

from otel_taskhistory.store.search.documents import (
    What,
    contents_of,
    part_of,
    parts_of,
    text_of_content,
    texts_of,
)
from otel_taskhistory.store.search.words import Query, parse
from otel_taskhistory.store.times import iso

MOST_LOOKED_AT: Final = 20_000
"""Values that one search looks at; beyond, it says that it has not seen all."""

_MOST_WAITING: Final = 5_000
_MOST_CHARACTERS: Final = 64 * 2**20
_USES: Final = 10_000
"""Lists of messages that are followed to count how often one was sent."""

_AROUND: Final = 80
"""Characters shown on each side of a match."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A value in which all that was asked for stands.

    Attributes:
        field: what it is: ``goal``, ``name``, ``prompt``, ``decision``, ``arguments``, ``result``
            or ``error``.
        task_id, step_id, step_index: where it came first; no step for what belongs to the task.
        seq: the record of the timeline that tells of it.
        at: when that was, UTC.
        times: how often it stands in the history, at least: in how many prompts, say.
        snippet: what stands around the first match, white space as it is.
        match: where in the snippet the match begins and ends.
        value_length: characters of the whole value.
    """

    field: str
    task_id: str
    step_id: str | None
    step_index: int | None
    seq: int | None
    at: str
    times: int
    snippet: str
    match: tuple[int, int]
    value_length: int


@dataclass(frozen=True, slots=True)
class Hits(Sequence[Hit]):
    """What was found, the newest value first.

    Attributes:
        more: whether there are more than were asked for.
        complete: whether all values were looked at; if not, there may be older hits.
    """

    hits: tuple[Hit, ...]
    more: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]


@dataclass(frozen=True, slots=True)
class _Use:
    """A row that holds a value; sorted, the first one is where it came first."""

    at_ns: int
    rank: int
    what: What
    row: int
    field: str


def search(connection: sqlite3.Connection, typed: str, limit: int) -> Hits:
    """What matches all that was typed.

    Args:
        typed: words, in any order; ``"several words"`` for these in a row; ``book*`` for any
            ending. Nothing in it is an error.
        limit: hits at most.
    """
    query = parse(typed)
    if not query.chunks:
        return Hits((), False, True)
    hits: dict[int, Hit] = {}
    """By their text: a decision and the message that it is in later prompts are one."""
    seen: set[tuple[What, int]] = set()
    looked, characters = 0, 0
    for what, row, text in _candidates(connection, query):
        looked += 1
        characters += len(text)
        if looked > MOST_LOOKED_AT or characters > _MOST_CHARACTERS:
            return _found(hits, limit, complete=False)
        if (what, row) in seen or not query.is_in(text):
            continue
        seen.add((what, row))
        hit = _hit(connection, query, what, row, text)
        if hit is None:
            continue
        key = hash(text) if what is What.CONTENT else hash((what, row))
        if any(_repeats(other, hit) for other in hits.values()):
            continue
        hits[key] = _together(hits.get(key), hit)
        if len(hits) > limit:
            break
    return _found(hits, limit, complete=True)


def _found(hits: dict[int, Hit], limit: int, *, complete: bool) -> Hits:
    return Hits(tuple(hits.values())[:limit], len(hits) > limit, complete)


def _repeats(known: Hit, hit: Hit) -> bool:
    """Whether both are the error of one step: an exception ends its model call or tool call too."""
    if known.step_id is None or (known.field, hit.field) != ("error", "error"):
        return False
    same = (known.task_id, known.step_id) == (hit.task_id, hit.step_id)
    return same and (known.snippet.endswith(hit.snippet) or hit.snippet.endswith(known.snippet))


def _together(known: Hit | None, hit: Hit) -> Hit:
    """Two values of the same text, as one that came when the earlier one did."""
    if known is None:
        return hit
    first = min(known, hit, key=lambda one: one.at)
    return replace(first, times=known.times + hit.times)


# --- what may match -----------------------------------------------------------------------------


def _candidates(connection: sqlite3.Connection, query: Query) -> Iterator[tuple[What, int, str]]:
    """(kind, row, text) of what may match, the newest first."""
    yield from _waiting(connection)
    match = query.match
    if match is None:  # no word in it: nothing to look up
        rows = connection.execute(
            "SELECT id, content, part, what, row, text FROM _documents ORDER BY id DESC"
        )
    else:
        rows = connection.execute(
            "SELECT document.id, document.content, document.part, document.what, document.row,"
            " document.text FROM _words JOIN _documents AS document ON document.id = _words.rowid"
            " WHERE _words MATCH ? ORDER BY _words.rowid DESC",
            (match,),
        )
    for _, content, part, what, row, kept in rows:
        if content is None:
            yield What(what), row, kept
            continue
        text = text_of_content(connection, content)
        piece = None if text is None else part_of(text, part)
        if piece is not None:
            yield What.CONTENT, content, piece


def _waiting(connection: sqlite3.Connection) -> Iterator[tuple[What, int, str]]:
    """What is committed but not indexed yet; a writer works it off within moments."""
    walked: set[int] = set()
    rows = connection.execute(
        "SELECT what, row FROM _unindexed ORDER BY what DESC, row DESC LIMIT ?", (_MOST_WAITING,)
    ).fetchall()
    for number, row in rows:
        what = What(number)
        if what is What.CONTENT:
            contents = [row]
        else:
            said = texts_of(connection, what, row)
            if said:
                yield what, row, "\n".join(said.values())
            contents = list(contents_of(connection, what, row, walked))
        for content in [*contents, *(p for one in contents for p in parts_of(connection, one))]:
            text = text_of_content(connection, content)
            if text:
                yield What.CONTENT, content, text


# --- where it stands ----------------------------------------------------------------------------


def _hit(
    connection: sqlite3.Connection, query: Query, what: What, row: int, text: str
) -> Hit | None:
    if what is What.CONTENT:
        uses = _uses(connection, row)
        shown = text
    else:
        said = texts_of(connection, what, row)
        if not said:
            return None
        matching = [name for name, value in said.items() if query.is_in(value)]
        field = next(iter(matching or [n for n, v in said.items() if query.first_in(v)]), None)
        if field is None:
            return None
        uses = [_Use(0, 0, what, row, field)]
        shown = said[field]
    for use in uses:
        place = _place(connection, use)
        if place is not None:
            snippet, match = _snippet(query, shown)
            return Hit(use.field, *place, len(uses), snippet, match, len(shown))
    return None


_CONTENT: Final = """
WITH above AS (
    SELECT ?1 AS id
    UNION SELECT content FROM _content_parts WHERE child = ?1
    UNION SELECT upper.content FROM _content_parts AS lower
        JOIN _content_parts AS upper ON upper.child = lower.content WHERE lower.child = ?1
)
"""

_HELD: Final = f"""{_CONTENT}
SELECT coalesce(ended_ns, started_ns), 1, {int(What.TOOL_CALL)}, call.id, 'result'
FROM above JOIN _tool_calls AS call ON call.result_content = above.id
UNION ALL
SELECT started_ns, 2, {int(What.TOOL_CALL)}, call.id, 'arguments'
FROM above JOIN _tool_calls AS call ON call.arguments_content = above.id
UNION ALL
SELECT coalesce(ended_ns, started_ns), 3, {int(What.STEP)}, step.id, 'result'
FROM above JOIN _steps AS step ON step.result_content = above.id
UNION ALL
SELECT coalesce(ended_ns, started_ns), 0, {int(What.MODEL_CALL)}, call.id, 'decision'
FROM above JOIN _model_calls AS call ON call.decision_text = above.id
UNION ALL
SELECT started_ns, 4, {int(What.MODEL_CALL)}, call.id, 'prompt'
FROM above JOIN _model_calls AS call ON call.prompt_text = above.id
"""

_LISTED: Final = f"""
WITH RECURSIVE {_CONTENT.strip().removeprefix("WITH ")},
lists (node) AS (
    SELECT node.id FROM above JOIN _nodes AS node ON node.content = above.id
    UNION
    SELECT longer.id FROM lists JOIN _nodes AS longer ON longer.parent = lists.node
    ORDER BY 1 LIMIT {_USES}
)
SELECT coalesce(call.ended_ns, call.started_ns), 0, {int(What.MODEL_CALL)}, call.id, 'decision'
FROM lists JOIN _model_calls AS call ON call.decision_node = lists.node
UNION ALL
SELECT call.started_ns, 4, {int(What.MODEL_CALL)}, call.id, 'prompt'
FROM lists JOIN _model_calls AS call ON call.prompt_node = lists.node
"""


def _uses(connection: sqlite3.Connection, content: int) -> list[_Use]:
    """The rows that hold a value, by itself or within a message; the first one first."""
    uses = {
        _Use(at, rank, What(what), row, field)
        for sql in (_HELD, _LISTED)
        for at, rank, what, row, field in connection.execute(sql, (content,)).fetchall()
    }
    return sorted(uses, key=lambda use: (use.at_ns, use.rank, use.row))


_TASK_PLACE: Final = """
SELECT task_id, NULL, NULL, coalesce(iif(?2 = 'goal', NULL, ended_at), started_at),
    (SELECT min(seq) FROM _timeline WHERE task = tasks.id
        AND event = iif(?2 = 'goal', 'task.started', 'task.ended'))
FROM tasks WHERE id = ?1
"""


def _row_place(table: str, step: str, at: str, also: str = "") -> str:
    return f"""
SELECT task.task_id, step_span.span_id, step.step_index, {at},
    coalesce((SELECT min(seq) FROM _timeline WHERE span = step.span AND event = ?3),
        (SELECT min(seq) FROM _timeline WHERE span = step.span))
FROM {table} AS own JOIN tasks AS task ON task.id = own.task
LEFT JOIN _steps AS step ON step.id = {step}
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE own.id = ?1 {also}
"""


_AT: Final = "iif(?2, own.started_ns, coalesce(own.ended_ns, own.started_ns))"
_PLACES: Final = {
    What.STEP: _row_place("_steps", "own.id", _AT),
    # A twin holds what the call shown has too.
    What.MODEL_CALL: _row_place("_model_calls", "own.step", _AT, "AND own.twin_of IS NULL"),
    What.TOOL_CALL: _row_place("_tool_calls", "own.step", _AT, "AND own.twin_of IS NULL"),
}
_BEFORE: Final = frozenset(("name", "prompt", "arguments"))
"""What is there when its row begins; everything else comes with its end."""

_EVENTS: Final[dict[tuple[What, str], str]] = {
    (What.STEP, "name"): "step.started",
    (What.MODEL_CALL, "prompt"): "step.prompt",
    (What.MODEL_CALL, "decision"): "step.decision",
    (What.TOOL_CALL, "name"): "tool_call.started",
    (What.TOOL_CALL, "arguments"): "tool_call.started",
    (What.TOOL_CALL, "result"): "tool_call.ended",
    (What.TOOL_CALL, "error"): "tool_call.ended",
}


def _place(
    connection: sqlite3.Connection, use: _Use
) -> tuple[str, str | None, int | None, int | None, str] | None:
    """(task, step, its index, seq, when); None when it is in no visible task."""
    if use.what is What.TASK:
        row: Any = connection.execute(_TASK_PLACE, (use.row, use.field)).fetchone()
        return None if row is None else (row[0], None, None, row[4], row[3])
    event = _EVENTS.get((use.what, use.field), "step.ended")
    row = connection.execute(_PLACES[use.what], (use.row, use.field in _BEFORE, event)).fetchone()
    return None if row is None else (row[0], row[1], row[2], row[4], iso(row[3]))


def _snippet(query: Query, text: str) -> tuple[str, tuple[int, int]]:
    """What stands around the first match, cut at words where one is near."""
    start, end = query.first_in(text) or (0, 0)
    end = min(end, start + 2 * _AROUND)
    left, right = max(start - _AROUND, 0), min(end + _AROUND, len(text))
    if left > 0:
        space = text.find(" ", left, start)
        left = space + 1 if space >= 0 else left
    if right < len(text):
        space = text.rfind(" ", end, right)
        right = space if space >= 0 else right
    before = ("…" if left else "") + text[left:start]
    after = text[end:right] + ("…" if right < len(text) else "")
    return before + text[start:end] + after, (len(before), len(before) + end - start)
