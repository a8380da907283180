# SPDX-License-Identifier: Apache-2.0
"""What each prompt of a task added to the one before it, and what the agent took out.

Two prompts share what their chains of nodes share at the beginning; only the messages after that
are compared, and only by the numbers of their contents. The cost of a task follows what changed,
not how long its conversation is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.views import PromptChange, PromptMessage

_CONVERSATIONS: Final = 8
"""Prompts looked back upon: agents that work for each other take turns in one task."""

_CALLS: Final = """
SELECT step_span.span_id, own.span_id, call.ordinal, call.prompt_node, call.prompt_text
FROM tasks AS task
JOIN _model_calls AS call ON call.task = task.id
JOIN _spans AS own ON own.id = call.span
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE task.task_id = ? AND call.twin_of IS NULL
    AND coalesce(call.prompt_node, call.prompt_text) IS NOT NULL
ORDER BY call.started_ns, own.span_id, call.ordinal
"""

# UNION, not UNION ALL: a node that many prompts share is visited once.
_NODES: Final = """
WITH RECURSIVE used (id, parent, content, length) AS (
    SELECT node.id, node.parent, node.content, node.length FROM _nodes AS node
    WHERE node.id IN (SELECT call.prompt_node FROM _model_calls AS call
        JOIN tasks AS task ON task.id = call.task WHERE task.task_id = ?)
    UNION
    SELECT before.id, before.parent, before.content, before.length
    FROM used JOIN _nodes AS before ON before.id = used.parent
)
SELECT id, parent, content, length FROM used
"""


@dataclass(frozen=True, slots=True)
class _Prompt:
    step_id: str | None
    span_id: str
    ordinal: int
    node: int | None
    text: int | None


@dataclass(frozen=True, slots=True)
class _Node:
    parent: int | None
    content: int
    length: int


def prompt_changes(
    connection: sqlite3.Connection, task_id: str, step_ids: Collection[str]
) -> dict[str, list[PromptChange]]:
    """The changes of every prompt of these steps, by step id, in the order of the calls.

    Model calls without a prompt are left out.
    """
    nodes = {row[0]: _Node(*row[1:]) for row in connection.execute(_NODES, (task_id,))}
    texts = Texts(connection)
    recent: list[_Prompt] = []
    found: dict[str, list[PromptChange]] = {}
    for row in connection.execute(_CALLS, (task_id,)).fetchall():
        prompt = _Prompt(*row)
        if prompt.step_id is not None and prompt.step_id in step_ids:
            before = _before(prompt, recent, nodes)
            change = _change(prompt, before, nodes, texts)
            found.setdefault(prompt.step_id, []).append(change)
        recent = [prompt, *recent[: _CONVERSATIONS - 1]]
    return found


def _before(prompt: _Prompt, recent: list[_Prompt], nodes: dict[int, _Node]) -> _Prompt | None:
    """The prompt that `prompt` most likely continues: the newest of those that share the most."""
    best, most = None, -1
    for other in recent:
        shared = 0
        if prompt.node is not None and other.node is not None:
            _, _, shared = _branches(prompt.node, other.node, nodes)
        elif prompt.text is not None and prompt.text == other.text:
            shared = 1
        if shared > most:
            best, most = other, shared
    return best


def _change(
    prompt: _Prompt, before: _Prompt | None, nodes: dict[int, _Node], texts: Texts
) -> PromptChange:
    mine, yours, shared = _contents(prompt, before, nodes)
    new: list[PromptMessage] = []
    removed: list[PromptMessage] = []
    for kind, from_old, to_old, from_new, to_new in SequenceMatcher(
        None, yours, mine, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            continue
        for messages, contents, first, last in (
            (removed, yours, from_old, to_old),
            (new, mine, from_new, to_new),
        ):
            messages += [
                PromptMessage(shared + position + 1, texts.content(contents[position]))
                for position in range(first, last)
            ]
    return PromptChange(
        span_id=prompt.span_id,
        ordinal=prompt.ordinal,
        total=shared + len(mine),
        first=before is None,
        new=tuple(new),
        removed=tuple(removed),
    )


def _contents(
    prompt: _Prompt, before: _Prompt | None, nodes: dict[int, _Node]
) -> tuple[list[int], list[int], int]:
    """Contents of this prompt and of the one before, after as many as both begin with."""
    if prompt.node is not None and before is not None and before.node is not None:
        return _branches(prompt.node, before.node, nodes)
    mine, yours = (
        [] if one is None else [one.text] if one.text is not None else _branch(one.node, 0, nodes)
        for one in (prompt, before)
    )
    return mine, yours, 0


def _branches(one: int, other: int, nodes: dict[int, _Node]) -> tuple[list[int], list[int], int]:
    """What each of two chains has after the part they share, and the length of that part."""
    mine: int | None = one
    yours: int | None = other
    while mine != yours:
        if mine is not None and (yours is None or nodes[mine].length >= nodes[yours].length):
            mine = nodes[mine].parent
        elif yours is not None:
            yours = nodes[yours].parent
    shared = 0 if mine is None else nodes[mine].length
    return _branch(one, shared, nodes), _branch(other, shared, nodes), shared


def _branch(node: int | None, shared: int, nodes: dict[int, _Node]) -> list[int]:
    """The contents of a chain after the first `shared`."""
    contents: list[int] = []
    while node is not None and nodes[node].length > shared:
        contents.append(nodes[node].content)
        node = nodes[node].parent
    return contents[::-1]
