# SPDX-License-Identifier: Apache-2.0
"""What was recorded, put together again exactly as it came: spans, prompts, pictures in place.

The SQL views do the same without the pictures, which stay references there.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any, Final

from otel_taskhistory.errors import TaskNotFound
from otel_taskhistory.spans.encode import quote, unescape_surrogates
from otel_taskhistory.store.pictures import put_back

ReadArtifact = Callable[[str], bytes]
"""Returns the bytes of an artifact by its path relative to the artifact folder."""

_TEMPLATE_BITS: Final = {"attributes": 1, "events": 2, "links": 4}

_SPAN: Final = """
SELECT trace.trace_id, own.span_id, own.parent_span_id, own.parent_remote, own.trace_state,
    own.flags, own.name, own.kind, own.start_ns, own.end_ns, own.status_code, own.status_message,
    own.attributes, own.events, own.links, own.resource, own.scope, own.dropped_attributes,
    own.dropped_events, own.dropped_links, own.marks, own.templates
FROM _spans AS own JOIN _traces AS trace ON trace.id = own.trace
WHERE trace.trace_id = ? AND own.span_id = ?
"""
_SPAN_KEYS: Final = (
    "trace_id",
    "span_id",
    "parent_span_id",
    "parent_remote",
    "trace_state",
    "flags",
    "name",
    "kind",
    "start_time_unix_nano",
    "end_time_unix_nano",
    "status_code",
    "status_message",
    "attributes",
    "events",
    "links",
    "resource",
    "scope",
    "dropped_attributes_count",
    "dropped_events_count",
    "dropped_links_count",
    "marks",
)


class Texts:
    """Texts put together from shared contents, within one read transaction.

    Args:
        read: puts pictures back as base64; None leaves the references.
    """

    def __init__(self, connection: sqlite3.Connection, read: ReadArtifact | None = None) -> None:
        self._connection = connection
        self._read = read
        self._known: dict[int, str] = {}
        self._chains: dict[int, tuple[int, ...]] = {}
        self.missing: list[str] = []
        """Paths of pictures that could not be read; their references stay."""

    def content(self, row: int) -> str:
        """The text of a content row, its template filled."""
        if row not in self._known:
            text, template, pictures = self._connection.execute(
                "SELECT text, template, pictures FROM _contents WHERE id = ?", (row,)
            ).fetchone()
            if template:
                text = self.filled(text)
            elif pictures and self._read is not None:
                text = put_back(text, self._pictures(row))
            self._known[row] = text
        return self._known[row]

    def filled(self, template: str) -> str:
        """The text that a template stands for; see `otel_taskhistory.store.migrations`."""
        pieces: list[str] = []
        for piece in json.loads(template):
            if isinstance(piece, str):
                pieces.append(piece)
            elif isinstance(piece, int):
                text = self.content(abs(piece))
                pieces.append(quote(text) if piece > 0 else text)
            else:
                node, opening, separator, closing = piece
                pieces.append(quote(opening + separator.join(self.messages(node)) + closing))
        return "".join(pieces)

    def chain(self, node: int) -> tuple[int, ...]:
        """The content rows of the messages from the first to `node`."""
        new: list[tuple[int, int]] = []
        at: int | None = node
        while at is not None and at not in self._chains:
            parent, content = self._connection.execute(
                "SELECT parent, content FROM _nodes WHERE id = ?", (at,)
            ).fetchone()
            new.append((at, content))
            at = parent
        before = () if at is None else self._chains[at]
        chain = (*before, *(content for _, content in reversed(new)))
        self._chains[node] = chain
        return chain

    def messages(self, node: int) -> list[str]:
        """The messages from the first to `node`, each as JSON."""
        return [self.content(content) for content in self.chain(node)]

    def said(self, node: int | None, text: int | None) -> str | None:
        """A prompt or decision: plain text, or a JSON list of messages."""
        if text is not None:
            return self.content(text)
        return None if node is None else f"[{', '.join(self.messages(node))}]"

    def _pictures(self, row: int) -> list[tuple[int, bytes]]:
        assert self._read is not None
        found = []
        for position, path in self._connection.execute(
            "SELECT placed.position, art.path FROM _content_pictures AS placed"
            " JOIN _artifacts AS art ON art.id = placed.artifact"
            " WHERE placed.content = ? ORDER BY placed.position",
            (row,),
        ).fetchall():
            try:
                found.append((position, self._read(path)))
            except (OSError, ValueError):
                self.missing.append(path)
        return found


def rebuild_prompt(connection: sqlite3.Connection, read: ReadArtifact, node: int) -> str:
    """A list of messages as JSON text, with its pictures in place as base64.

    A picture whose file is gone stays a reference, ``artifact:sha256:…``.
    """
    return f"[{', '.join(Texts(connection, read).messages(node))}]"


def rebuild_span(
    connection: sqlite3.Connection, read: ReadArtifact, trace_id: str, span_id: str
) -> dict[str, Any]:
    """A span exactly as it was recorded.

    Returns:
        The columns of the view ``spans`` and ``parent_remote`` (bool). ``attributes``, ``events``,
        ``links``, ``resource`` and ``scope`` are the JSON text that was encoded, of which
        `otel_taskhistory.spans.encode.decode` gives the values back; other texts have their lone
        surrogates again. Times are ints of any size. ``missing`` lists the paths of pictures that
        could not be put back.

    Raises:
        TaskNotFound: there is no such span.
    """
    row = connection.execute(_SPAN, (trace_id, span_id)).fetchone()
    if row is None:
        raise TaskNotFound(f"trace {trace_id} has no span {span_id}")
    *values, templates = row
    span = dict(zip(_SPAN_KEYS, values, strict=True))
    texts = Texts(connection, read)
    for column, bit in _TEMPLATE_BITS.items():
        if templates & bit:
            span[column] = texts.filled(span[column])
    for column in ("resource", "scope"):
        span[column] = texts.content(span[column])
    for column in ("start_time_unix_nano", "end_time_unix_nano"):
        if isinstance(span[column], str):  # beyond 64 bit
            span[column] = int(span[column])
    marks = json.loads(span["marks"]) if span["marks"] else []
    for column in ("name", "status_message", "trace_state"):
        if column in marks and span[column] is not None:
            span[column] = unescape_surrogates(span[column])
    span["parent_remote"] = bool(span["parent_remote"])
    span["missing"] = texts.missing
    return span
