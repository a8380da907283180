# SPDX-License-Identifier: Apache-2.0
"""Searches a history, newest values first, and says where each came first and how often.

The index only says which values may match; each is looked at before it is shown, and so is what
has been committed but not indexed yet. Values that nothing visible uses are passed over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, overload

from otel_taskhistory.store.search import anew
from otel_taskhistory.store.search.documents import (
    What,
    contents_of,
    part_of,
    parts_of,
    text_of_content,
    texts_of,
)
from otel_taskhistory.store.search.places import Use, error_type_of, place_of, uses_of
from otel_taskhistory.store.search.snippets import snippet
from otel_taskhistory.store.search.words import Query, parse

MOST_LOOKED_AT: Final = 20_000
"""Values that one search looks at; beyond, it says that it has not seen all."""

_MOST_WAITING: Final = 5_000
_MOST_CHARACTERS: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Hit:
    """A value in which all that was asked for stands.

    Attributes:
        field: what it is: ``goal``, ``name``, ``prompt``, ``decision``, ``arguments``, ``result``
            or ``error``. A task, a step, a call of a tool is one value with several of them: then
            it is the one that has most of the words.
        also: which others of these have the rest.
        goal: of the task, on one line, its beginning if it is long.
        task_id, step_id, step_index: where it came first; no step for what belongs to the task.
        seq: the record of the timeline that tells of it.
        at: when that was, UTC.
        times: how often it stands in the history, at least: in how many prompts, say.
        error_type: of an ``error``, as it was recorded, ``builtins.ValueError``; None when nobody
            said.
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
    goal: str | None = None
    error_type: str | None = None
    also: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What it is, in words: ``result``, ``result and name``, ``error ValueError``."""
        named = self.field
        if self.error_type:
            named += f" {self.error_type.rpartition('.')[2]}"
        return " and ".join((named, *self.also))


@dataclass(frozen=True, slots=True)
class Hits(Sequence[Hit]):
    """What was found, the newest value first.

    Attributes:
        more: whether there are more than were asked for.
        complete: whether all values were looked at; if not, there may be older hits.
        indexing: that is because the index is being made (anew): a later search sees more.
    """

    hits: tuple[Hit, ...]
    more: bool
    complete: bool
    indexing: bool = False

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]


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
    indexing = _is_indexing(connection)
    hits: dict[int, Hit] = {}
    """By their text: a decision and the message that it is in later prompts are one."""
    seen: set[tuple[What, int]] = set()
    looked, characters = 0, 0
    for what, row, text in _candidates(connection, query):
        looked += 1
        characters += len(text)
        if looked > MOST_LOOKED_AT or characters > _MOST_CHARACTERS:
            return _found(hits, limit, False, indexing)
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
    return _found(hits, limit, True, indexing)


def _found(hits: dict[int, Hit], limit: int, seen_all: bool, indexing: bool) -> Hits:
    found = tuple(hits.values())
    return Hits(found[:limit], len(found) > limit, seen_all and not indexing, indexing)


def _is_indexing(connection: sqlite3.Connection) -> bool:
    """Whether there are values that neither the index knows nor a search looks at by itself."""
    if not anew.is_current(connection):
        return True
    found = connection.execute("SELECT 1 FROM _unindexed LIMIT 1 OFFSET ?", (_MOST_WAITING,))
    return found.fetchone() is not None


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


# --- what is shown ------------------------------------------------------------------------------


def _hit(
    connection: sqlite3.Connection, query: Query, what: What, row: int, text: str
) -> Hit | None:
    also: tuple[str, ...] = ()
    if what is What.CONTENT:
        uses = uses_of(connection, row)
        shown = text
    else:
        said = texts_of(connection, what, row)
        fields = _fields_with(query, said or {})
        if not said or not fields:
            return None
        uses = [Use(0, 0, what, row, fields[0])]
        shown, also = said[fields[0]], fields[1:]
    for use in uses:
        place = place_of(connection, use)
        if place is None:
            continue
        shown_part, match = snippet(query, shown)
        return Hit(
            field=use.field,
            task_id=place.task_id,
            step_id=place.step_id,
            step_index=place.step_index,
            seq=place.seq,
            at=place.at,
            times=len(uses),
            snippet=shown_part,
            match=match,
            value_length=len(shown),
            goal=place.goal,
            error_type=error_type_of(connection, use.what, use.row)
            if use.field == "error"
            else None,
            also=also,
        )
    return None


def _fields_with(query: Query, said: dict[str, str]) -> tuple[str, ...]:
    """The texts of a row that have what was asked for: one that has it all, else several.

    The one with most of it comes first, then those that have what is still missing.
    """
    found = {name: query.chunks_in(text) for name, text in said.items()}
    missing = set(query.chunks)
    fields: list[str] = []
    while missing:
        best = max(found, key=lambda name: len(missing & found[name]), default=None)
        if best is None or not missing & found[best]:
            break
        fields.append(best)
        missing -= found.pop(best)
    return tuple(fields)
