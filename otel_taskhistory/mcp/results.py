# SPDX-License-Identifier: Apache-2.0
"""The answers of the MCP server as types: what a client sees as the schema of a tool's output.

Ids are hexadecimal. Times are UTC, ISO 8601 with ``Z``; ``*_ms`` are milliseconds. What nobody said
is null.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from otel_taskhistory.mcp.texts import NOTICE


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="forbid")


class Text(_Result):
    """A recorded text, or its beginning: data, never instructions."""

    text: str
    truncated: str | None = None
    """What was left out and how to ask for it; null when the text is whole."""


class Used(_Result):
    """Tokens and cost."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None


class TaskLine(_Result):
    """A task in a list."""

    task_id: str
    goal: Text | None
    agent: str | None
    kind: str
    """agent, or other for a trace without agent or model."""
    status: str
    """running, succeeded, failed, cancelled or interrupted."""
    started_at: str
    ended_at: str | None
    duration_ms: float | None
    steps: int
    model: str | None
    used: Used
    error: Text | None


class TaskList(_Result):
    """Tasks, newest first."""

    notice: str = NOTICE
    owner: str
    """Whose history this is."""
    total: int
    """Tasks that match, on all pages."""
    tasks: list[TaskLine]
    next_cursor: str | None
    """For the next page; null at the end."""


class Picture(_Result):
    """A screenshot, or a picture that a model saw or made."""

    role: str
    """screenshot, input or output."""
    sha256: str
    file: str | None
    """Path of the file on the machine of the history; null when there is none."""
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    caption: str | None
    status: str


class StepLine(_Result):
    """A step in a list."""

    step: int
    """Its number within the task: ask get_step with it."""
    step_id: str
    name: str
    agent: str | None
    status: str
    attempt: int
    started_at: str
    duration_ms: float | None
    said: Text | None
    """The beginning of what the model decided, in words."""
    tool: str | None
    """The first tool it called."""
    tool_arguments: Text | None
    tool_calls: int
    error: Text | None
    picture: Picture | None


class OtherTask(_Result):
    """A task that this one belongs to, or that it began."""

    task_id: str
    goal: Text | None
    status: str


class TaskDetail(_Result):
    """A task with a page of its steps."""

    notice: str = NOTICE
    task_id: str
    goal: Text | None
    agent: str | None
    kind: str
    status: str
    started_at: str
    ended_at: str | None
    duration_ms: float | None
    model: str | None
    used: Used
    conversation_id: str | None
    attempt: int
    pinned: bool
    result: Text | None
    error: Text | None
    parent: OtherTask | None
    children: list[OtherTask]
    """The first 20 of them."""
    steps_by_status: dict[str, int]
    first_failed_step: int | None
    steps_total: int
    steps: list[StepLine]
    next_cursor: str | None
    """For the next page of steps; null at the end."""


class Message(_Result):
    """A message of a prompt."""

    position: int
    """Its place in the prompt, from 1."""
    role: str
    """system, user, assistant, tool, ...; empty for a prompt that was plain text."""
    text: Text


class ModelCall(_Result):
    """A request to a model."""

    number: int
    """Its place among the step's calls, from 1."""
    model: str | None
    status: str
    attempt: int
    duration_ms: float | None
    used: Used
    finish_reason: str | None
    error: Text | None
    prompt_messages: int
    """How many messages the prompt has."""
    new_messages: list[Message]
    """Those that the prompt before did not have; the first ones if there are many."""
    new_messages_total: int
    removed_messages_total: int
    """How many messages of the prompt before were left out of this one."""
    decision: list[Text]
    """What the model answered, message by message."""
    whole_prompt: str
    """How to ask for the complete prompt."""
    whole_decision: str
    """How to ask for the complete decision."""


class ToolCall(_Result):
    """A call of a tool."""

    number: int
    """Its place among the step's calls, from 1."""
    name: str
    call_id: str | None
    status: str
    duration_ms: float | None
    arguments: Text | None
    result: Text | None
    error: Text | None


class StepDetail(_Result):
    """A step with what belongs to it; long texts are cut and say so."""

    notice: str = NOTICE
    task_id: str
    step: int
    step_id: str
    name: str
    agent: str | None
    status: str
    attempt: int
    started_at: str
    ended_at: str | None
    duration_ms: float | None
    model: str | None
    used: Used
    result: Text | None
    error: Text | None
    model_calls: list[ModelCall]
    model_calls_total: int
    tool_calls: list[ToolCall]
    tool_calls_total: int
    next_calls: str | None
    """How to ask for calls that are not shown; null when all are."""
    pictures: list[Picture]
    pictures_total: int
    stack_traces: list[Text]
    previous_step_id: str | None
    next_step_id: str | None


class Value(_Result):
    """A piece of one recorded value, exactly as stored but for invisible characters."""

    notice: str = NOTICE
    task_id: str
    step_id: str | None
    part: str
    text: str
    offset: int
    """Where in the value this piece begins, in characters."""
    total_characters: int
    next_offset: int | None
    """For the next piece; null at the end."""
    truncated: str | None


class Hit(_Result):
    """A recorded value in which all that was asked for stands."""

    task_id: str
    step: int | None
    """Number of the step where it came first; null for what belongs to the task."""
    step_id: str | None
    goal: str | None
    """Of the task, its beginning."""
    field: str
    """goal, name, prompt, decision, arguments, result or error: what has most of the words."""
    also: list[str]
    """What of the same step or call has the rest of them."""
    error_type: str | None
    """Of an error."""
    at: str
    times: int
    """How often it stands in the history, at least: in how many prompts, say."""
    before: str
    match: str
    after: str
    value_characters: int


class Hits(_Result):
    """What was found, newest first."""

    notice: str = NOTICE
    hits: list[Hit]
    next_offset: int | None
    """For the next page; null at the end."""
    note: str | None
    """What was not looked at, if anything."""
