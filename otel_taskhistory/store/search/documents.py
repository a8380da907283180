# SPDX-License-Identifier: Apache-2.0
"""The texts that can be found, and which rows hold them: one document for each stored value.

A message that was sent fifty times is one row of ``_contents`` and so one document; so is a long
tool result that is also part of later prompts. Short values stand in the row of their task, step,
model call or tool call, which is one document. A very long value is several, each a part of it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from otel_taskhistory.recording.keys import PREFIX

PART: Final = 2**18
"""Characters of a document; a longer value is cut into documents of so many."""

OVERLAP: Final = 256
"""Characters that a part has in common with the next one, so that no phrase is cut."""


class What(IntEnum):
    """Kinds of rows with texts of their own."""

    TASK = 1
    STEP = 2
    MODEL_CALL = 3
    TOOL_CALL = 4
    CONTENT = 5
    """Only in the queue: a long value of which parts are still to be indexed."""


FIELDS: Final[dict[What, tuple[str, tuple[str, ...]]]] = {
    What.TASK: ("tasks", ("goal", "result", "error")),
    What.STEP: ("_steps", ("name", "result", "error")),
    What.MODEL_CALL: ("_model_calls", ("error",)),
    What.TOOL_CALL: ("_tool_calls", ("name", "arguments", "result", "error")),
}
"""Of each kind its table, and the columns that hold text."""

TYPED: Final = (What.TASK, What.STEP)
"""Kinds whose error has its type beside it; it is searched as it is shown, ``ValueError: …``."""

REFERENCES: Final[dict[What, tuple[str, ...]]] = {
    What.TASK: (),
    What.STEP: ("result_content",),
    What.MODEL_CALL: ("prompt_text", "decision_text"),
    What.TOOL_CALL: ("arguments_content", "result_content"),
}
"""And those that name a row of ``_contents``."""

_NODES: Final = ("prompt_node", "decision_node")

_ESCAPES: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*)')

_SILENT: Final = frozenset(
    ("type", "role", "mime_type", "media_type", "modality", "finish_reason", "object")
)
"""Keys of messages and their parts whose values say how, not what."""


def texts_of(connection: sqlite3.Connection, what: What, row: int) -> dict[str, str] | None:
    """The texts that a row holds itself, by column; None when the row is gone."""
    table, columns = FIELDS[what]
    asked = (*columns, "error_type" if what in TYPED else "NULL")
    found = connection.execute(
        f"SELECT {', '.join(asked)} FROM {table} WHERE id = ?", (row,)
    ).fetchone()
    if found is None:
        return None
    *own, error_type = found
    said = dict(zip(columns, own, strict=True))
    if error_type:
        said["error"] = f"{error_type}: {said['error']}" if said["error"] else error_type
    # What repeats in it is found once.
    return {name: _unescaped(text) for name, text in said.items() if text}


def contents_of(
    connection: sqlite3.Connection, what: What, row: int, walked: set[int]
) -> Iterator[int]:
    """The rows of ``_contents`` that a row refers to, directly and by its lists of messages.

    Args:
        walked: nodes that need not be looked at again, with all before them; grows.
    """
    columns = (*REFERENCES[what], *(_NODES if what is What.MODEL_CALL else ()))
    if not columns:
        return
    found = connection.execute(
        f"SELECT {', '.join(columns)} FROM {FIELDS[what][0]} WHERE id = ?", (row,)
    ).fetchone()
    for name, value in zip(columns, found or (), strict=False):
        if value is None:
            continue
        if name not in _NODES:
            yield value
            continue
        node: int | None = value
        while node is not None and node not in walked:
            walked.add(node)
            node, content = connection.execute(
                "SELECT parent, content FROM _nodes WHERE id = ?", (node,)
            ).fetchone()
            yield content


def parts_of(connection: sqlite3.Connection, content: int) -> list[int]:
    """The long strings within a value that are rows of their own."""
    found = connection.execute("SELECT child FROM _content_parts WHERE content = ?", (content,))
    return [child for (child,) in found.fetchall()]


def text_of_content(connection: sqlite3.Connection, content: int) -> str | None:
    """What a row of ``_contents`` says itself, without the long strings that are rows of their own.

    Returns:
        None when it is gone.
    """
    found = connection.execute(
        "SELECT text, template FROM _contents WHERE id = ?", (content,)
    ).fetchone()
    if found is None:
        return None
    text = str(found[0])
    if found[1]:
        # A part stands for a JSON string, or (negative) for what is between quotation marks.
        pieces: list[Any] = json.loads(text)
        text = "".join(
            piece if isinstance(piece, str) else '""' if not _is_within(piece) else ""
            for piece in pieces
        )
    if not text.startswith("{"):
        return _unescaped(text)
    try:
        message = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return _unescaped(text)
    return "\n".join(_said(message))


def part_of(text: str, part: int) -> str | None:
    """The text of one of the documents that a value makes; None when it has no such part."""
    start = part * PART
    if start >= len(text) and part > 0:
        return None
    return text[start : start + PART + OVERLAP]


def _unescaped(text: str) -> str:
    r"""JSON as a person reads it: of ``"os\\nprint(1)"`` the word is ``print``, not ``nprint``.

    Anything that does not look like JSON stays as it is.
    """
    if "\\" not in text or text.lstrip()[:1] not in ("{", "[", '"'):
        return text
    return _ESCAPES.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    character: str = json.loads(f'"{escape[0]}"')
    # Half a character cannot be stored, and is not asked for.
    return escape[0] if any("\ud800" <= one <= "\udfff" for one in character) else character


def _is_within(piece: Any) -> bool:
    return isinstance(piece, int) and piece < 0


def _said(value: Any, key: str = "") -> Iterator[str]:
    """The strings in a message, without what only says how it is built. No recursion: it may be
    nested as deep as JSON can be read.
    """
    waiting: list[tuple[str, Any]] = [(key, value)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, str):
            if one and name not in _SILENT:
                yield _unescaped(one)  # arguments of a tool call are often JSON within a string
        elif isinstance(one, dict):
            for inner, said in reversed(one.items()):
                if inner.startswith(PREFIX):  # a note of ours on how it came
                    continue
                if not isinstance(said, str | list | dict) and said is not None:
                    said = f"{inner}: {json.dumps(said)}"
                waiting.append((inner, said))
        elif isinstance(one, list):
            waiting += [(name, said) for said in reversed(one)]
        elif one is not None:
            yield json.dumps(one)
