# SPDX-License-Identifier: Apache-2.0
"""Writes the search index: a bit at a time, in transactions of its own, when nobody waits.

Triggers note each row that says something new in ``_unindexed``, whoever writes it; `Indexer.step`
works that off. What still waits there is searched too, by looking at it, so a value is found from
the moment it is committed.

The index holds words and row numbers, no texts and no positions: it only says which documents may
match, see `otel_taskhistory.store.search.words`. FTS5 removes a document from such an index when it
is told its words once more; so texts of documents that may change are kept in ``_documents``.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from otel_taskhistory.store.search import anew
from otel_taskhistory.store.search.documents import (
    FIELDS,
    PART,
    REFERENCES,
    TYPED,
    What,
    contents_of,
    part_of,
    parts_of,
    text_of_content,
    texts_of,
)
from otel_taskhistory.store.search.words import VERSION, words

CHARACTERS: Final = 2**18
"""Of text that one step makes words of, about; some 15 ms."""

MERGE_PAGES: Final = 64
"""Pages of the index that are rewritten at a time to drop the words of removed documents."""

_GARBAGE: Final = 0.6
"""Bytes in the index for each character of a removed text: its words, and as many that say that
they are gone."""

_REMEMBERED: Final = 100_000


def _noted(table: str, what: What) -> tuple[str, ...]:
    """Triggers that note rows of a table when what they say changes."""
    columns = [*FIELDS[what][1], *REFERENCES[what]]
    if what is What.MODEL_CALL:
        columns += ["prompt_node", "decision_node"]
    if what in TYPED:
        columns.append("error_type")
    # Not INSERT OR IGNORE: within a trigger the policy of the statement that fired it counts.
    note = (
        f"INSERT INTO _unindexed (what, row) SELECT {int(what)}, {{0}}.id"
        f" WHERE NOT EXISTS (SELECT 1 FROM _unindexed WHERE what = {int(what)} AND row = {{0}}.id);"
    )
    says = " OR ".join(f"new.{name} IS NOT NULL" for name in columns)
    differs = " OR ".join(f"old.{name} IS NOT new.{name}" for name in columns)
    name = table.lstrip("_")
    return (
        (
            f"CREATE TRIGGER _search_{name}_added AFTER INSERT ON {table} WHEN {says} BEGIN"
            f" {note.format('new')} END"
        ),
        (
            f"CREATE TRIGGER _search_{name}_changed AFTER UPDATE OF {', '.join(columns)} ON {table}"
            f" WHEN {differs} BEGIN {note.format('new')} END"
        ),
        (
            f"CREATE TRIGGER _search_{name}_taken AFTER DELETE ON {table} BEGIN"
            f" {note.format('old')} END"
        ),
    )


STATEMENTS: Final = (
    """
CREATE TABLE _documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content INTEGER,
    part INTEGER NOT NULL DEFAULT 0,
    what INTEGER,
    row INTEGER,
    text TEXT
) STRICT
""",
    (
        "CREATE UNIQUE INDEX _documents_content ON _documents (content, part)"
        " WHERE content IS NOT NULL"
    ),
    "CREATE UNIQUE INDEX _documents_row ON _documents (what, row) WHERE what IS NOT NULL",
    """
CREATE TABLE _unindexed (
    what INTEGER NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (what, row)
) STRICT, WITHOUT ROWID
""",
    # Each word comes as we made it: all but spaces belongs to one.
    """
CREATE VIRTUAL TABLE _words USING fts5 (text, content = '', detail = 'none', columnsize = 0,
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'")
""",
    f"INSERT INTO _meta (key, value) VALUES ('words', '{VERSION}')",
    *(statement for what, (table, _) in FIELDS.items() for statement in _noted(table, what)),
)
"""To be executed one by one, after the tables that they are about are there."""


class Indexer:
    """Over the writer's connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._walked: set[int] = set()
        self._whole: set[int] = set()
        """Rows of ``_contents`` that are in the index as a whole, with what they are made of."""
        self._version = 0
        self.has_dropped = False
        """Whether words of removed documents may be left in the index."""
        self.garbage = 0
        """Bytes of the index that vanish with those, about."""

    def forget(self) -> None:
        """The transaction was rolled back, or somebody else has written."""
        self._walked.clear()
        self._whole.clear()

    def is_due(self) -> bool:
        """Whether there is something to be indexed; needs no transaction."""
        found = self._connection.execute("SELECT 1 FROM _unindexed LIMIT 1").fetchone()
        return found is not None or not anew.is_current(self._connection)

    def waits_for(self, rows: int) -> bool:
        """Whether so many rows wait, or the index is to be made anew; needs no transaction."""
        if not anew.is_current(self._connection):
            return True
        found = self._connection.execute("SELECT 1 FROM _unindexed LIMIT 1 OFFSET ?", (rows - 1,))
        return found.fetchone() is not None

    def step(self, characters: int = CHARACTERS) -> bool:
        """Index a bit of what waits; whether there is more."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._walked) + len(self._whole) > _REMEMBERED:
            self._version = version
            self.forget()
        if not anew.is_current(self._connection):
            anew.step(self._connection, characters)
            self.forget()
            self.has_dropped, self.garbage = False, 0
            return True
        left = characters
        while left > 0:
            found = self._connection.execute("SELECT what, row FROM _unindexed LIMIT 1").fetchone()
            if found is None:
                return False
            what, row = What(found[0]), int(found[1])
            self._connection.execute(
                "DELETE FROM _unindexed WHERE what = ? AND row = ?", (what, row)
            )
            left -= 200 + self._index(what, row, left)
        return self.is_due()

    def forget_content(self, content: int) -> None:
        """Take a row of ``_contents`` that is about to be deleted out of the index."""
        self._whole.discard(content)
        found = self._connection.execute(
            "SELECT id, part FROM _documents WHERE content = ?", (content,)
        ).fetchall()
        if not found:
            return
        text = text_of_content(self._connection, content)
        for document, part in found:
            self._drop(document, None if text is None else part_of(text, part))
        self._connection.execute(
            "DELETE FROM _unindexed WHERE what = ? AND row = ?", (What.CONTENT, content)
        )

    def merge(self, pages: int = MERGE_PAGES) -> bool:
        """Rewrite a few pages, so that words of removed documents vanish; whether there is more."""
        if not anew.is_current(self._connection):  # all of them vanish
            self.has_dropped, self.garbage = False, 0
            return False
        before = self._connection.total_changes
        self._connection.execute("INSERT INTO _words (_words, rank) VALUES ('merge', ?)", (-pages,))
        # FTS5 says by the number of changes whether it has done anything.
        self.has_dropped = self._connection.total_changes - before >= 2
        if not self.has_dropped:
            self.garbage = 0
        return self.has_dropped

    def optimize(self) -> None:
        """Rewrite the whole index at once, with nothing of what was removed."""
        while self.is_due():
            self.step()
        self._connection.execute("INSERT INTO _words (_words) VALUES ('optimize')")

    def rebuild(self) -> None:
        """Begin anew; the next steps do it, as `otel_taskhistory.store.search.anew` says."""
        self.forget()
        self.has_dropped, self.garbage = False, 0
        anew.begin(self._connection)

    def rows_to_come(self) -> int:
        """How many rows wait, or will when the index is made anew, at most."""
        (waiting,) = self._connection.execute("SELECT count(*) FROM _unindexed").fetchone()
        return int(waiting) + anew.rows_to_come(self._connection)

    # --- one row ---

    def _index(self, what: What, row: int, characters: int) -> int:
        """Bring the documents of a row up to date; how many characters were looked at."""
        if what is What.CONTENT:
            return self._put_content(row)
        done = self._put_row(what, row)
        for content in contents_of(self._connection, what, row, self._walked):
            if content in self._whole:
                continue
            done += self._put_content(content)
            for part in parts_of(self._connection, content):
                done += self._put_content(part)
            self._whole.add(content)
            if done > characters:
                # A long prompt that is new as a whole: the rest in its next turn, from its end on.
                self._walked.clear()
                self._wait(what, row)
                break
        return done

    def _put_row(self, what: What, row: int) -> int:
        said = texts_of(self._connection, what, row)
        text = "\n".join(said.values()) if said else None
        known = self._connection.execute(
            "SELECT id, text FROM _documents WHERE what = ? AND row = ?", (what, row)
        ).fetchone()
        if known is not None:
            if known[1] == text:
                return 0
            self._drop(known[0], known[1])
        if text is None:
            return 0
        # A value that is longer than a part is found by its beginning here; long values of steps
        # and tool calls are rows of ``_contents``.
        document = self._connection.execute(
            "INSERT INTO _documents (what, row, text) VALUES (?, ?, ?)", (what, row, text)
        ).lastrowid
        self._add(document, text)
        return len(text)

    def _put_content(self, content: int) -> int:
        """Index the next part of a value; the rest waits for its turn."""
        part = self._connection.execute(
            "SELECT count(*) FROM _documents WHERE content = ?", (content,)
        ).fetchone()[0]
        if part and not self._is_long(content, part):
            return 0
        text = text_of_content(self._connection, content)
        piece = None if text is None else part_of(text, part)
        if piece is None:
            return 0
        document = self._connection.execute(
            "INSERT INTO _documents (content, part) VALUES (?, ?)", (content, part)
        ).lastrowid
        self._add(document, piece)
        if text is not None and part_of(text, part + 1) is not None:
            self._wait(What.CONTENT, content)
        return len(piece)

    def _wait(self, what: What, row: int) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO _unindexed (what, row) VALUES (?, ?)", (what, row)
        )

    def _is_long(self, content: int, parts: int) -> bool:
        """Whether there may be more than so many parts: only long values need a second look."""
        found = self._connection.execute(
            "SELECT length(CAST(text AS BLOB)) > ? FROM _contents WHERE id = ?",
            (parts * PART, content),
        ).fetchone()
        return bool(found and found[0])

    def _add(self, document: int | None, text: str) -> None:
        self._connection.execute(
            "INSERT INTO _words (rowid, text) VALUES (?, ?)", (document, " ".join(words(text)))
        )

    def _drop(self, document: int, text: str | None) -> None:
        self.has_dropped = True
        # Words by other rules are none that FTS5 could find there; they go with all others.
        if text is not None and anew.is_current(self._connection):
            said = " ".join(words(text))
            self._connection.execute(
                "INSERT INTO _words (_words, rowid, text) VALUES ('delete', ?, ?)", (document, said)
            )
            self.garbage += int(_GARBAGE * len(said))
        self._connection.execute("DELETE FROM _documents WHERE id = ?", (document,))


def not_found(connection: sqlite3.Connection, looked_at: int = 200) -> int:
    """How many of the latest documents the index does not find by a word of theirs; only reads."""
    missing = 0
    rows = connection.execute(
        "SELECT id, content, part, text FROM _documents ORDER BY id DESC LIMIT ?", (looked_at,)
    ).fetchall()
    for document, content, part, kept in rows:
        text = kept
        if content is not None:
            whole = text_of_content(connection, content)
            text = None if whole is None else part_of(whole, part)
        word = next(words(text), None) if text is not None else None
        if text is not None and word is None:
            continue
        found = connection.execute(
            "SELECT 1 FROM _words WHERE _words MATCH ? AND rowid = ?", (f'"{word}"', document)
        )
        missing += text is None or found.fetchone() is None
    return missing
