# SPDX-License-Identifier: Apache-2.0
"""The rows of model calls, tool calls and screenshots, as the span that holds them says.

Which step and task they belong to is decided elsewhere and put in by `Calls.place`, or by
`otel_taskhistory.store.assembled` for a whole trace.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, overload

from otel_taskhistory import semconv
from otel_taskhistory.conventions.facts import ModelCall, Said, Screenshot, SpanFacts
from otel_taskhistory.spans.encode import escape_surrogates, escape_surrogates_in_json
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.contents import SHARE_FROM, Contents, compact
from otel_taskhistory.store.ledger import Written
from otel_taskhistory.store.pictures import might_hold_pictures
from otel_taskhistory.store.running import REMOVED
from otel_taskhistory.store.times import iso, optional_ns, sqlite_ns
from otel_taskhistory.store.upsert import Upsert

_CALL_COLUMNS: Final = (
    *("span", "ordinal", "status", "attempt", "started_ns", "ended_ns", "model", "prompt_node"),
    *("prompt_text", "decision_node", "decision_text", "finish_reason", "input_tokens"),
    *("output_tokens", "cached_tokens", "reasoning_tokens", "cost", "call_ids", "response_id"),
    *("error", "filled"),
)
_TOOL_COLUMNS: Final = (
    *("span", "call_id", "name", "status", "started_ns", "ended_ns", "arguments"),
    *("arguments_content", "result", "result_content", "error", "filled"),
)
_SHOT_COLUMNS: Final = (
    *("span", "role", "position", "sha256", "path", "media_type", "width", "height", "bytes"),
    *("caption", "captured_at", "status", "artifact"),
)


_CALL: Final = Upsert("_model_calls", _CALL_COLUMNS, key=2)
_TOOL: Final = Upsert("_tool_calls", _TOOL_COLUMNS, key=1)
# What lost its file (see `running`) does not get it back because its span comes again.
_SHOT: Final = Upsert("screenshots", _SHOT_COLUMNS, key=3, unless=("status", REMOVED))


@dataclass(frozen=True, slots=True)
class Change:
    """What `Calls.put` did.

    Attributes:
        made: there are rows that have not been placed yet.
        regressed: a prompt is gone that the span told of before: it may have been the first to
            show a picture.
    """

    made: bool
    regressed: bool


class Calls:
    """Over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, contents: Contents) -> None:
        self._connection = connection
        self._contents = contents

    def put(self, record: SpanRecord, facts: SpanFacts, written: Written) -> Change:
        """Write what a span holds, and take back what an earlier version of it held."""
        tool, shots = (None, 0) if written.new else self._held(written.row)
        made, regressed = self._put_calls(facts, written)
        made |= self._put_tool(record, facts, written, had_one=tool is not None)
        self._put_shots(facts, written, before=shots)
        return Change(made or bool(facts.screenshots), regressed)

    def _held(self, span: int) -> tuple[int | None, int]:
        """The tool call of a span as it was, and how many screenshots it had."""
        found: tuple[int | None, int] = self._connection.execute(
            "SELECT (SELECT id FROM _tool_calls WHERE span = ?), coalesce((SELECT"
            " max(position) + 1 FROM screenshots WHERE span = ? AND role = 'screenshot'), 0)",
            (span, span),
        ).fetchone()
        return found

    def drop(self, span: int) -> None:
        """The span announced another one, which has come and speaks for itself."""
        self._drop_calls(span, set())
        self._drop_tool(span)

    def place(self, span: int, task: int, step: int | None) -> None:
        """Put what a span of ours holds into its step and task."""
        execute = self._connection.execute
        execute("UPDATE _model_calls SET task = ?, step = ? WHERE span = ?", (task, step, span))
        execute("UPDATE _tool_calls SET task = ?, step = ? WHERE span = ?", (task, step, span))
        execute(
            "UPDATE screenshots SET task_id = (SELECT task_id FROM tasks WHERE id = :task),"
            " step_id = (SELECT span_id FROM _spans WHERE id = :span)"
            " WHERE span = :span AND role = 'screenshot' AND step_id IS NULL",
            {"task": task, "span": span},
        )

    # --- model calls ---

    def _put_calls(self, facts: SpanFacts, written: Written) -> tuple[bool, bool]:
        made = False
        before = {} if written.new else self._prompts(written.row)
        for call in facts.model_calls:
            prompt = self._said(call.prompt, written.trace, semconv.GEN_AI_INPUT_MESSAGES)
            decision = self._said(call.decision, written.trace, semconv.GEN_AI_OUTPUT_MESSAGES)
            put = _CALL.put(
                self._connection,
                (
                    *(written.row, call.ordinal, call.status, call.attempt),
                    *(sqlite_ns(call.started_ns), optional_ns(call.ended_ns), safe(call.model)),
                    *(*prompt, *decision, safe(call.finish_reason)),
                    *(call.tokens.input, call.tokens.output, call.tokens.cached),
                    *(call.tokens.reasoning, call.cost, _call_ids(call), safe(call.response_id)),
                    *(safe(call.error), 0),
                ),
            )
            made |= put.new
        if not before:
            return made, False
        wanted = {call.ordinal for call in facts.model_calls}
        if not before.keys() <= wanted:
            self._drop_calls(written.row, wanted)
        after = self._prompts(written.row)
        return made, any(after.get(ordinal) != prompt for ordinal, prompt in before.items())

    def _prompts(self, span: int) -> dict[int, tuple[Any, ...]]:
        found = self._connection.execute(
            "SELECT ordinal, prompt_node, prompt_text, started_ns FROM _model_calls WHERE span = ?",
            (span,),
        )
        return {row[0]: row[1:] for row in found}

    def _drop_calls(self, span: int, wanted: set[int]) -> None:
        found = self._connection.execute(
            "SELECT id, ordinal FROM _model_calls WHERE span = ?", (span,)
        ).fetchall()
        for row, ordinal in found:
            if ordinal not in wanted:
                execute = self._connection.execute
                execute("UPDATE _steps SET last_call = NULL WHERE last_call = ?", (row,))
                execute("UPDATE _model_calls SET twin_of = NULL WHERE twin_of = ?", (row,))
                execute("DELETE FROM _model_calls WHERE id = ?", (row,))

    def _said(self, said: Said | None, trace: int, name: str) -> tuple[int | None, int | None]:
        """(node, content) of a prompt or decision; at most one of them is set."""
        if said is None:
            return (None, None)
        if not said.structured:
            return (None, self._contents.text(escape_surrogates(said.raw)))
        node = self._contents.conversation(said.raw, (trace, name), said.system)
        if node is not None:
            return (node, None)
        text = said.raw if said.system is None else f"{said.system}\n{said.raw}"
        return (None, self._contents.text(escape_surrogates_in_json(text)))

    # --- tool calls ---

    def _put_tool(
        self, record: SpanRecord, facts: SpanFacts, written: Written, *, had_one: bool
    ) -> bool:
        call = facts.tool_call
        if call is None:
            if had_one:
                self._drop_tool(written.row)
            return False
        put = _TOOL.put(
            self._connection,
            (
                *(written.row, safe(call.call_id), safe(call.name), facts.status),
                # A span that only announces a call has no duration, but the call goes on.
                sqlite_ns(record.start_ns),
                None if facts.role == "pending" else optional_ns(record.end_ns),
                *(*self._value(call.arguments), *self._value(call.result), safe(facts.error), 0),
            ),
        )
        return put.new

    def _drop_tool(self, span: int) -> None:
        self._connection.execute(
            "UPDATE _steps SET first_tool = NULL WHERE first_tool ="
            " (SELECT id FROM _tool_calls WHERE span = ?)",
            (span,),
        )
        self._connection.execute(
            "UPDATE _tool_calls SET twin_of = NULL WHERE twin_of IN"
            " (SELECT id FROM _tool_calls WHERE span = ?)",
            (span,),
        )
        self._connection.execute("DELETE FROM _tool_calls WHERE span = ?", (span,))

    def _value(self, text: str | None) -> tuple[str | None, int | None]:
        """(inline text, content row); at most one of them is set."""
        if text is None:
            return (None, None)
        text = escape_surrogates(text)
        if len(text) < SHARE_FROM and not might_hold_pictures(text):
            return (text, None)
        return (None, self._contents.text(text))

    # --- screenshots ---

    def _put_shots(self, facts: SpanFacts, written: Written, *, before: int) -> None:
        for position, shot in enumerate(facts.screenshots):
            artifact = self._artifact(shot)
            # A span of another machine names a file that is there and not here.
            is_elsewhere = shot.path is not None and artifact is None
            _SHOT.put(
                self._connection,
                (
                    *(written.row, "screenshot", position, shot.sha256),
                    None if is_elsewhere else shot.path,
                    *(shot.media_type, shot.width, shot.height, shot.bytes, safe(shot.caption)),
                    iso(shot.captured_ns),
                    "not_stored" if is_elsewhere else shot.status,
                    artifact,
                ),
            )
        if before <= len(facts.screenshots):
            return
        gone = "span = ? AND role = 'screenshot' AND position >= ?"
        values = (written.row, len(facts.screenshots))
        self._connection.execute(
            "UPDATE _steps SET screenshot = NULL WHERE screenshot IN"
            f" (SELECT id FROM screenshots WHERE {gone})",
            values,
        )
        self._connection.execute(f"DELETE FROM screenshots WHERE {gone}", values)

    def _artifact(self, shot: Screenshot) -> int | None:
        """The row of the picture's file, if it is here."""
        if shot.path is None:
            return None
        found = "SELECT id FROM _artifacts WHERE sha256 = ?"
        row = self._connection.execute(found, (shot.sha256,)).fetchone()
        return int(row[0]) if row else None


@overload
def safe(text: str) -> str: ...
@overload
def safe(text: None) -> None: ...
def safe(text: str | None) -> str | None:
    """`text` as SQLite can hold it."""
    return None if text is None else escape_surrogates(text)


def _call_ids(call: ModelCall) -> str | None:
    return compact([safe(call_id) for call_id in call.call_ids]) if call.call_ids else None
