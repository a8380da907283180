# SPDX-License-Identifier: Apache-2.0
"""Recordings of real instrumentations in a real history, and what it then says in short.

A recording is ``NAME.jsonl`` (spans) and, where there were any, ``NAME.logs.jsonl`` (log records
within those spans).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otel_taskhistory import conventions
from otel_taskhistory.store.writer import Entry
from tests.otlp import logs_in, logs_of, records_in
from tests.store.deliveries import NOON, rows, stored

RECORDINGS = Path(__file__).parents[1] / "data" / "corpus"
GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(file.stem for file in RECORDINGS.glob("*.jsonl") if not file.stem.endswith(".logs"))


ONE_OF_EACH = sorted({name.rpartition("__")[0]: name for name in NAMES}.values())
"""One recording of each instrumentation, for what takes long and looks at all of a history."""


def family(name: str) -> str:
    """The framework of a recording, which names the file of its golden tables."""
    return name.partition("__")[0]


def entries(name: str) -> list[Entry]:
    """The spans of a recording in the order of their arrival, with what its logs say of them."""
    file = RECORDINGS / f"{name}.logs.jsonl"
    logs = list(logs_in(file)) if file.exists() else []
    return [
        Entry(record, conventions.read(record, logs_of(record, logs)), NOON)
        for record in records_in(RECORDINGS / f"{name}.jsonl")
    ]


def history(directory: Path, batches: Iterable[list[Entry]]) -> Path:
    """The database of a history of these batches, closed: nothing more will come."""
    return stored(directory, list(batches))


def table(database: Path) -> list[dict[str, Any]]:
    """The tasks of a history in the order of their start, with steps and tools, in short."""
    tasks = rows(database, "SELECT * FROM tasks ORDER BY started_ns, task_id")
    return [_task(database, task) for task in tasks]


def _task(database: Path, task: dict[str, Any]) -> dict[str, Any]:
    steps = rows(
        database,
        "SELECT * FROM steps WHERE task_id = ? ORDER BY step_index, step_id",
        task["task_id"],
    )
    tools = rows(
        database,
        "SELECT * FROM tool_calls WHERE task_id = ? ORDER BY started_at, span_id",
        task["task_id"],
    )
    facts = {
        "task": _short_id(task["task_id"]),
        "kind": task["kind"],
        "status": task["status"],
        "agent": task["agent"],
        "goal": ends(task["goal"]),
        "result": ends(task["result"]),
        "error": ends(task["error"]),
        "error_type": task["error_type"],
        "model": task["model"],
        "tokens": _tokens(task),
        "cost": task["cost"],
        "conversation": task["conversation_id"],
        "parent": task["parent_task_id"] and _short_id(task["parent_task_id"]),
        "spans": task["span_count"],
        "steps": [_step(step, tools) for step in steps],
        "tools_of_no_step": [_tool(tool) for tool in tools if tool["step_id"] is None],
    }
    return {name: value for name, value in facts.items() if value not in (None, [])}


def _step(step: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    facts = {
        "index": step["step_index"],
        "name": ends(step["name"]),
        "agent": step["agent"],
        "status": step["status"],
        "error": ends(step["error"]),
        "attempt": step["attempt"] if step["attempt"] != 1 else None,
        "model": step["model"],
        "prompt": said(step["prompt"]),
        "decision": said(step["decision"]),
        "result": ends(step["result"]),
        "tokens": _tokens(step),
        "tools": [_tool(tool) for tool in tools if tool["step_id"] == step["step_id"]],
    }
    return {name: value for name, value in facts.items() if value not in (None, [])}


def _tool(tool: dict[str, Any]) -> str:
    """``name status arguments → result``."""
    given, result = ends(tool["arguments"], 3), ends(tool["result"] or tool["error"], 3)
    return f"{tool['name']} {tool['status']} {given or ''} → {result or ''}".strip()


def _tokens(row: dict[str, Any]) -> list[int | None] | None:
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    found = [row[name] for name in names]
    return found if any(number is not None for number in found) else None


def _short_id(task_id: str) -> str:
    trace, dash, span = task_id.partition("-")
    return trace[:8] + dash + span[:8]


def said(text: str | None) -> str | None:
    """The first and last words of a prompt or decision: who says what, and how much there is."""
    if text is None:
        return None
    messages = json.loads(text) if text.startswith("[") and text.endswith("]") else None
    if not isinstance(messages, list):
        return f"text: {ends(text)}"
    parts = [
        f"{message['role']} {_part(part)}" for message in messages for part in message["parts"]
    ]
    if len(parts) < 3:
        return " | ".join(parts)
    return f"{parts[0]} | … {len(parts) - 2} … | {parts[-1]}"


def _part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    found = next(
        (part[key] for key in ("content", "name", "response", "result", "uri") if part.get(key)), ""
    )
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return f"{kind}: {ends(text, 3)}"


def ends(text: str | None, words: int = 4) -> str | None:
    """The first and last words of a text, each cut when it is long."""
    if text is None:
        return None
    found = [word if len(word) <= 24 else f"{word[:20]}…" for word in text.split()]
    if len(found) <= 2 * words:
        return " ".join(found)
    return " ".join([*found[:words], "…", *found[-words:]])
