# SPDX-License-Identifier: Apache-2.0
"""Spans made by hand, handed to a real store, and what its public tables then say."""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from otel_taskhistory import conventions, semconv
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import EventRecord, SpanRecord
from otel_taskhistory.store.writer import Entry, Writer

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECOND = 10**9
NOON = 1_790_000_000 * SECOND

PUBLIC = {
    "tasks": ("id", "trace", "root", "committed_ns", "bytes"),
    "steps": (),
    "model_calls": (),
    "tool_calls": (),
    "spans": (),
    "screenshots": ("id", "span", "position", "told", "artifact"),
}
"""Public names, and the columns that are internal keys or depend on when things were committed."""


def span(number: int, parent: int | None = None, **said: Any) -> SpanRecord:
    """A span; `start` and `end` are in seconds after noon, `end=None` for one that runs."""
    start, end = said.pop("start", number), said.pop("end", number + 0.5)
    said.setdefault("name", f"span {number}")
    return SpanRecord(
        trace_id=said.pop("trace_id", TRACE),
        span_id=span_id(number),
        parent_span_id=None if parent is None else span_id(parent),
        start_ns=NOON + int(start * SECOND),
        end_ns=None if end is None else NOON + int(end * SECOND),
        **said,
    )


def span_id(number: int) -> str:
    """The id of the span with this number."""
    return f"{number:016x}"


def own_task(number: int = 1, parent: int | None = None, **said: Any) -> SpanRecord:
    """A task span as our tracer makes it."""
    attributes = {
        semconv.TASKHISTORY_ROLE: "task",
        semconv.TASKHISTORY_TASK_GOAL: "a goal",
        semconv.TASKHISTORY_TASK_ATTEMPT: 1,
        semconv.GEN_AI_OPERATION_NAME: "invoke_agent",
        semconv.GEN_AI_AGENT_NAME: "desk",
    }
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def own_step(number: int, parent: int = 1, index: int | None = None, **said: Any) -> SpanRecord:
    """A step span as our tracer makes it; `prompt` and `decision` are GenAI messages."""
    attributes: dict[str, Any] = {
        semconv.TASKHISTORY_ROLE: "step",
        semconv.GEN_AI_AGENT_NAME: "desk",
        semconv.TASKHISTORY_STEP_INDEX: number if index is None else index,
    }
    attributes |= call(said.pop("prompt", None), said.pop("decision", None), number)
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def call(prompt: Any, decision: Any, at: float) -> dict[str, Any]:
    """The attributes of a model call that began `at` seconds and took a tenth of one."""
    attributes: dict[str, Any] = {}
    if prompt is not None:
        attributes[semconv.GEN_AI_INPUT_MESSAGES] = text(prompt)
        attributes[semconv.TASKHISTORY_CALL_STARTED] = NOON + int(at * SECOND)
    if decision is not None:
        attributes[semconv.GEN_AI_OUTPUT_MESSAGES] = text(decision)
        attributes[semconv.TASKHISTORY_CALL_ENDED] = NOON + int((at + 0.1) * SECOND)
    return attributes


def earlier_call(prompt: Any, decision: Any, at: float) -> EventRecord:
    """The event that an earlier model call of a step becomes."""
    return EventRecord(
        semconv.GEN_AI_INFERENCE_DETAILS_EVENT,
        NOON + int((at + 0.1) * SECOND),
        call(prompt, decision, at),
    )


def own_tool(number: int, parent: int, **said: Any) -> SpanRecord:
    """A tool call span as our tracer makes it."""
    attributes = {
        semconv.TASKHISTORY_ROLE: "tool_call",
        semconv.GEN_AI_OPERATION_NAME: "execute_tool",
        semconv.GEN_AI_TOOL_NAME: "look",
        semconv.GEN_AI_TOOL_CALL_ARGUMENTS: '{"at": 1}',
    }
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def model(number: int, parent: int | None, **said: Any) -> SpanRecord:
    """A model span of another instrumentation."""
    attributes: dict[str, Any] = {
        semconv.GEN_AI_OPERATION_NAME: "chat",
        semconv.GEN_AI_REQUEST_MODEL: "model-1",
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 10,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 2,
    }
    for key, messages in (
        (semconv.GEN_AI_INPUT_MESSAGES, said.pop("prompt", None)),
        (semconv.GEN_AI_OUTPUT_MESSAGES, said.pop("decision", None)),
    ):
        if messages is not None:
            attributes[key] = text(messages)
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def tool(number: int, parent: int | None, call_id: str | None = None, **said: Any) -> SpanRecord:
    """A tool span of another instrumentation."""
    attributes = {
        semconv.GEN_AI_OPERATION_NAME: "execute_tool",
        semconv.GEN_AI_TOOL_NAME: "search",
        semconv.GEN_AI_TOOL_CALL_RESULT: "found",
    }
    if call_id is not None:
        attributes[semconv.GEN_AI_TOOL_CALL_ID] = call_id
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def agent(number: int, parent: int | None, name: str = "helper", **said: Any) -> SpanRecord:
    """An agent span of another instrumentation."""
    attributes = {
        semconv.GEN_AI_OPERATION_NAME: "invoke_agent",
        semconv.GEN_AI_AGENT_NAME: name,
    }
    return span(number, parent, attributes=attributes | said.pop("attributes", {}), **said)


def message(content: str, role: str = "user") -> dict[str, Any]:
    """A GenAI message of one text."""
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asks(*call_ids: str) -> list[dict[str, Any]]:
    """A decision that asks for tools."""
    parts = [{"type": "tool_call", "id": one, "name": "search"} for one in call_ids]
    return [{"role": "assistant", "parts": parts}]


def text(value: Any) -> str:
    """`value` as JSON, strings as they are."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def png(seed: int, noise: int = 0) -> bytes:
    """A small picture, another one for each seed; `noise` makes it about so many bytes longer."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    pixels = zlib.compress(b"\0" + bytes([seed % 256, seed // 256 % 256, 7]))
    extra = chunk(b"tEXt", b"n\0" + bytes(33 + (seed * i * i) % 90 for i in range(noise)))
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + (extra if noise else b"")
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def data_url(data: bytes, media_type: str = "image/png") -> str:
    """A picture as people put it into messages."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def picture_part(data: bytes) -> dict[str, Any]:
    """A GenAI part with a picture in it."""
    content = base64.b64encode(data).decode()
    return {"type": "blob", "modality": "image", "mime_type": "image/png", "content": content}


def entry(record: SpanRecord, seen: int = 0) -> Entry:
    """A record as the exporter hands it over, `seen` ns after it began."""
    return Entry(record, conventions.read(record), NOON + seen)


@contextmanager
def store(directory: Path) -> Iterator[Writer]:
    """A real store in `directory`, closed at the end."""
    writer = Writer(Settings.resolve(directory=directory, durability="normal"), clock=lambda: NOON)
    try:
        yield writer
    finally:
        writer.close()


def write(writer: Writer, deliveries: Iterable[SpanRecord | Entry]) -> None:
    """Commit deliveries in one transaction; nothing may be lost or reduced."""
    entries = [one if isinstance(one, Entry) else entry(one) for one in deliveries]
    before = writer.counters.lost, writer.counters.reduced, dict(writer.counters.by_error)
    job = writer.submit(entries, durable=False)
    assert job.stored
    assert (writer.counters.lost, writer.counters.reduced, writer.counters.by_error) == before


def stored(directory: Path, batches: Sequence[Sequence[SpanRecord | Entry]]) -> Path:
    """A history of these batches, a transaction each; returns its database."""
    with store(directory) as writer:
        for batch in batches:
            write(writer, batch)
    return directory / "history.db"


def rows(database: Path, sql: str, *values: Any) -> list[dict[str, Any]]:
    """The rows of a query over a connection of its own."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, values)]


def public(database: Path) -> dict[str, list[str]]:
    """The public tables, as rows of JSON in an order that says nothing."""
    found: dict[str, list[str]] = {}
    # One connection: to read the schema takes longer than to read a small table.
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        for name, internal in PUBLIC.items():
            found[name] = sorted(
                json.dumps({key: row[key] for key in row.keys() if key not in internal})  # noqa: SIM118
                for row in connection.execute(f"SELECT * FROM {name}")
            )
    return found


def check(database: Path) -> None:
    """What holds for every history: SQLite finds nothing wrong, and no reference leads nowhere."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
