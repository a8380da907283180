# SPDX-License-Identifier: Apache-2.0
"""What the spans mean: tasks, steps, model calls, tool calls, screenshots and the timeline.

Spans of our own tracer name their role, so that each changes the few rows it is about. A trace
with spans of other instrumentations is assembled anew from its span rows, once per transaction.
Either way the rows follow from the set of spans alone, not from the order in which they came;
only the timeline keeps that order.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final, overload

from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts
from otel_taskhistory.spans.encode import escape_surrogates, escape_surrogates_in_json
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.assembled import TraceAssembler
from otel_taskhistory.store.contents import SHARE_FROM, Contents, compact
from otel_taskhistory.store.inputs import InputPictures
from otel_taskhistory.store.ledger import Written
from otel_taskhistory.store.pictures import might_hold_pictures
from otel_taskhistory.store.rows import Rows, StepFields, TaskFields
from otel_taskhistory.store.times import iso, optional_ns, sqlite_ns

_UPSERT_CALL: Final = """
INSERT INTO _model_calls (span, ordinal, step, task, status, attempt, started_ns, ended_ns, model,
    prompt_node, prompt_text, decision_node, decision_text, finish_reason, input_tokens,
    output_tokens, cached_tokens, reasoning_tokens, cost, call_ids, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (span, ordinal) DO UPDATE SET step = coalesce(excluded.step, step),
    task = coalesce(excluded.task, task), status = excluded.status, attempt = excluded.attempt,
    started_ns = excluded.started_ns, ended_ns = excluded.ended_ns, model = excluded.model,
    prompt_node = excluded.prompt_node, prompt_text = excluded.prompt_text,
    decision_node = excluded.decision_node, decision_text = excluded.decision_text,
    finish_reason = excluded.finish_reason, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
    reasoning_tokens = excluded.reasoning_tokens, cost = excluded.cost,
    call_ids = excluded.call_ids, error = excluded.error
"""

_UPSERT_TOOL: Final = """
INSERT INTO _tool_calls (span, step, task, call_id, name, status, started_ns, ended_ns, arguments,
    arguments_content, result, result_content, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (span) DO UPDATE SET step = coalesce(excluded.step, step),
    task = coalesce(excluded.task, task), call_id = excluded.call_id, name = excluded.name,
    status = excluded.status, started_ns = excluded.started_ns, ended_ns = excluded.ended_ns,
    arguments = excluded.arguments, arguments_content = excluded.arguments_content,
    result = excluded.result, result_content = excluded.result_content, error = excluded.error
"""

_INSERT_SHOT: Final = """
INSERT INTO screenshots (task_id, step_id, role, sha256, path, media_type, width, height, bytes,
    caption, captured_at, status, span, position, artifact)
VALUES (?, ?, 'screenshot', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    (SELECT id FROM _artifacts WHERE sha256 = ?))
ON CONFLICT (span, role, position) DO NOTHING
"""


class Projection:
    """Keeps the public tables true; a transaction is open whenever a method runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        contents: Contents,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._connection = connection
        self._contents = contents
        self._clock = clock
        self._rows = Rows(connection)
        self._inputs = InputPictures(connection)
        self._assembler = TraceAssembler(connection, self._rows, self._inputs)
        self._dirty: dict[int, str] = {}

    def apply(self, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        """Take one span into account that the ledger has just written."""
        if not written.changed:
            return
        if facts.own:
            self._own(record, facts, written)
            if self._rows.is_assembled(written.trace):
                self._dirty[written.trace] = record.trace_id
        else:
            self._foreign(record, facts, written)

    def finish(self) -> None:
        """Do what is done once per transaction; to be called before its commit."""
        now = self._clock()
        for trace, trace_id in self._dirty.items():
            self._assembler.assemble(trace, trace_id)
        self._dirty.clear()
        self._rows.touch(now)

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._dirty.clear()
        self._rows.forget()
        self._inputs.forget()

    # --- spans of our own tracer ---

    def _own(self, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        task = self._task(record, written)
        if facts.role == "task":
            self._rows.put_task(task, task_fields(record, facts, written.row))
        elif facts.role == "step":
            self._own_step(task, record, facts, written)
        elif facts.role == "tool":
            step = self._rows.step_by_span_id(written.trace, record.parent_span_id)
            self._put_tool(record, facts, written, task, step)
            if step is not None:
                self._rows.refresh_step(step)

    def _task(self, record: SpanRecord, written: Written) -> int:
        """The task of a span of ours, or of one below a task of ours: the trace itself."""
        task = self._rows.task_row(
            written.trace, record.trace_id, record.trace_id, sqlite_ns(record.start_ns), "agent"
        )
        dropped = record.dropped_attributes + record.dropped_events + record.dropped_links
        self._rows.count_span(
            task, written.row, new=written.new, dropped=dropped - written.dropped_before
        )
        return task

    def _own_step(self, task: int, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        result, result_content = self._value(facts.result)
        fields = StepFields(
            task=task,
            span=written.row,
            step_index=facts.step_index or 0,
            name=escape_surrogates(record.name),
            agent=safe(facts.agent),
            status=facts.status,
            attempt=facts.attempt,
            started_ns=sqlite_ns(record.start_ns),
            ended_ns=optional_ns(record.end_ns),
            error=safe(facts.error),
            error_type=safe(facts.error_type),
            result=result,
            result_content=result_content,
        )
        step, new = self._rows.put_step(fields)
        if new:
            self._rows.adopt_tools(written.trace, record.span_id, step)
        self._put_calls(record, facts, written, task, step)
        for position, shot in enumerate(facts.screenshots):
            self._connection.execute(
                _INSERT_SHOT,
                (
                    *(record.trace_id, record.span_id, shot.sha256, shot.path, shot.media_type),
                    *(shot.width, shot.height, shot.bytes, safe(shot.caption)),
                    *(iso(shot.captured_ns), shot.status, written.row, position, shot.sha256),
                ),
            )
        self._inputs.of_calls(written.row)
        self._rows.refresh_step(step)

    # --- spans of other instrumentations ---

    def _foreign(self, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        if facts.role == "other" and self._rows.has_own_root(written.trace):
            # A web request below one of our steps: kept in the ledger, part of the task.
            self._task(record, written)
            return
        self._put_calls(record, facts, written, None, None)
        if facts.tool_call is not None:
            self._put_tool(record, facts, written, None, None)
        self._rows.mark_assembled(written.trace)
        self._dirty[written.trace] = record.trace_id

    # --- both ---

    def _put_calls(
        self,
        record: SpanRecord,
        facts: SpanFacts,
        written: Written,
        task: int | None,
        step: int | None,
    ) -> None:
        for call in facts.model_calls:
            prompt = self._said(call.prompt, written.trace, "prompt")
            decision = self._said(call.decision, written.trace, "decision")
            self._connection.execute(
                _UPSERT_CALL,
                (
                    *(written.row, call.ordinal, step, task, call.status, call.attempt),
                    *(sqlite_ns(call.started_ns), optional_ns(call.ended_ns), safe(call.model)),
                    *(*prompt, *decision, safe(call.finish_reason)),
                    *(call.tokens.input, call.tokens.output, call.tokens.cached),
                    *(call.tokens.reasoning, call.cost, _call_ids(call), safe(call.error)),
                ),
            )

    def _said(self, said: Said | None, trace: int, memo: str) -> tuple[int | None, int | None]:
        """(node, content) of a prompt or decision; at most one of them is set."""
        if said is None:
            return (None, None)
        if said.structured:
            raw = escape_surrogates_in_json(said.raw)
            base = None
            if said.system is not None:
                instructions = (
                    f'{{"role": "system", "parts": {escape_surrogates_in_json(said.system)}}}'
                )
                base = self._contents.chain([self._contents.message(instructions)])
            listing = self._contents.messages(raw, (trace, memo), base)
            if listing is not None:
                return (listing.node, None)
            if base is not None and raw.strip() == "[]":
                return (base, None)
            return (None, self._contents.text(raw))
        return (None, self._contents.text(escape_surrogates(said.raw)))

    def _put_tool(
        self,
        record: SpanRecord,
        facts: SpanFacts,
        written: Written,
        task: int | None,
        step: int | None,
    ) -> None:
        call = facts.tool_call
        assert call is not None
        self._connection.execute(
            _UPSERT_TOOL,
            (
                *(written.row, step, task, safe(call.call_id), safe(call.name), facts.status),
                *(sqlite_ns(record.start_ns), optional_ns(record.end_ns)),
                *(*self._value(call.arguments), *self._value(call.result), safe(facts.error)),
            ),
        )
        self._inputs.of_result(written.row)

    def _value(self, text: str | None) -> tuple[str | None, int | None]:
        """(inline text, content row); at most one of them is set."""
        if text is None:
            return (None, None)
        text = escape_surrogates(text)
        if len(text) < SHARE_FROM and not might_hold_pictures(text):
            return (text, None)
        return (None, self._contents.text(text))


def task_fields(record: SpanRecord, facts: SpanFacts, span: int, kind: str = "agent") -> TaskFields:
    """What a root span says of its task."""
    return TaskFields(
        root=span,
        kind=kind,
        agent=safe(facts.agent),
        status=facts.status,
        started_ns=sqlite_ns(record.start_ns),
        ended_ns=optional_ns(record.end_ns),
        conversation_id=safe(facts.conversation_id),
        parent_task_id=safe(facts.parent_task_id),
        attempt=facts.attempt,
        error_type=safe(facts.error_type),
        key=safe(facts.key),
        goal=safe(facts.goal),
        result=safe(facts.result),
        error=safe(facts.error),
    )


@overload
def safe(text: str) -> str: ...
@overload
def safe(text: None) -> None: ...
def safe(text: str | None) -> str | None:
    """`text` as SQLite can hold it."""
    return None if text is None else escape_surrogates(text)


def _call_ids(call: ModelCall) -> str | None:
    return compact(list(call.call_ids)) if call.call_ids else None
