# SPDX-License-Identifier: Apache-2.0
"""What the rows of a trace say of its spans and calls, as assembly takes it."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from otel_taskhistory.store.tree import Seen
from otel_taskhistory.store.twins import FILLABLE, TOOL_FILLABLE, Call

Facts = dict[str, Any]
"""See `Ledger`: texts as they are, or the numbers of their content rows."""

Text = Callable[[str | int | None], str | None]
"""Gives a text of the facts, wherever it is."""

OF_TRACE: Final = "own.trace = ?"
TASKS: Final = "own.trace = ? AND own.role = 'task'"
ONE: Final = "own.trace = ? AND own.span_id = ?"
SOME: Final = "own.id IN (SELECT value FROM json_each(?))"

_SPANS: Final = """
SELECT own.id, own.span_id, own.parent_span_id, own.parent_remote, own.start_ns, own.end_ns,
    own.role, own.name, own.facts, own.task, own.scope,
    own.dropped_attributes + own.dropped_events + own.dropped_links,
    (SELECT ended_ns FROM _processes WHERE id = own.process)
FROM _spans AS own WHERE {where}
"""

CALL_COLUMNS: Final = tuple(chain.from_iterable(FILLABLE))
_CALLS: Final = f"""
SELECT call.id, call.span, own.span_id, call.started_ns, call.ordinal, call.response_id,
    call.attempt, call.call_ids, NULL, call.filled, call.twin_of, call.step, call.task,
    call.nested, {", ".join(f"call.{name}" for name in CALL_COLUMNS)}
FROM _spans AS own JOIN _model_calls AS call ON call.span = own.id WHERE {{where}}
"""

TOOL_COLUMNS: Final = tuple(chain.from_iterable(TOOL_FILLABLE))
_TOOLS: Final = f"""
SELECT call.id, call.span, own.span_id, call.started_ns, 0, NULL,
    1, NULL, call.name, call.filled, call.twin_of, call.step, call.task,
    0, {", ".join(f"call.{name}" for name in TOOL_COLUMNS)}
FROM _spans AS own JOIN _tool_calls AS call ON call.span = own.id WHERE {{where}}
"""
_FIRST_PLACED, _FIRST_SAID = 9, 14

_MODEL, _INPUT, _OUTPUT = (
    FILLABLE.index((name,)) for name in ("model", "input_tokens", "output_tokens")
)
_CALL_ID: Final = TOOL_FILLABLE.index(("call_id",))


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span as assembly sees it, and what else its rows need."""

    seen: Seen
    name: str
    facts: Facts
    task: int | None
    dropped: int = 0
    """How much of it the SDK has dropped."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """A row of ``_model_calls`` or ``_tool_calls``."""

    call: Call
    attempt: int
    call_ids: tuple[str, ...]
    tool: str | None
    placed: tuple[Any, ...]
    """Its columns from ``filled`` on, to see whether they have to be written."""


def model_calls(connection: sqlite3.Connection, where: str, value: Any) -> list[CallRow]:
    """The model calls of a trace (`OF_TRACE`) or of some of its spans (`SOME`)."""
    found = connection.execute(_CALLS.format(where=where), (value,))
    return [_call(row, FILLABLE) for row in found.fetchall()]


def tool_calls(connection: sqlite3.Connection, where: str, value: Any) -> list[CallRow]:
    """The tool calls, likewise."""
    found = connection.execute(_TOOLS.format(where=where), (value,))
    return [_call(row, TOOL_FILLABLE) for row in found.fetchall()]


def spans(
    connection: sqlite3.Connection,
    where: str,
    values: tuple[Any, ...],
    text: Text,
    calls: Iterable[CallRow] = (),
) -> dict[int, SpanRow]:
    """Spans by row.

    Args:
        where: `OF_TRACE`, `TASKS`, `ONE` or `SOME`.
        values: those that it asks for.
        text: see `Text`.
        calls: model and tool calls of these spans, as far as they matter.
    """
    of_span: dict[int, list[CallRow]] = defaultdict(list)
    for call in calls:
        of_span[call.call.span].append(call)
    found = connection.execute(_SPANS.format(where=where), values).fetchall()
    parsed: dict[str, Facts] = {}  # many spans say the same
    return {row[0]: _span(row, of_span.get(row[0], []), text, parsed) for row in found}


def facts_of(rows: Mapping[int, SpanRow]) -> dict[int, Facts]:
    """The facts alone."""
    return {row: span.facts for row, span in rows.items()}


def _call(row: tuple[Any, ...], fillable: tuple[tuple[str, ...], ...]) -> CallRow:
    said, at = [], _FIRST_SAID
    for names in fillable:
        said.append(row[at : at + len(names)])
        at += len(names)
    call = Call(
        id=row[0],
        span=row[1],
        span_id=row[2],
        started_ns=row[3],
        said=tuple(said),
        ordinal=row[4],
        response_id=row[5],
        filled=row[_FIRST_PLACED],
        twin_of=row[_FIRST_PLACED + 1],
    )
    call_ids = tuple(json.loads(row[7])) if row[7] else ()
    return CallRow(call, row[6], call_ids, row[8], row[_FIRST_PLACED:])


def _span(
    row: tuple[Any, ...], calls: list[CallRow], text: Text, parsed: dict[str, Facts]
) -> SpanRow:
    facts = parsed.get(row[8])
    if facts is None:
        facts = parsed[row[8]] = json.loads(row[8])
    if row[6] == "pending":
        facts = {**facts, "status": "running"}  # what it announces has not ended
    if row[12] is not None:  # open, and its process has ended
        facts = {**facts, "status": "interrupted", "interrupted_ns": row[12]}
    said: dict[str, Any] = {}
    for call in calls:
        said |= _of_tool(call) if call.tool is not None else _of_model(call, calls)
    seen = Seen(
        row=row[0],
        span_id=row[1],
        parent_span_id=row[2],
        parent_remote=bool(row[3]),
        start_ns=int(row[4]),
        end_ns=None if row[5] is None else int(row[5]),
        role=row[6],
        own=facts.get("own", False),
        status=facts["status"],
        agent=text(facts.get("agent")),
        attempt=facts.get("attempt", 1),
        step_index=facts.get("step_index"),
        has_result=facts.get("result") not in (None, ""),
        linked=facts.get("linked"),
        announces=facts.get("announces"),
        announced_parent=facts.get("announced_parent"),
        acts_as=_acts_as(calls, facts) if row[6] == "pending" else "other",
        scope=row[10],
        **said,
    )
    return SpanRow(seen, row[7], facts, row[9], row[11])


def _of_tool(row: CallRow) -> dict[str, Any]:
    return {"tool": row.tool, "call_id": row.call.own.said[_CALL_ID][0]}


def _of_model(row: CallRow, calls: list[CallRow]) -> dict[str, Any]:
    """What the model calls of a span say that may make it the same call as another one."""
    said: dict[str, Any] = {
        "asked_for": frozenset(chain.from_iterable(call.call_ids for call in calls)),
        "response_ids": frozenset(
            call.call.response_id for call in calls if call.call.response_id is not None
        ),
        "call_attempt": calls[0].attempt,
    }
    if len(calls) == 1:
        own = row.call.own.said
        said |= {"model": own[_MODEL][0], "tokens": (own[_INPUT][0], own[_OUTPUT][0])}
    return said


def _acts_as(calls: list[CallRow], facts: Facts) -> str:
    """What a span that announces another one tells of the role that it will have."""
    if any(call.tool is not None for call in calls):
        return "tool"
    if calls:
        return "model"
    # A run of an agent is given something to do, or is what the trace is about.
    begins = "goal" in facts or "announced_parent" not in facts
    return "agent" if "agent" in facts and begins else "other"
