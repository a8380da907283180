# SPDX-License-Identifier: Apache-2.0
"""LangChain's messages and results, as it serialises them into ``input.value``, ``output.value``.

A message comes in one of these forms, by the version and by where in the framework it was::

    {"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {"content": ...}}
    {"type": "ai", "data": {"content": ...}}
    {"type": "ai", "content": ...}          # and, before LangChain sees it:
    {"role": "user", "content": ...}, ["user", "..."], "..."

What it holds beside role, name, content and tool calls (usage, ids of LangChain, metadata) was not
sent to a model and is no part of the GenAI message made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_taskhistory.conventions.openinference_parts import (
    arguments_of,
    medium,
    response_part,
    text_parts,
)
from otel_taskhistory.recording.formats import Json, media
from otel_taskhistory.recording.replies import Reply

_ROLES: Final = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "function",
}
_CLASSES: Final = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
}
_MEDIA: Final = ("image", "audio", "video", "file")
_PROVIDER_IDS: Final = ("chatcmpl-", "resp_", "msg_", "gen-")
"""How ids of providers begin; LangChain gives a message an id of its own where it has none."""


def message_of(value: Any, role: str = "user") -> Json | None:
    """The GenAI message for one of LangChain's, or None when it is none.

    Args:
        value: plain JSON values.
        role: of a message that is a bare text.
    """
    if isinstance(value, str):
        return {"role": role, "parts": text_parts(value)}
    if isinstance(value, list):
        match value:
            case [str(said), str(content)]:
                return {"role": _ROLES.get(said, said), "parts": text_parts(content)}
        return None
    data = _data(value)
    if data is None:
        return None
    said, fields = data
    message: Json = {"role": said, "parts": _parts(fields, said)}
    name = fields.get("name")
    if isinstance(name, str) and name:
        message["name"] = name
    return message


def is_serialised(value: Any) -> bool:
    """Whether a value is a message in a form that only LangChain writes."""
    return isinstance(value, dict) and (
        isinstance(value.get("kwargs"), dict) or isinstance(value.get("data"), dict)
    )


def messages_in(value: Any) -> list[Json] | None:
    """The messages of a state, an update or a list; None when there are no messages in it.

    Args:
        value: ``{"messages": …}`` with a list, a list of lists (of which the first counts) or a
            single message; such a list itself; or commands that update such a state.
    """
    found = _listed(value)
    if found is None:
        return None
    read = (message_of(entry) for entry in found)
    messages = [message for message in read if message is not None]
    return messages or None


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        update = value.get("update")
        if isinstance(update, dict) and "goto" in value:
            return _listed(update)
        held = value.get("messages")
        if isinstance(held, dict | str):
            return [held]
        if not isinstance(held, list) or not held:
            return None
        # A batch of prompts, or pairs of role and text, which are lists too.
        is_batch = isinstance(held[0], list) and message_of(held[0]) is None
        return held[0] if is_batch else held
    if isinstance(value, list) and value:
        if all(isinstance(entry, dict) and "goto" in entry for entry in value):
            return [one for entry in value for one in _listed(entry) or ()]
        if all(_data(entry) is not None for entry in value):
            return value
    return None


def _data(value: Any) -> tuple[str, Json] | None:
    """(role, fields) of a message in any form that is an object."""
    if not isinstance(value, dict):
        return None
    kind, fields = value.get("type"), value
    if kind == "constructor" and isinstance(value.get("kwargs"), dict):
        fields = value["kwargs"]
        path = value.get("id")
        last = path[-1] if isinstance(path, list) and path else None
        kind = fields.get("type") or (
            _CLASSES.get(last.removesuffix("Chunk")) if isinstance(last, str) else None
        )
    elif isinstance(value.get("data"), dict) and isinstance(kind, str):
        fields = value["data"]
    if "content" not in fields:
        return None
    role = fields.get("role")
    if isinstance(role, str) and role:
        return _ROLES.get(role, role), fields
    if not isinstance(kind, str):
        return None
    kind = _CLASSES.get(kind.removesuffix("Chunk"), kind)
    found = _ROLES.get(kind)
    return None if found is None else (found, fields)


def _parts(fields: Json, role: str) -> list[Json]:
    content = fields["content"]
    if role in ("tool", "function"):
        call_id = fields.get("tool_call_id")
        return [response_part(call_id if isinstance(call_id, str) else None, content)]
    if isinstance(content, list):
        parts = [part for block in content for part in _block(block)]
    else:
        parts = text_parts(content)
    more = fields.get("additional_kwargs")
    if isinstance(more, dict):
        reasoning = more.get("reasoning_content")
        if isinstance(reasoning, str) and reasoning:
            parts.insert(0, {"type": "reasoning", "content": reasoning})
    told = {part.get("id") for part in parts if part.get("type") == "tool_call"}
    for part in _calls(fields.get("tool_calls")):
        if part.get("id") is None or part["id"] not in told:
            parts.append(part)
    return parts


def _block(block: Any) -> list[Json]:
    """The part for one block of content; LangChain has media in a form of its own.

    That is ``{"type": "image", "base64": …, "mime_type": …}``, before 1.0 with ``data``.
    """
    if not isinstance(block, dict) or block.get("type") not in _MEDIA:
        return text_parts(block if isinstance(block, str) else [block])
    kind, mime_type = block["type"], block.get("mime_type")
    data = block.get("base64", block.get("data"))
    if isinstance(data, str) and isinstance(mime_type, str) and media.is_base64(data):
        return [media.blob(mime_type, data)]
    if isinstance(url := block.get("url"), str):
        return [medium("document" if kind == "file" else kind, url, mime_type)]
    return text_parts([block])


def _calls(calls: Any) -> Iterator[Json]:
    for call in calls if isinstance(calls, list) else ():
        inner = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            continue
        part: Json = {"type": "tool_call"}
        if isinstance(call_id := call.get("id"), str):
            part["id"] = call_id
        part["name"] = inner["name"]
        arguments = inner.get("args", inner.get("arguments"))
        if arguments is not None:
            part["arguments"] = arguments_of(arguments)
        yield part


# --- results ------------------------------------------------------------------------------------


def reply_of(value: Any) -> Reply | None:
    """What a run of a model gave: ``{"generations": [[{"message": …}]], "llm_output": …}``."""
    generations = value.get("generations") if isinstance(value, dict) else None
    if not isinstance(generations, list) or not generations:
        return None
    first = generations[0] if isinstance(generations[0], list) else generations
    reply = Reply([])
    usage = model = response_id = None
    for generation in first:
        if not isinstance(generation, dict):
            continue
        message, fields = _generated(generation)
        if message is None:
            continue
        reply.messages.append(message)
        facts = _object(fields.get("response_metadata"))
        info = _object(generation.get("generation_info"))
        reply.reasons.extend(_texts(info, facts, "finish_reason", "stop_reason")[:1])
        usage = usage or fields.get("usage_metadata")
        model = model or next(iter(_texts(facts, info, "model_name", "model")), None)
        response_id = response_id or _response_id(facts, fields)
    output = _object(value.get("llm_output"))
    return Reply(
        reply.messages,
        reply.reasons,
        model or next(iter(_texts(output, {}, "model_name", "model")), None),
        response_id,
        usage or output.get("token_usage") or output.get("usage"),
    )


def _generated(generation: Json) -> tuple[Json | None, Json]:
    """(the message of one answer, the fields it had)."""
    found = _data(generation.get("message"))
    if found is not None:
        return message_of(generation["message"]), found[1]
    text = generation.get("text")
    if isinstance(text, str) and "message" not in generation:
        return message_of(text, "assistant"), {}
    return None, {}


def _response_id(facts: Json, fields: Json) -> str | None:
    told = facts.get("id")
    if isinstance(told, str) and told:
        return told
    own = fields.get("id")
    return own if isinstance(own, str) and own.startswith(_PROVIDER_IDS) else None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _texts(first: Json, second: Json, *keys: str) -> list[str]:
    found = (source.get(key) for source in (first, second) for key in keys)
    return [value for value in found if isinstance(value, str) and value]


def tool_message(value: Any) -> Json | None:
    """The fields of the ToolMessage that a tool's output is or holds; None when it is none."""
    waiting = [value]
    for _ in range(8):  # an output within an update within a command is three
        if not waiting:
            return None
        held = waiting.pop(0)
        data = _data(held)
        if data is not None and data[0] == "tool" and "tool_call_id" in data[1]:
            return data[1]
        if isinstance(held, dict):
            waiting += [held[key] for key in ("output", "update", "messages") if key in held]
        elif isinstance(held, list):
            waiting += held[-1:]
    return None
