# SPDX-License-Identifier: Apache-2.0
"""One recorded value, a window of it at a time, however large it is.

A value is named by its part: ``prompt``, ``prompt/3`` (its third message), ``decision``,
``result``, ``error``, ``model_calls/2/prompt``, ``tool_calls/5/result``, ``stack_traces/1``; of a
task ``goal``, ``result`` or ``error``. It is read from its beginning, as characters can be counted
only so, but no more of it is kept than a chunk and the window.
"""

from __future__ import annotations

import codecs
import re
import sqlite3
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store.details import stack_traces
from otel_taskhistory.store.overview.steps import span_of_step
from otel_taskhistory.store.rebuild import Texts

_CHUNK: Final = 256 * 1024
_PART: Final = re.compile(
    r"(?:(model_calls|tool_calls)/([1-9][0-9]{0,8})/)?([a-z]+)(?:/([1-9][0-9]{0,8}))?"
)
_STACK: Final = re.compile(r"stack_traces/([1-9][0-9]{0,8})")

OF_TASK: Final = ("goal", "result", "error")
OF_STEP: Final = (
    "prompt, prompt/N (a message of it), decision, decision/N, result, error,"
    " model_calls/N/prompt, model_calls/N/prompt/N, model_calls/N/decision, model_calls/N/error,"
    " tool_calls/N/arguments, tool_calls/N/result, tool_calls/N/error, stack_traces/N"
)

_SAID: Final = "call.prompt_node, call.prompt_text, call.decision_node, call.decision_text"
LAST_CALL: Final = f"""
SELECT call.id, {_SAID} FROM _steps AS step JOIN _model_calls AS call ON call.id = step.last_call
WHERE step.id = ?
"""
MODEL_CALL: Final = f"""
SELECT call.id, {_SAID} FROM _model_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? AND call.twin_of IS NULL
ORDER BY call.started_ns, own.span_id, call.ordinal LIMIT 1 OFFSET ?
"""
TOOL_CALL: Final = """
SELECT call.id, call.arguments_content, call.result_content
FROM _tool_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? AND call.twin_of IS NULL
ORDER BY call.started_ns, own.span_id LIMIT 1 OFFSET ?
"""


@dataclass(slots=True)
class Window:
    """Takes a text in any number of pieces and keeps the characters from `offset` on."""

    offset: int
    most: int
    total: int = 0
    _kept: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """The next piece of the text."""
        start = max(self.offset - self.total, 0)
        end = self.offset + self.most - self.total
        if start < end:
            self._kept.append(text[start:end])
        self.total += len(text)

    @property
    def text(self) -> str:
        """What stands in the window."""
        return "".join(self._kept)


def read_task_value(
    connection: sqlite3.Connection, task_id: str, part: str, window: Window
) -> None:
    """Read a value of a task (a whole id) into a window.

    Raises:
        SettingsError: there is no such part, or nothing in it.
    """
    if part not in OF_TASK:
        raise SettingsError(
            f"a task has no part {part!r}: it has {', '.join(OF_TASK)}; the parts of a step"
            f" ({OF_STEP}) need step= as well"
        )
    row = connection.execute(
        f"SELECT id, {part} IS NOT NULL FROM tasks WHERE task_id = ?", (task_id,)
    ).fetchone()
    if not row[1]:
        raise _nothing(part)
    _blob(connection, "tasks", part, row[0], window)


def read_step_value(
    connection: sqlite3.Connection, task_id: str, step_id: str, part: str, window: Window
) -> None:
    """Read a value of a step (whole ids) into a window.

    Raises:
        SettingsError: there is no such part, or nothing in it.
        TaskNotFound: there is no such step.
    """
    span, _ = span_of_step(connection, task_id, step_id)
    (step,) = connection.execute("SELECT id FROM _steps WHERE span = ?", (span,)).fetchone()
    if found := _STACK.fullmatch(part):
        stacks = stack_traces(connection, task_id, step_id)
        if int(found[1]) > len(stacks):
            raise SettingsError(f"there is no {part}: the step has {len(stacks)} stack traces")
        window.add(stacks[int(found[1]) - 1][1])
        return
    match = _PART.fullmatch(part)
    if match is None:
        raise _unknown(part)
    calls, number, what, message = match.groups()
    if what in ("prompt", "decision") and calls != "tool_calls":
        sql, values = (MODEL_CALL, (step, int(number) - 1)) if calls else (LAST_CALL, (step,))
        row = connection.execute(sql, values).fetchone()
        node, text = (None, None) if row is None else row[1:3] if what == "prompt" else row[3:5]
        _said(connection, node, text, message, part, window)
    elif message is not None:
        raise _unknown(part)
    elif calls is None:
        _of_row(connection, "_steps", step, what, ("result", "error"), part, window)
    else:
        sql = MODEL_CALL if calls == "model_calls" else TOOL_CALL
        row = connection.execute(sql, (step, int(number) - 1)).fetchone()
        if row is None:
            raise SettingsError(f"there is no {part}: the step has fewer of them")
        known = ("error",) if calls == "model_calls" else ("arguments", "result", "error")
        _of_row(connection, f"_{calls}", row[0], what, known, part, window)


def _of_row(
    connection: sqlite3.Connection,
    table: str,
    row: int,
    column: str,
    known: tuple[str, ...],
    part: str,
    window: Window,
) -> None:
    """A value that stands in its row, or by content when it is not short."""
    if column not in known:
        raise _unknown(part)
    content: Any = "NULL" if column == "error" else f"{column}_content"
    inline, content = connection.execute(
        f"SELECT {column} IS NOT NULL, {content} FROM {table} WHERE id = ?", (row,)
    ).fetchone()
    if inline:
        _blob(connection, table, column, row, window)
    elif content is not None:
        _blob(connection, "_contents", "text", content, window)
    else:
        raise _nothing(part)


def _said(
    connection: sqlite3.Connection,
    node: int | None,
    text: int | None,
    message: str | None,
    part: str,
    window: Window,
) -> None:
    """A prompt or decision, put together message by message; or one message of it."""
    if node is None and text is None:
        raise _nothing(part)
    if text is not None:
        if message not in (None, "1"):
            raise SettingsError(f"there is no {part}: it is one plain text")
        _blob(connection, "_contents", "text", text, window)
        return
    assert node is not None
    chain = Texts(connection).chain(node)
    if message is not None:
        if int(message) > len(chain):
            raise SettingsError(f"there is no {part}: it has {len(chain)} messages")
        window.add(Texts(connection).content(chain[int(message) - 1]))
        return
    separator = "["
    for content in chain:
        window.add(separator)
        # One that remembers no message but this: a conversation can be larger than memory.
        window.add(Texts(connection).content(content))
        separator = ", "
    window.add("]")


def _blob(
    connection: sqlite3.Connection, table: str, column: str, row: int, window: Window
) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with connection.blobopen(table, column, row, readonly=True) as blob:
        while chunk := blob.read(_CHUNK):
            window.add(decoder.decode(chunk))
    window.add(decoder.decode(b"", final=True))


def _unknown(part: str) -> SettingsError:
    return SettingsError(f"a step has no part {part[:80]!r}: it has {OF_STEP}")


def _nothing(part: str) -> SettingsError:
    return SettingsError(f"nothing is recorded as {part}")
