# SPDX-License-Identifier: Apache-2.0
"""Values stored once: texts, messages, and prompts as persistent lists of messages.

All methods run inside the writer's transaction. A text becomes one row however often it comes.
A message becomes a template row when it holds long strings or pictures, so that a tool's result
is the same row as a value of its own and as part of the next prompt. A list of messages becomes a
chain of nodes; what the last list of the same trace had in common is recognised by comparing
strings, without parsing or hashing it again (see `otel_taskhistory.store.lists`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from json import decoder
from typing import Final

from otel_taskhistory.spans.encode import quote
from otel_taskhistory.store.lists import EXACT, Chain, Cut, Lists, Memo, Variant, shown
from otel_taskhistory.store.pictures import Found, might_hold_pictures, put_some_back, take_out

SHARE_FROM: Final = 256
"""Strings of this many characters or more get a row of their own; a shorter one costs less
inline than the row, its hash and its index entry (about 80 bytes) would."""

_REMEMBERED_INSTRUCTIONS: Final = 64
_REMEMBERED_SURE: Final = 100_000
_REMEMBERED_ROWS: Final = 4096
_REMEMBERED_TEXTS: Final = 256
"""What is known of rows, so many at most: an agent says much the same at each step."""

_SHORT: Final = 4096
"""Of so many characters a text is remembered itself; of a longer one only its digest."""

_INSERT_NODE: Final = """
INSERT INTO _nodes (id, parent, content, length, pictures) VALUES (:id, :parent, :content, :length,
    (SELECT pictures FROM _contents WHERE id = :content)
    + coalesce((SELECT pictures FROM _nodes WHERE id = :parent), 0))
"""

# Made once: `json.dumps` makes a new one for each call with options.
_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

# What json.loads is made of: (text, position after the quotation mark, strict) → (value, end).
_scan_string: Final[Callable[[str, int, bool], tuple[str, int]]] = decoder.scanstring  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Listing:
    """A stored list of messages, and the text around them in the original."""

    node: int
    opening: str
    separator: str
    closing: str


class Contents:
    """Interns values over one connection.

    Args:
        connection: the writer's; a transaction is open whenever a method runs.
        keep_picture: stores a picture's bytes as a file and returns its artifact row id; None when
            the file cannot be written.
    """

    def __init__(self, connection: sqlite3.Connection, keep_picture: Callable[[Found], int | None]):
        self._connection = connection
        self._keep_picture = keep_picture
        self._lists = Lists()
        self._instructions: dict[str, int] = {}
        self._rows: dict[bytes, int] = {}
        """Rows of ``_contents`` by digest."""
        self._texts: dict[str, int] = {}
        """And by the text itself: most often the very same string, as that of a resource."""
        self._sure_contents: set[int] = set()
        self._sure_nodes: set[int] = set()
        """Rows that are known to be there."""

    def begin(self, *, still: bool) -> None:
        """A transaction has begun.

        Args:
            still: nothing can have been removed since the last one was committed.
        """
        if not still or len(self._sure_contents) + len(self._sure_nodes) > _REMEMBERED_SURE:
            self._sure_contents.clear()
            self._sure_nodes.clear()

    def forget(self) -> None:
        """Forget everything: the transaction in which it was stored was rolled back."""
        self._lists.forget()
        self._instructions.clear()
        self._rows.clear()
        self._texts.clear()
        self._sure_contents.clear()
        self._sure_nodes.clear()

    # --- texts ---

    def text(self, text: str) -> int:
        """The row of a plain text; pictures in it become files, where these can be written."""
        content = self._texts.get(text) if len(text) <= _SHORT else None
        if content is not None and self._content_exists(content):
            return content
        content = self._text(text)
        if len(text) <= _SHORT and not might_hold_pictures(text):
            if len(self._texts) >= _REMEMBERED_TEXTS:
                del self._texts[next(iter(self._texts))]
            self._texts[text] = content
        return content

    def _text(self, text: str) -> int:
        shown, found = take_out(text)
        kept = {picture.position: self._keep_picture(picture) for picture in found}
        rows = {position: row for position, row in kept.items() if row is not None}
        if len(rows) < len(kept):
            # A file that is not there cannot be put back: such a picture stays in its text.
            shown, out = put_some_back(shown, found, rows)
            placed = list(zip([picture.position for picture in out], rows.values(), strict=True))
        else:
            placed = list(rows.items())
        return self._row(shown, template=False, pictures=placed)

    def _row(
        self,
        text: str,
        *,
        template: bool,
        pictures: list[tuple[int, int]],
        parts: Iterable[int] = (),
    ) -> int:
        # A reference to a picture tells by its digest which one; where it is a reference and not
        # typed belongs to the value too. In front, so that no text can look like it.
        kind = f"{'m' if template else 't'}{[position for position, _ in pictures]}"
        hashed = hashlib.blake2b(kind.encode(), digest_size=20)
        hashed.update(text.encode())
        digest = hashed.digest()
        content = self._rows.get(digest)
        if content is not None and self._content_exists(content):
            return content
        # Most that is not remembered is new.
        made = self._connection.execute(
            "INSERT INTO _contents (hash, template, pictures, text) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (hash) DO NOTHING",
            (digest, template, len(pictures) + self._pictures_in(parts), text),
        )
        if not made.rowcount:
            found = self._connection.execute("SELECT id FROM _contents WHERE hash = ?", (digest,))
            content = int(found.fetchone()[0])
            self._remember(digest, content)
            return content
        content = made.lastrowid
        assert content is not None
        for position, artifact in pictures:
            self._connection.execute(
                "INSERT INTO _content_pictures (content, position, artifact) VALUES (?, ?, ?)",
                (content, position, artifact),
            )
        for part in parts:
            self._connection.execute(
                "INSERT INTO _content_parts (child, content) VALUES (?, ?)", (part, content)
            )
        self._remember(digest, content)
        return content

    def _remember(self, digest: bytes, content: int) -> None:
        if len(self._rows) >= _REMEMBERED_ROWS:
            del self._rows[next(iter(self._rows))]
        self._rows[digest] = content
        self._sure_contents.add(content)

    def _pictures_in(self, parts: Iterable[int]) -> int:
        found = self._connection.execute
        return sum(
            found("SELECT pictures FROM _contents WHERE id = ?", (part,)).fetchone()[0]
            for part in parts
        )

    # --- messages ---

    def message(self, raw: str) -> int:
        """The row of one JSON value, long strings and pictures in it by reference."""
        if len(raw) < SHARE_FROM and not might_hold_pictures(raw):
            return self._row(raw, template=False, pictures=[])
        if "\0" in raw:  # SQLite's json_each cuts the literal pieces of a template there
            return self.text(raw)
        pieces: list[str | int] = []
        parts: set[int] = set()
        copied = 0
        start = raw.find('"')
        while start >= 0:
            value, end = _scan_string(raw, start + 1, False)
            if end - start >= SHARE_FROM + 2 or might_hold_pictures(value):
                token = raw[start:end]
                exact = quote(value) == token
                part = self.text(value) if exact else self.text(token[1:-1])
                parts.add(part)
                # As a JSON string (n), quotation marks included, or the text as it is (-n).
                pieces += (raw[copied : start + (not exact)], part if exact else -part)
                copied = end - (not exact)
            start = raw.find('"', end)
        if not parts:
            return self._row(raw, template=False, pictures=[])
        pieces.append(raw[copied:])
        return self._row(compact(pieces), template=True, pictures=[], parts=parts)

    def messages(self, raw: str, memo: Memo) -> Listing | None:
        """Store a JSON array of objects as a chain of nodes.

        Returns:
            The listing from which the very same text can be put together, or None when `raw` is
            no array of objects with one separator between them (then it is just a text).
        """
        cut = self._lists.cut(raw, memo)
        if cut is None:
            return None
        return Listing(self._chain(cut, EXACT), cut.opening, cut.separator, cut.closing)

    def conversation(self, raw: str, memo: Memo, system: str | None = None) -> int | None:
        """The node of a list of messages as it is shown: strict JSON, instructions first.

        Args:
            raw: a JSON array of objects; the very string that `messages` got is not cut again.
            memo: as for `messages`.
            system: JSON array of parts sent as system instructions beside the messages.

        Returns:
            None when `raw` is no such array.
        """
        instructions = None if system is None else self._system_message(system)
        if instructions is not None and raw.strip() == "[]":
            return self._node(None, instructions)
        cut = self._lists.cut(raw, memo)
        if cut is None:
            return None
        return self._chain(cut, EXACT if instructions is None and cut.plain else instructions)

    def _chain(self, cut: Cut, variant: Variant) -> int:
        """The last node of a list, its rows made or recognised."""
        known = cut.chains.get(variant)
        if known is not None and self._exists(known.nodes[-1]):
            return known.nodes[-1]
        before = cut.before.pop(variant, None)
        shared = cut.shared if before is not None else 0
        if before is not None and shared and not self._exists(before.nodes[shared - 1]):
            shared = 0
        if before is not None and shared:
            chain = Chain(before.contents[:shared], before.nodes[:shared])
            node: int | None = chain.nodes[-1]
        else:
            chain = Chain()
            # EXACT is no row: row ids begin with 1.
            node = self._node(None, variant) if variant else None
        messages = cut.messages if variant == EXACT else cut.shown
        contents: list[int] = []
        for message, seen in zip(messages[shared:], cut.seen[shared:], strict=True):
            content = before.contents[seen] if before is not None and seen >= 0 else 0
            if not content or not self._content_exists(content):
                content = self.message(message)
            contents.append(content)
        chain.contents += contents
        chain.nodes += self._nodes(node, contents)
        cut.chains[variant] = chain
        return chain.nodes[-1]

    def _system_message(self, system: str) -> int:
        """The row of the message that system instructions are shown as."""
        content = self._instructions.get(system)
        if content is not None and self._content_exists(content):
            return content
        try:
            parts = shown(system)
            if not isinstance(json.loads(parts), list):
                raise ValueError("not a list of parts")
        except (ValueError, RecursionError):  # cut by a limit of the SDK, or a plain text
            parts = shown(compact([{"type": "text", "content": system}]))
        content = self.message(f'{{"role": "system", "parts": {parts}}}')
        if len(self._instructions) >= _REMEMBERED_INSTRUCTIONS:
            del self._instructions[next(iter(self._instructions))]
        self._instructions[system] = content
        return content

    def _node(self, parent: int | None, content: int) -> int:
        return self._nodes(parent, [content])[0]

    def _nodes(self, parent: int | None, contents: list[int]) -> list[int]:
        """The nodes of some messages, one after another, after a node or at the beginning."""
        nodes: list[int] = []
        for position, content in enumerate(contents):
            row = self._connection.execute(*_find_node(parent, content)).fetchone()
            if row is None:  # then there is none after it either
                nodes += self._make_nodes(parent, contents[position:])
                break
            parent = int(row[0])
            nodes.append(parent)
        self._sure_nodes.update(nodes)
        return nodes

    def _make_nodes(self, parent: int | None, contents: list[int]) -> list[int]:
        execute = self._connection.execute
        length = 0
        if parent is not None:
            (length,) = execute("SELECT length FROM _nodes WHERE id = ?", (parent,)).fetchone()
        last = execute("SELECT seq FROM sqlite_sequence WHERE name = '_nodes'").fetchone()
        first = 1 if last is None else int(last[0]) + 1
        rows: list[dict[str, int | None]] = []
        for node, content in enumerate(contents, first):
            length += 1
            rows.append({"id": node, "parent": parent, "content": content, "length": length})
            parent = node
        self._connection.executemany(_INSERT_NODE, rows)
        return list(range(first, first + len(contents)))

    # Rows that were remembered may have been removed by retention, in any process. Ids are never
    # used twice (AUTOINCREMENT), so one look tells; a node's ancestors are there while it is.

    def _exists(self, node: int) -> bool:
        if node in self._sure_nodes:
            return True
        found = self._connection.execute("SELECT 1 FROM _nodes WHERE id = ?", (node,))
        if found.fetchone() is None:
            return False
        self._sure_nodes.add(node)
        return True

    def _content_exists(self, content: int) -> bool:
        if content in self._sure_contents:
            return True
        found = self._connection.execute("SELECT 1 FROM _contents WHERE id = ?", (content,))
        if found.fetchone() is None:
            return False
        self._sure_contents.add(content)
        return True


def _find_node(parent: int | None, content: int) -> tuple[str, tuple[int, ...]]:
    if parent is None:
        return "SELECT id FROM _nodes WHERE parent IS NULL AND content = ?", (content,)
    return "SELECT id FROM _nodes WHERE parent = ? AND content = ?", (parent, content)


def compact(value: object) -> str:
    """JSON without spaces, non-ASCII as it is: the form of templates."""
    return _compact(value)
