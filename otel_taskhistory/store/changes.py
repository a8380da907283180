# SPDX-License-Identifier: Apache-2.0
"""What each prompt of a task added to the one before it, and what the agent took out.

A prompt is compared with those of a few steps before its own, so the cost of a step does not
follow how long its task is. Two prompts share what their chains of nodes share at the beginning;
only the messages after that are compared, and only by the numbers of their contents.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.views import PromptChange, PromptMessage

LOOKED_BACK: Final = 8
"""Steps, and prompts, looked back upon: agents that work for each other take turns in one task."""

_STEP: Final = """
SELECT step.id, step.task, step.step_index FROM tasks AS task
JOIN _spans AS own ON own.trace = task.trace AND own.span_id = :step
JOIN _steps AS step ON step.span = own.id AND step.task = task.id WHERE task.task_id = :task
"""
_STEPS_BEFORE: Final = """
SELECT step.id FROM _steps AS step JOIN _spans AS own ON own.id = step.span
WHERE step.task = :task AND step.step_index <= :index
    AND (step.step_index < :index OR own.span_id < :step)
ORDER BY step.step_index DESC, own.span_id DESC LIMIT :limit
"""
_PROMPTS: Final = """
SELECT call.started_ns, own.span_id, call.ordinal, call.prompt_node, call.prompt_text
FROM _model_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? AND call.twin_of IS NULL
    AND coalesce(call.prompt_node, call.prompt_text) IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that was sent: a list of messages, or one plain text.

    Attributes:
        started_ns: when its model call began.
        span_id, ordinal: which call that is.
        step: row of its step.
        node: the last message of the list.
        text: the row of ``_contents`` that is all of it.
    """

    started_ns: int
    span_id: str
    ordinal: int
    step: int
    node: int | None
    text: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A message of a list: the one before it, its content, and how many there are up to it."""

    parent: int | None
    content: int
    length: int


class Nodes(dict[int, Node]):
    """Nodes of lists, read when they are asked for."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def __missing__(self, node: int) -> Node:
        row = self._connection.execute(
            "SELECT parent, content, length FROM _nodes WHERE id = ?", (node,)
        ).fetchone()
        self[node] = Node(*row)
        return self[node]


@dataclass(frozen=True, slots=True)
class Difference:
    """A prompt against the one that it continues.

    Attributes:
        prompt: the one.
        before: the other; None when there is none near.
        total: how many messages `prompt` has; 1 for plain text.
        new: (position from 1, row of ``_contents``) of its messages that `before` does not have.
        removed: of messages of `before` that it has not.
    """

    prompt: Prompt
    before: Prompt | None
    total: int
    new: tuple[tuple[int, int], ...]
    removed: tuple[tuple[int, int], ...]


def differences(
    connection: sqlite3.Connection, steps: Collection[int], earlier: Collection[int]
) -> Iterator[Difference]:
    """Those of every prompt of some steps, in the order of the calls.

    Args:
        steps: rows of ``_steps`` of one task.
        earlier: steps before those, to be compared with.
    """
    nodes = Nodes(connection)
    sent = [
        Prompt(started, span_id, ordinal, step, node, text)
        for step in {*steps, *earlier}
        for started, span_id, ordinal, node, text in connection.execute(
            _PROMPTS, (step,)
        ).fetchall()
    ]
    sent.sort(key=lambda prompt: (prompt.started_ns, prompt.span_id, prompt.ordinal))
    recent: list[Prompt] = []
    for prompt in sent:
        if prompt.step in steps:
            yield _difference(prompt, _continued_by(prompt, recent, nodes), nodes)
        recent = [prompt, *recent[: LOOKED_BACK - 1]]


def prompt_changes(
    connection: sqlite3.Connection, task_id: str, step_ids: Collection[str]
) -> dict[str, list[PromptChange]]:
    """The changes of every prompt of these steps, by step id, in the order of the calls.

    Model calls without a prompt are left out, and so are steps that the task does not have.
    """
    wanted: dict[int, str] = {}
    earlier: dict[int, Sequence[int]] = {}
    for step_id in step_ids:
        found = connection.execute(_STEP, {"task": task_id, "step": step_id}).fetchone()
        if found is None:
            continue
        step, task, index = found
        wanted[step] = step_id
        place = {"task": task, "index": index, "step": step_id, "limit": LOOKED_BACK}
        rows = connection.execute(_STEPS_BEFORE, place)
        earlier[step] = [row for (row,) in rows]
    texts = Texts(connection)
    changes: dict[str, list[PromptChange]] = {}
    before = {row for rows in earlier.values() for row in rows}
    for found in differences(connection, wanted.keys(), before):
        step = found.prompt.step
        change = PromptChange(
            span_id=found.prompt.span_id,
            ordinal=found.prompt.ordinal,
            total=found.total,
            first=found.before is None and not earlier[step],
            new=_messages(found.new, texts),
            removed=_messages(found.removed, texts),
        )
        changes.setdefault(wanted[step], []).append(change)
    return changes


def _messages(found: Sequence[tuple[int, int]], texts: Texts) -> tuple[PromptMessage, ...]:
    return tuple(PromptMessage(position, texts.content(content)) for position, content in found)


def _continued_by(prompt: Prompt, recent: Sequence[Prompt], nodes: Nodes) -> Prompt | None:
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


def _difference(prompt: Prompt, before: Prompt | None, nodes: Nodes) -> Difference:
    mine, yours, shared = _contents(prompt, before, nodes)
    new: list[tuple[int, int]] = []
    removed: list[tuple[int, int]] = []
    for kind, from_old, to_old, from_new, to_new in SequenceMatcher(
        None, yours, mine, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            removed += [(shared + at + 1, yours[at]) for at in range(from_old, to_old)]
            new += [(shared + at + 1, mine[at]) for at in range(from_new, to_new)]
    return Difference(prompt, before, shared + len(mine), tuple(new), tuple(removed))


def _contents(
    prompt: Prompt, before: Prompt | None, nodes: Nodes
) -> tuple[list[int], list[int], int]:
    """Contents of this prompt and of the one before, after as many as both begin with."""
    if prompt.node is not None and before is not None and before.node is not None:
        return _branches(prompt.node, before.node, nodes)
    mine, yours = (
        [] if one is None else [one.text] if one.text is not None else _branch(one.node, 0, nodes)
        for one in (prompt, before)
    )
    return mine, yours, 0


def _branches(one: int, other: int, nodes: Nodes) -> tuple[list[int], list[int], int]:
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


def _branch(node: int | None, shared: int, nodes: Nodes) -> list[int]:
    """The contents of a chain after the first `shared`."""
    contents: list[int] = []
    while node is not None and nodes[node].length > shared:
        contents.append(nodes[node].content)
        node = nodes[node].parent
    return contents[::-1]
