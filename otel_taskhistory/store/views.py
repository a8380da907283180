# SPDX-License-Identifier: Apache-2.0
"""What readers get: one frozen dataclass per public table, its fields the columns, as stored.

Ids are hexadecimal text. Times are UTC, ISO 8601 with ``Z``; ``*_ms`` are milliseconds. What
nobody said is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Task:
    """One assignment carried out by the Host Agent: a trace."""

    task_id: str
    """The trace id, 32 digits; a further root of a trace is ``TRACE_ID-SPAN_ID``."""
    trace_id: str
    kind: str
    """``agent``, or ``other`` for a trace without agent or model."""
    goal: str | None
    agent: str | None
    status: str
    """``running``, ``succeeded``, ``failed``, ``cancelled`` or ``interrupted``."""
    started_at: str
    ended_at: str | None
    duration_ms: float | None
    step_count: int
    model: str | None
    """Of the last step that has one."""
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    result: str | None
    error: str | None
    error_type: str | None
    conversation_id: str | None
    parent_task_id: str | None
    attempt: int
    pinned: bool
    span_count: int
    dropped: int
    """Attributes, events and links that the limits of the SDK cut off."""
    key: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the agent within a task: a span."""

    step_id: str
    """The span id, 16 digits."""
    task_id: str
    trace_id: str
    step_index: int
    """From 1."""
    name: str
    agent: str | None
    status: str
    attempt: int
    started_at: str
    ended_at: str | None
    duration_ms: float | None
    model: str | None
    prompt: str | None
    """What was sent to the model: a JSON list of GenAI messages, or plain text."""
    decision: str | None
    """What the model answered, likewise."""
    tool_name: str | None
    """``tool_*`` are of the first tool call."""
    tool_arguments: str | None
    tool_result: str | None
    result: str | None
    error: str | None
    error_type: str | None
    screenshot: str | None
    """Path of the last screenshot, relative to the artifact folder."""
    input_tokens: int | None
    """Tokens are summed over the step's model calls."""
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model."""

    step_id: str | None
    task_id: str | None
    span_id: str
    ordinal: int
    """Number of the call within its span."""
    attempt: int
    model: str | None
    prompt: str | None
    decision: str | None
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    status: str
    error: str | None
    started_at: str
    ended_at: str | None
    duration_ms: float | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One invocation of a tool."""

    call_id: str | None
    """As the model named it; may repeat."""
    step_id: str | None
    task_id: str | None
    span_id: str
    name: str
    arguments: str | None
    """JSON, or text."""
    result: str | None
    status: str
    error: str | None
    started_at: str
    ended_at: str | None
    duration_ms: float | None


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A picture that a step took (``screenshot``), or that a model saw or made."""

    step_id: str | None
    task_id: str | None
    role: str
    """``screenshot``, ``input`` or ``output``."""
    sha256: str
    path: str | None
    """Relative to the artifact folder; None when no file was written."""
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    caption: str | None
    captured_at: str
    status: str
    """``ok``, ``broken``, ``empty``, ``too_large``, ``unsupported`` or ``not_stored``."""


@dataclass(frozen=True, slots=True)
class TimelineRecord:
    """Something that happened to a task or step, in the order of commits."""

    seq: int
    task_id: str | None
    step_id: str | None
    at: str
    event: str
    detail: str
    """JSON object of ids, counts and sizes."""
    cursor: str
    """Opaque; where to resume after this record, in this history only."""


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message at its place in a prompt."""

    position: int
    """From 1."""
    text: str
    """A GenAI message as JSON, or a plain text prompt."""


@dataclass(frozen=True, slots=True)
class PromptChange:
    """A model call's prompt against the one before it in the same conversation of the task."""

    span_id: str
    ordinal: int
    total: int
    """How many messages the prompt has; 1 for plain text."""
    first: bool
    """There was no prompt before it."""
    new: tuple[PromptMessage, ...]
    """Messages that the prompt before did not have; positions in this prompt."""
    removed: tuple[PromptMessage, ...]
    """Messages of the prompt before that this one lacks; positions in that one."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a history holds."""

    tasks: dict[str, int]
    """Agent tasks by status."""
    other_tasks: int
    steps: int
    model_calls: int
    tool_calls: int
    screenshots: int
    spans: int
    input_tokens: int
    output_tokens: int
    first_task_at: str | None
    last_task_at: str | None


class Page(Sequence[T_co], Generic[T_co]):
    """Rows of one page, in order; `next` is the cursor of the page after it, None at the end."""

    __slots__ = ("_rows", "next")

    def __init__(self, rows: Sequence[T_co], next_cursor: str | None) -> None:
        self._rows = tuple(rows)
        self.next = next_cursor

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Page({list(self._rows)!r}, next={self.next!r})"
