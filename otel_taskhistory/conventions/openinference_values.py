# SPDX-License-Identifier: Apache-2.0
"""What agents and tools were given and gave back, out of ``input.value`` and ``output.value``.

These hold whatever the framework had: plain text, the arguments of a function as JSON, a state
of LangGraph, a serialised message, now and then a Python ``repr``. What is of no known form is
the text that it is. JSON is parsed only where the text shows that there is something to find.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.conventions import openinference_langchain as langchain
from otel_taskhistory.conventions.content import as_text, parsed
from otel_taskhistory.conventions.openinference_parts import REDACTED, last_text, text_in
from otel_taskhistory.conventions.openinference_raw import json_of
from otel_taskhistory.recording.formats import Json, items

_TASKS: Final = ("task", "input", "question", "query", "user_input", "new_message", "prompt")
"""Arguments of agents that are what they are to do, the most telling first."""
_ANSWERS: Final = ("output", "answer", "final_output", "response", "content")
"""Where agents' results have their text."""

_REPR: Final = re.compile(
    r"""content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?= [a-z_]+=|$)""", re.DOTALL
)
_REPR_CALL_ID: Final = re.compile(r"tool_call_id='([^'\\]+)'")
_REPR_ERROR: Final = re.compile(r" status='error'")
_HAYSTACK: Final = re.compile(
    r"""ChatMessage\(_role=<ChatRole\.\w+: '(\w+)'>, _content=\[TextContent\(text="""
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""",
    re.DOTALL,
)
_LONGEST_REPR: Final = 100_000


def said(value: Any) -> str | None:
    """A value as text; what is empty or redacted says nothing."""
    text = as_text(value)
    return None if text == REDACTED else text


def goal_of(value: Any) -> str | None:
    """What an agent is to do, by the input of its run."""
    held = json_of(value)
    if held is None:
        return said(value)
    known, text = _goal_in(held)
    return text if known else said(value)


def _goal_in(held: Any, depth: int = 0) -> tuple[bool, str | None]:
    """(whether this is a known form, its text); input that resumes a run says no goal."""
    messages = langchain.messages_in(held)
    if messages is not None:
        return True, last_text(messages, "user")
    if not isinstance(held, dict):
        return False, None
    if "resume" in held and "goto" in held:
        return True, None
    for key in _TASKS:
        inner = held.get(key)
        if isinstance(inner, str) and inner:
            return True, inner
        if isinstance(inner, dict | list) and depth == 0:
            known, text = _goal_in(inner, depth + 1)
            if known:
                return True, text
    if _has_parts(held):
        return True, text_in(items.to_message(held))
    text = _in_reprs(held, "user") if depth == 0 else None
    return text is not None, text


def result_of(value: Any) -> str | None:
    """What an agent's run gave, by its output: of a final state the last answer."""
    held = json_of(value)
    if held is None:
        return said(value)
    messages = langchain.messages_in(held)
    if messages is None and (message := langchain.message_of(held)) is not None:
        messages = [message]
    if messages is not None:
        return last_text(messages, "assistant")
    if isinstance(held, dict):
        if _has_parts(held):
            return text_in(items.to_message(held, "assistant"))
        for key in _ANSWERS:
            inner = held.get(key)
            if isinstance(inner, str) and inner:
                return inner
            if isinstance(inner, dict) and _has_parts(inner):
                return text_in(items.to_message(inner, "assistant"))
    return _in_reprs(held, "assistant") or said(value)


def _in_reprs(held: Any, role: str) -> str | None:
    """The text of the last message of this role among those that Haystack wrote as ``repr``."""
    last = None
    waiting = [held]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, str) and value.startswith("ChatMessage("):
            found = _HAYSTACK.match(value[:_LONGEST_REPR])
            if found is not None and found[1] == role:
                last = _literal(found[2]) or last
    return last


def _literal(text: str) -> str | None:
    """The string that a Python literal stands for."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None


def _has_parts(value: Json) -> bool:
    """Whether it is a message of Gemini's API, as Google ADK uses them."""
    return isinstance(value.get("parts"), list)


# --- tools --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gave back; `failed` when its output says so, whatever its span says."""

    result: str | None
    call_id: str | None = None
    failed: bool = False


def tool_output(value: Any) -> ToolOutput:
    """Read the output of a tool: the content of LangChain's ToolMessage, else as it is."""
    if isinstance(value, str) and "tool_call_id" not in value:
        return ToolOutput(said(value))
    held = json_of(value)
    fields = langchain.tool_message(held) if held is not None else None
    if fields is None:
        return (_of_repr(value) if isinstance(value, str) else None) or ToolOutput(said(value))
    call_id = fields.get("tool_call_id")
    return ToolOutput(
        as_text(fields.get("content")),
        call_id if isinstance(call_id, str) and call_id else None,
        fields.get("status") == "error",
    )


def _of_repr(text: str) -> ToolOutput | None:
    """A ToolMessage as older versions write it: ``content='…' name='…' tool_call_id='…'``."""
    if not text.startswith("content=") or len(text) > _LONGEST_REPR:
        return None
    content = _REPR.match(text)
    call_id = _REPR_CALL_ID.search(text, content.end() if content else len(text))
    if content is None or call_id is None:
        return None
    failed = _REPR_ERROR.search(text, content.end()) is not None
    return ToolOutput(_literal(content[1]), call_id[1], failed)


def tool_arguments(given: Any, called_with: Any, parameters: Any) -> str | None:
    """The arguments of a tool call.

    Args:
        given: the tool's input; smolagents' holds its calling convention around the arguments.
        called_with: the arguments as the model wrote them, where an instrumentation tells them.
        parameters: by the specification the schema, in which the names are in order; some
            instrumentations put the arguments there.
    """
    text = said(given)
    if text is not None:
        return _called(text, parameters) or text
    text = said(called_with)
    if text is not None:
        return text
    held = parsed(parameters)
    is_arguments = isinstance(held, dict) and held and not _is_schema(held)
    return said(parameters) if is_arguments else None


def _called(text: str, parameters: Any) -> str | None:
    """The arguments in ``{"args": [...], "sanitize_inputs_outputs": …, "kwargs": {...}}``."""
    if '"sanitize_inputs_outputs"' not in text:
        return None
    held = parsed(text)
    args = held.get("args") if isinstance(held, dict) else None
    kwargs = held.get("kwargs") if isinstance(held, dict) else None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return None
    if not args:
        return as_text(kwargs)
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        return as_text(args[0])
    schema = parsed(parameters)
    names = list(schema) if isinstance(schema, dict) else []
    if len(names) < len(args):
        return as_text({"args": args, "kwargs": kwargs} if kwargs else args)
    return as_text(dict(zip(names, args, strict=False)) | kwargs)


def _is_schema(held: Json) -> bool:
    """Whether this describes parameters: a JSON schema, or a type for each name."""
    if any(key in held for key in ("properties", "$schema", "$defs")) or "type" in held:
        return True
    return all(isinstance(value, dict) and "type" in value for value in held.values())
