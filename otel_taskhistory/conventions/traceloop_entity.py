# SPDX-License-Identifier: Apache-2.0
"""What OpenLLMetry records around a span's work: its input and output; nothing raises.

Three writers are known. LangChain's callbacks write ``{"inputs": …, "tags": …, "metadata": …,
"kwargs": …}`` and ``{"outputs": …}``, for tools ``{"input_str": …, "inputs": …}`` and
``{"output": …}``; decorators write ``{"args": […], "kwargs": {…}}`` and the result as JSON; others
write plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import traceloop_names as names
from otel_taskhistory.conventions.content import as_text, parsed, text_of
from otel_taskhistory.conventions.facts import ToolCall
from otel_taskhistory.conventions.traceloop_json import is_empty, literal, readable
from otel_taskhistory.conventions.traceloop_values import (
    TOOLS,
    goal_in,
    messages_in,
    result_in,
    role_of,
    text_of_message,
    unwrapped,
)
from otel_taskhistory.spans.record import SpanRecord

_SUFFIXES: Final = (".tool", ".mcp")


@dataclass(frozen=True, slots=True)
class Invoked:
    """A tool call, and why it failed where its result says so though its span does not."""

    call: ToolCall
    failed: bool = False
    error: str | None = None


def goal_of(record: SpanRecord) -> str | None:
    """What a workflow or agent was asked to do, as its input tells."""
    given = _first(record, names.ENTITY_INPUT, names.TASK_INPUT)
    value, whole = readable(given)
    if value is None:
        return _plain(given)
    if isinstance(value, Mapping) and "inputs" in value:
        value = value["inputs"]
    if _resumes(value):
        return None  # what was asked before goes on; the answer to an interrupt is no goal
    if not whole and not _is_one_question(value):
        return None
    return goal_in(value)


def answer_of(record: SpanRecord) -> str | None:
    """What a workflow or agent gave back, as its output tells; an output that was cut does not."""
    given = _first(record, names.ENTITY_OUTPUT, names.TASK_OUTPUT)
    value = parsed(given)
    if value is None:
        return _plain(given)
    if isinstance(value, Mapping) and "outputs" in value:
        value = value["outputs"]
    return result_in(value)


def invoked(record: SpanRecord) -> Invoked:
    """The tool call that a span is."""
    arguments, id_given = _arguments(record)
    result, message = _result(record)
    call_id = record.text(semconv.GEN_AI_TOOL_CALL_ID) or id_given
    failed = False
    if message is not None:
        call_id = call_id or text_of(message.get("tool_call_id"))
        failed = text_of(message.get("status")) == "error"
    call = ToolCall(_tool_name(record), call_id, arguments, result)
    return Invoked(call, failed, result if failed else None)


# --- tools ------------------------------------------------------------------------------------


def _tool_name(record: SpanRecord) -> str:
    for key in (semconv.GEN_AI_TOOL_NAME, names.ENTITY_NAME, names.OLD_TOOL_NAME):
        if name := record.text(key):
            return name
    name = record.name.removeprefix("execute_tool ")
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _arguments(record: SpanRecord) -> tuple[str | None, str | None]:
    """The arguments, out of what is around them, and the call id where that has it."""
    given = _first(record, semconv.GEN_AI_TOOL_CALL_ARGUMENTS, names.ENTITY_INPUT)
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        return as_text(given), None
    value, whole = readable(given)
    if not isinstance(value, Mapping):
        return as_text(given), None
    if "input_str" in value:
        around = value.get("kwargs")
        call_id = text_of(around.get("tool_call_id")) if isinstance(around, Mapping) else None
        return _langchain_arguments(value, whole), call_id
    keys = value.keys()
    if keys == {"args", "kwargs"} and isinstance(value["kwargs"], Mapping):
        positional, named = value["args"], value["kwargs"]
        if not named:
            return as_text(named if is_empty(positional) else positional), None
        if is_empty(positional):
            return as_text(named), None
    elif keys == {"tool_name", "arguments"}:  # the MCP instrumentation
        return as_text(value["arguments"]), None
    return as_text(given), None


def _langchain_arguments(value: Mapping[str, Any], whole: bool) -> str | None:
    inputs = value.get("inputs")
    if whole and isinstance(inputs, Mapping | list):
        return as_text(inputs)
    shown = value["input_str"]
    if not isinstance(shown, str):
        return as_text(shown)
    if parsed(shown) is not None:
        return shown
    read = literal(shown)
    return as_text(shown if read is None else read)


def _result(record: SpanRecord) -> tuple[str | None, Mapping[str, Any] | None]:
    """The result, out of what is around it, and the message that it came in, if any."""
    given = record.attributes.get(semconv.GEN_AI_TOOL_CALL_RESULT)
    is_entity = is_empty(given)
    if is_entity:
        given = record.attributes.get(names.ENTITY_OUTPUT)
    if isinstance(given, str) and not is_entity and not given.lstrip().startswith("{"):
        return as_text(given), None
    value, _ = readable(given)
    if isinstance(value, Mapping) and "output" in value and value.keys() <= {"output", "kwargs"}:
        value = value["output"]
        if isinstance(value, str):
            return value, None
    elif not isinstance(given, str) or not _is_constructor(value):
        # Of a tool that gave back a text, a decorator writes that text as JSON.
        return (value if is_entity and isinstance(value, str) else as_text(given)), None
    message = _tool_message(value)
    if message is None:
        return as_text(unwrapped(value)), None
    text = message.get("content")
    return as_text(text), message


def _tool_message(value: Any) -> Mapping[str, Any] | None:
    """The message of a tool: a result by itself, or within a command to its graph."""
    fields = unwrapped(value)
    if isinstance(fields, Mapping) and isinstance(fields.get("update"), Mapping):
        listed = fields["update"].get("messages")
        entries = reversed(listed) if isinstance(listed, list) else ()
        fields = next((unwrapped(entry) for entry in entries if role_of(entry) in TOOLS), None)
    is_message = isinstance(fields, Mapping) and "content" in fields and role_of(fields) in TOOLS
    return fields if is_message else None


def _is_constructor(value: Any) -> bool:
    return isinstance(value, Mapping) and "lc" in value


# --- workflows --------------------------------------------------------------------------------


def _first(record: SpanRecord, *keys: str) -> Any:
    values = (record.attributes.get(key) for key in keys)
    return next((value for value in values if not is_empty(value)), None)


def _resumes(value: Any) -> bool:
    """Whether it is LangGraph's command to go on after an interrupt."""
    return isinstance(value, Mapping) and "resume" in value and "goto" in value


def _is_one_question(value: Any) -> bool:
    """Whether a part of the input is enough to know the goal: no later message can follow."""
    messages = messages_in(value)
    return messages is not None and len(messages) == 1 and text_of_message(messages[0]) is not None


def _plain(given: Any) -> str | None:
    """Text that is no JSON, not even some that was cut."""
    is_json = not isinstance(given, str) or given == "null" or given.lstrip()[:1] in ("{", "[", '"')
    return None if is_json else text_of(given)
