# SPDX-License-Identifier: Apache-2.0
"""Texts read no further than they are shown; one that was cut has a mark at its end."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from typing import Any, Final

from otel_taskhistory.spans.encode import quote
from otel_taskhistory.store.rebuild import Texts

_OPEN, _CLOSE = f"\ue000{secrets.token_hex(8)}:", "\ue001"
"""Drawn anew in each process: no recorded text can look as if it was cut."""
_CUT: Final = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


def cut_off(text: str) -> tuple[str, int | None]:
    """(the text without its mark, how many bytes of UTF-8 the whole value has, None if this is it).

    The mark stands at the end, or, in the JSON of a message, at the end of a string within.
    """
    found = _CUT.search(text)
    if found is None:
        return text, None
    return text[: found.start()] + text[found.end() :], int(found[1])


def _marked(head: bytes, size: int) -> str:
    return f"{head.decode('utf-8', 'ignore')}{_OPEN}{size}{_CLOSE}"


def head(
    connection: sqlite3.Connection, table: str, column: str, row: int, most: int | None
) -> str:
    """The beginning of a text, which must not be NULL; marked when there is more."""
    with connection.blobopen(table, column, row, readonly=True) as blob:
        size = len(blob)
        if most is None or size <= most + most // 4:
            return blob.read().decode("utf-8", "replace")
        return _marked(blob.read(most), size)


def value(
    connection: sqlite3.Connection,
    table: str,
    row: int,
    column: str,
    inline: Any,
    content: int | None,
    most: int | None,
) -> str | None:
    """A value that is in its row when short (`inline` says whether), else by content."""
    if inline:
        return head(connection, table, column, row, most)
    return None if content is None else head(connection, "_contents", "text", content, most)


class Messages:
    """Messages with their long strings cut; otherwise as `Texts` gives them."""

    def __init__(self, connection: sqlite3.Connection, most: int | None) -> None:
        self._connection = connection
        self._most = most
        self.texts = Texts(connection)

    @property
    def whole(self) -> bool:
        """Whether nothing is cut."""
        return self._most is None

    def plain(self, row: int) -> str:
        """A prompt or decision that was no list of messages."""
        return head(self._connection, "_contents", "text", row, self._most)

    def message(self, row: int) -> str:
        """A message of a list as JSON."""
        text, template = self._connection.execute(
            "SELECT text, template FROM _contents WHERE id = ?", (row,)
        ).fetchone()
        if not template or self._most is None:
            return self.texts.content(row)
        pieces = []
        for piece in json.loads(text):
            if isinstance(piece, int) and piece > 0:
                leaf = head(self._connection, "_contents", "text", piece, self._most)
                pieces.append(quote(leaf))
            elif isinstance(piece, int):
                pieces.append(self.texts.content(-piece))
            else:
                pieces.append(piece if isinstance(piece, str) else "null")
        return "".join(pieces)
