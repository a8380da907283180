# SPDX-License-Identifier: Apache-2.0
"""What a span means for a task history, whichever dialect said it.

A dialect (one module each beside this one) turns a `SpanRecord` into `SpanFacts`; the store turns
those into rows. Large texts are the very strings of the span's attributes, not copies, so that the
store recognises them and keeps them once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["task", "step", "model", "tool", "agent", "other", "setup", "pending"]
"""``setup`` makes something ready and is no work by itself (``create_agent``, ``workflow.build``):
a trace of nothing else makes no task. ``pending`` announces a span that has not ended yet."""

Status = Literal["running", "succeeded", "failed", "cancelled", "interrupted"]


@dataclass(frozen=True, slots=True)
class Said:
    """A prompt or a decision.

    Attributes:
        raw: a JSON array of GenAI messages, or plain text.
        structured: whether `raw` is such an array.
        system: JSON array of parts sent as system instructions beside the messages, if any.
    """

    raw: str
    structured: bool
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts of one model call; None where nobody said."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model. Times in ns since 1970; `ended_ns` is None while it runs."""

    ordinal: int
    status: Status
    started_ns: int
    ended_ns: int | None = None
    model: str | None = None
    prompt: Said | None = None
    decision: Said | None = None
    finish_reason: str | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost: float | None = None
    attempt: int = 1
    error: str | None = None
    call_ids: tuple[str, ...] = ()
    """Ids of the tool calls that the decision asked for."""
    response_id: str | None = None
    """The provider's id of the response: two spans that name the same one are the same call."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One invocation of a tool."""

    name: str
    call_id: str | None = None
    arguments: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A picture that a step took, as its event told."""

    sha256: str
    path: str | None
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    caption: str | None
    captured_ns: int
    status: str


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """What one span says. `own` spans come from our tracer and name their role themselves."""

    role: Role = "other"
    own: bool = False
    status: Status = "running"
    error: str | None = None
    error_type: str | None = None
    agent: str | None = None
    conversation_id: str | None = None
    goal: str | None = None
    result: str | None = None
    attempt: int = 1
    key: str | None = None
    parent_task_id: str | None = None
    step_index: int | None = None
    model_calls: tuple[ModelCall, ...] = ()
    tool_call: ToolCall | None = None
    screenshots: tuple[Screenshot, ...] = ()
    linked_traces: tuple[str, ...] = ()
    """Ids of other traces that the span has links to, in their order."""
    announces: str | None = None
    """Of a ``pending`` span: id of the span that it announces."""
    announced_parent: str | None = None
    """And the id of that span's parent; None when it is a root."""
