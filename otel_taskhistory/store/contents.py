# SPDX-License-Identifier: Apache-2.0
"""Values stored once: texts, messages, and prompts as persistent lists of messages.

All methods run inside the writer's transaction. A text becomes one row however often it comes.
A message becomes a template row when it holds long strings or pictures, so that a tool's result
is the same row as a value of its own and as part of the next prompt. A list of messages becomes a
chain of nodes; what the last list of the same trace had in common is recognised by comparing
strings, without parsing or hashing it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.spans.encode import quote
from otel_taskhistory.store.pictures import Found, might_hold_pictures, take_out

SHARE_FROM: Final = 256
"""Strings of this many characters or more get a row of their own; a shorter one costs less
inline than the row, its hash and its index entry (about 80 bytes) would."""

REMEMBERED_CHARACTERS: Final = 32 * 2**20
"""How much prompt text is remembered for comparison, over all traces; the oldest go first."""

_LISTS_PER_KEY: Final = 4
"""Conversations remembered per trace and attribute: nested agents take turns in one trace."""

_LOOKAHEAD: Final = 64
"""How many remembered messages are tried when a prompt leaves out some (trimming)."""

_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_scan = json.JSONDecoder(strict=False).raw_decode

Memo = tuple[int, str]
"""Under what a list is remembered: trace row id and the name of the attribute."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A stored list of messages, and the text around them in the original."""

    node: int
    opening: str
    separator: str
    closing: str


@dataclass(slots=True)
class _Remembered:
    raw: str
    base: int | None
    messages: list[str]
    contents: list[int]
    nodes: list[int]
    listing: Listing


class Contents:
    """Interns values over one connection.

    Args:
        connection: the writer's; a transaction is open whenever a method runs.
        keep_picture: stores a picture's bytes as a file and returns its artifact row id.
    """

    def __init__(self, connection: sqlite3.Connection, keep_picture: Callable[[Found], int]):
        self._connection = connection
        self._keep_picture = keep_picture
        self._remembered: OrderedDict[Memo, list[_Remembered]] = OrderedDict()
        self._characters = 0

    # --- texts ---

    def text(self, text: str) -> int:
        """The row of a plain text; pictures in it become files."""
        shown, found = take_out(text)
        placed = [(picture.position, self._keep_picture(picture)) for picture in found]
        return self._row(shown, template=False, pictures=placed)

    def _row(
        self,
        text: str,
        *,
        template: bool,
        pictures: list[tuple[int, int]],
        parts: Iterable[int] = (),
    ) -> int:
        hashed = hashlib.blake2b(b"m" if template else b"t", digest_size=20)
        hashed.update(text.encode())
        for position, _ in pictures:
            # The digest stands in the text; where it is a reference, not typed, makes the value.
            hashed.update(b"\0%d" % position)
        digest = hashed.digest()
        row = self._connection.execute(
            "SELECT id FROM _contents WHERE hash = ?", (digest,)
        ).fetchone()
        if row:
            return int(row[0])
        content = self._connection.execute(
            "INSERT INTO _contents (hash, template, pictures, text) VALUES (?, ?, ?, ?)",
            (digest, template, len(pictures) + self._pictures_in(parts), text),
        ).lastrowid
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
        return content

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
        pieces: list[str | int] = []
        parts: set[int] = set()
        copied = 0
        for token in _STRING.finditer(raw):
            string = token[0]
            if len(string) < SHARE_FROM + 2 and not might_hold_pictures(string):
                continue
            part = self._string(string)
            parts.add(abs(part))
            literal = part < 0  # such a row lacks the quotation marks: they stay in the template
            pieces += (raw[copied : token.start() + literal], part)
            copied = token.end() - literal
        if not parts:
            return self._row(raw, template=False, pictures=[])
        pieces.append(raw[copied:])
        return self._row(compact(pieces), template=True, pictures=[], parts=parts)

    def _string(self, token: str) -> int:
        """The row of a JSON string: n when SQLite's json_quote writes it like `token`, else -n."""
        try:
            value = json.loads(token)
        except ValueError:  # control characters: not strict JSON, kept as written
            value = None
        if value is not None and quote(value) == token:
            return self.text(value)
        return -self.text(token[1:-1])

    def messages(self, raw: str, memo: Memo, base: int | None = None) -> Listing | None:
        """Store a JSON array of objects as a chain of nodes after `base`.

        Returns:
            The listing from which the very same text can be put together, or None when `raw` is
            no array of objects with one separator between them (then it is just a text).
        """
        known = self._recall(raw, memo, base)
        if known is not None and known.raw == raw and self._exists(known.listing.node):
            return known.listing
        lexed = _Lexed(raw, known)
        if not lexed.ok:
            return None
        node, nodes, contents = base, [], []
        shared = lexed.shared
        if known is not None and shared and not self._exists(known.nodes[shared - 1]):
            shared = 0
        for position, (message, seen) in enumerate(zip(lexed.messages, lexed.seen, strict=True)):
            if known is not None and position < shared:
                content, node = known.contents[position], known.nodes[position]
            else:
                content = known.contents[seen] if known and seen >= 0 else 0
                if not content or not self._content_exists(content):
                    content = self.message(message)
                node = self._node(node, content)
            nodes.append(node)
            contents.append(content)
        assert node is not None
        listing = Listing(node, lexed.opening, lexed.separator, lexed.closing)
        self._remember(memo, _Remembered(raw, base, lexed.messages, contents, nodes, listing))
        return listing

    def chain(self, contents: list[int]) -> int | None:
        """The node of a list whose messages are already rows."""
        node = None
        for content in contents:
            node = self._node(node, content)
        return node

    def _node(self, parent: int | None, content: int) -> int:
        row = self._connection.execute(
            "SELECT id FROM _nodes WHERE parent = ?1 AND content = ?2"
            if parent is not None
            else "SELECT id FROM _nodes WHERE ?1 IS NULL AND parent IS NULL AND content = ?2",
            (parent, content),
        ).fetchone()
        if row:
            return int(row[0])
        node = self._connection.execute(
            "INSERT INTO _nodes (parent, content, length, pictures) VALUES (?1, ?2,"
            " 1 + coalesce((SELECT length FROM _nodes WHERE id = ?1), 0),"
            " (SELECT pictures FROM _contents WHERE id = ?2)"
            " + coalesce((SELECT pictures FROM _nodes WHERE id = ?1), 0))",
            (parent, content),
        ).lastrowid
        assert node is not None
        return node

    # Rows that were remembered may have been removed by retention, in any process. Ids are never
    # used twice (AUTOINCREMENT), so one look tells; a node's ancestors are there while it is.

    def _exists(self, node: int) -> bool:
        found = self._connection.execute("SELECT 1 FROM _nodes WHERE id = ?", (node,))
        return found.fetchone() is not None

    def _content_exists(self, content: int) -> bool:
        found = self._connection.execute("SELECT 1 FROM _contents WHERE id = ?", (content,))
        return found.fetchone() is not None

    # --- what is remembered ---

    def forget(self) -> None:
        """Forget everything: the transaction in which it was stored was rolled back."""
        self._remembered.clear()
        self._characters = 0

    def _recall(self, raw: str, memo: Memo, base: int | None) -> _Remembered | None:
        """The remembered list that `raw` most likely continues."""
        best, most = None, -1
        for known in self._remembered.get(memo, ()):
            if known.base != base:
                continue
            if known.raw is raw or known.raw == raw:
                return known
            common = _common(raw, known.raw)
            if common > most:
                best, most = known, common
        return best

    def _remember(self, memo: Memo, known: _Remembered) -> None:
        lists = self._remembered.setdefault(memo, [])
        self._remembered.move_to_end(memo)
        # The newest list replaces the one that it continues, else the oldest of its trace.
        for position, other in enumerate(lists):
            if other.base == known.base and other.contents[0] == known.contents[0]:
                self._characters -= 2 * len(lists.pop(position).raw)
                break
        lists.append(known)
        self._characters += 2 * len(known.raw)
        if len(lists) > _LISTS_PER_KEY:
            self._characters -= 2 * len(lists.pop(0).raw)
        while self._characters > REMEMBERED_CHARACTERS and self._remembered:
            _, dropped = self._remembered.popitem(last=False)
            self._characters -= sum(2 * len(other.raw) for other in dropped)


class _Lexed:
    """A JSON array cut at its message boundaries, what is known already by comparison."""

    def __init__(self, raw: str, known: _Remembered | None) -> None:
        self.messages: list[str] = []
        self.seen: list[int] = []
        """For each message its position in the known list, or -1."""
        self.shared = 0
        """How many messages at the beginning are those of the known list."""
        self.opening = self.closing = self.separator = ""
        self.ok = self._cut(raw, known.messages if known else [])

    def _cut(self, raw: str, known: list[str]) -> bool:
        offset = raw.find("{")
        if offset < 0 or raw[:offset].strip() != "[":
            return False
        self.opening = raw[:offset]
        next_known = 0
        while True:
            end, seen = self._end(raw, offset, known, next_known)
            if end < 0:
                return False
            if seen >= 0:
                next_known = seen + 1
                self.shared += seen == self.shared == len(self.messages)
            self.messages.append(known[seen] if seen >= 0 else raw[offset:end])
            self.seen.append(seen)
            offset = raw.find("{", end)
            if offset < 0:
                self.closing = raw[end:]
                return self.closing.strip() == "]"
            separator = raw[end:offset]
            if len(self.messages) == 1:
                self.separator = separator
            if separator != self.separator or separator.strip() != ",":
                return False

    @staticmethod
    def _end(raw: str, offset: int, known: list[str], first: int) -> tuple[int, int]:
        for position in range(first, min(first + _LOOKAHEAD, len(known))):
            if raw.startswith(known[position], offset):
                return offset + len(known[position]), position
        try:
            end = _scan(raw, offset)[1]
        except (ValueError, RecursionError):
            return -1, -1  # cut or no JSON: the caller keeps it as a text
        return end, -1


def compact(value: object) -> str:
    """JSON without spaces, non-ASCII as it is: the form of templates."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _common(one: str, other: str) -> int:
    """About how many characters two texts have in common at their beginning (a power of 2)."""
    length = 64
    while length <= min(len(one), len(other)) and one.startswith(other[:length]):
        length *= 2
    return length
