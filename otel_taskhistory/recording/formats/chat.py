# SPDX-License-Identifier: Apache-2.0
"""Messages with ``content`` (OpenAI, Anthropic, Responses, LangChain) ↔ GenAI messages.

``parts`` stands in the place of ``content``. Beside the content, some keys of a message hold what
belongs among the parts: reasoning before the content, a refusal and tool calls after it. Such a
key stays in its place, with the number of parts that are its (or, for tool calls written in
another shape than OpenAI's usual one, with a list of those shapes).
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.recording.formats import Json, arguments, whole
from otel_taskhistory.recording.formats.parts import from_part, to_part
from otel_taskhistory.recording.keys import ARGUMENTS, FORMAT

CHAT: Final = "chat"
LANGCHAIN: Final = "langchain"
"""As `CHAT`, with a role that was added for the message's type."""

_LIST: Final = ".list"
_ONE: Final = ".one"
_RESPONSE: Final = ".response"
_NONE: Final = ".none"
"""What the content was, added to the form's name: a str, else a list of blocks, one block, the
result of a tool call, or nothing that went into parts."""

_REASONING: Final = ("reasoning_content", "reasoning", "thinking")
_ASIDE: Final = frozenset({*_REASONING, "refusal", "tool_calls"})
_TOOL_ROLES: Final = ("tool", "function")


def to_message(item: Json, role: str | None = None) -> Json | None:
    """Return the GenAI message for a dict with ``role``, or with the `role` its type stands for.

    None when the message has keys that would be mistaken for ours.
    """
    if "parts" in item:
        return None
    form = CHAT if role is None else LANGCHAIN
    content = item.get("content")
    if isinstance(content, str) and len(item) == 2 and role is None and item["role"] != "tool":
        return _plain_message(item, content)
    parts, suffix = _content(item, role or item["role"])
    counts: Json = {}
    if not _ASIDE.isdisjoint(item):
        parts, counts = _with_aside(item, parts)
        if any(type(item.get(key)) is int for key in _ASIDE if key not in counts):
            return None  # a number that would be taken for a count of ours
    message: Json = {} if role is None else {"role": role}
    for key, value in item.items():
        if key == "content" and suffix != _NONE:
            message["parts"] = parts
        else:
            message[key] = counts.get(key, value)
    message.setdefault("parts", parts)
    message[FORMAT] = form + suffix
    return message


def _with_aside(item: Json, parts: list[Json]) -> tuple[list[Json], Json]:
    """The parts with those that other keys than the content hold, and what these keys become."""
    counts: Json = {}
    reasoning = next((key for key in _REASONING if key in item), None)
    if reasoning is not None and isinstance(item[reasoning], str):
        parts = [{"type": "reasoning", "content": item[reasoning]}, *parts]
        counts[reasoning] = 1
    if isinstance(item.get("refusal"), str):
        parts = [*parts, {"type": "refusal", "refusal": item["refusal"]}]
        counts["refusal"] = 1
    calls = item.get("tool_calls")
    if isinstance(calls, list) and calls:
        pairs = [_call_to_part(call) for call in calls]
        parts = [*parts, *(part for part, _ in pairs)]
        usual = all(shape is None for _, shape in pairs)
        shapes = [_USUAL if shape is None else shape for _, shape in pairs]
        counts["tool_calls"] = len(calls) if usual else shapes
    return parts, counts


def from_message(message: Json) -> Json:
    """Return the dict that `to_message` was given."""
    form, _, suffix = message[FORMAT].partition(".")
    parts = list(message["parts"])
    taken: Json = {}
    shapes = message.get("tool_calls")
    if isinstance(shapes, int) and not isinstance(shapes, bool):
        shapes = [_USUAL] * shapes
    if isinstance(shapes, list) and shapes:
        calls = parts[len(parts) - len(shapes) :]
        del parts[len(parts) - len(shapes) :]
        taken["tool_calls"] = [_part_to_call(*pair) for pair in zip(calls, shapes, strict=True)]
    if type(message.get("refusal")) is int:
        taken["refusal"] = parts.pop()["refusal"]
    for key in _REASONING:
        if type(message.get(key)) is int:
            taken[key] = parts.pop(0)["content"]
    item: Json = {}
    for key, value in message.items():
        if key == "parts":
            if suffix != _NONE[1:]:
                item["content"] = _content_back(parts, suffix)
        elif key != FORMAT and not (key == "role" and form == LANGCHAIN):
            item[key] = taken.get(key, value)
    return item


def _plain_message(item: Json, content: str) -> Json:
    """The message that nearly all are, without the detour."""
    parts = [{"type": "text", "content": content}]
    if next(iter(item)) == "role":
        return {"role": item["role"], "parts": parts, FORMAT: CHAT}
    return {"parts": parts, "role": item["role"], FORMAT: CHAT}


def _content(item: Json, role: str) -> tuple[list[Json], str]:
    """The parts of a message's content, and what it was."""
    if "content" not in item:
        return [], _NONE
    content = item["content"]
    if role in _TOOL_ROLES:
        part: Json = {"type": "tool_call_response"}
        if isinstance(call_id := item.get("tool_call_id"), str):
            part["id"] = call_id
        return [{**part, "response": content}], _RESPONSE
    if isinstance(content, str):
        return [{"type": "text", "content": content}], ""
    if isinstance(content, list):
        return [to_part(block) for block in content], _LIST
    if isinstance(content, dict):
        return [to_part(content)], _ONE
    return [], _NONE


def _content_back(parts: list[Json], suffix: str) -> Any:
    if suffix == "":
        return parts[0]["content"]
    if suffix == _RESPONSE[1:]:
        return parts[0]["response"]
    blocks = [from_part(part) for part in parts]
    return blocks[0] if suffix == _ONE[1:] else blocks


# --- tool calls -------------------------------------------------------------------------------

_USUAL: Final[Json] = {
    "id": None,
    "type": "function",
    "function": {"name": None, "arguments": None},
}
"""The usual shape of a call in ``tool_calls``; what its part has is None in a shape."""


def _call_to_part(call: Any) -> tuple[Json, Json | None]:
    """The part for one tool call, and the call's shape; None for the usual one."""
    if not isinstance(call, dict):
        return whole(call), {}
    inner_key = next((key for key in ("function", "custom") if key in call), None)
    fields = call if inner_key is None else call[inner_key]
    key = _arguments_key(fields)
    if key is None or not isinstance(fields.get("name"), str):
        return whole(call), {}
    value, style = arguments.read(fields[key]) if key == "arguments" else (fields[key], None)
    part: Json = {"type": "tool_call"}
    if "id" in call:
        part["id"] = call["id"]
    part |= {"name": fields["name"], "arguments": value}
    if style is not None:
        part[ARGUMENTS] = style
    if _is_usual(call):
        return part, None
    emptied = {**fields, "name": None, key: None}
    shape = emptied if inner_key is None else {**call, inner_key: emptied}
    if "id" in call:
        shape = {**shape, "id": None}
    return part, shape


def _part_to_call(part: Json, shape: Json) -> Any:
    if not shape:
        return part["content"]
    inner_key = next((key for key in ("function", "custom") if key in shape), None)
    fields = shape if inner_key is None else shape[inner_key]
    key = _arguments_key(fields)
    value = part["arguments"]
    if key == "arguments":
        value = arguments.write(value, part.get(ARGUMENTS))
    filled = {**fields, "name": part["name"], str(key): value}
    call = filled if inner_key is None else {**shape, inner_key: filled}
    return {**call, "id": part["id"]} if "id" in shape else call


def _arguments_key(fields: Any) -> str | None:
    if not isinstance(fields, dict):
        return None
    return next((key for key in ("arguments", "args", "input") if key in fields), None)


def _is_usual(call: Json) -> bool:
    return (
        tuple(call) == ("id", "type", "function")
        and call["type"] == "function"
        and tuple(call["function"]) == ("name", "arguments")
    )
