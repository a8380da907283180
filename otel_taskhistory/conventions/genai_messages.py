# SPDX-License-Identifier: Apache-2.0
"""Messages of the GenAI conventions: read leniently, and made of what older generations said.

What an attribute holds stays the very string (`said_of`); what came as events, flattened keys or
the words of a provider's API is put into messages (`message`, `parts`) with every key kept.
Nothing here raises, whatever the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_taskhistory.conventions import genai_cut
from otel_taskhistory.conventions.facts import Said
from otel_taskhistory.conventions.genai_blocks import Json, part_of, plain, tool_call
from otel_taskhistory.spans.encode import encode

CUT: Final = "cut"
"""Type of the part that stands where a limit of the SDK has cut off the rest of the messages."""

_SAY_CALLS: Final = ('"tool_call', '"tool_use"', '"toolUse"', '"function_call"')
"""Text without any of these asks for no tool, and need not be parsed to know."""


# --- attributes -------------------------------------------------------------------------------


def said_of(value: Any) -> Said | None:
    """What an attribute says that holds messages or parts; None when it says nothing.

    A string stays the very string. A value that is no string (attributes may nest) becomes JSON;
    a sequence of JSON texts, one a message, becomes the list of them.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return Said(value, structured=value.lstrip().startswith("["))
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, str) and item.startswith("{") for item in value):
            return Said(f"[{', '.join(value)}]", structured=True)
        return Said(encode(value).text, structured=True)
    text = encode(value).text
    if isinstance(value, Mapping) and "role" in value and ("parts" in value or "content" in value):
        return Said(f"[{text}]", structured=True)
    return Said(text, structured=False)


def is_whole(said: Said) -> bool:
    """Whether a list seems to have its end, which a limit of the SDK may have cut off."""
    return not said.structured or said.raw.rstrip().endswith("]")


def messages_in(said: Said | None) -> list[Json]:
    """The messages of a list, or as many as can be read of one that was cut."""
    if said is None or not said.structured:
        return []
    found = genai_cut.parse(said.raw)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def readable(said: Said | None) -> Said | None:
    """A list that a limit of the SDK has cut, as the messages that can be read of it.

    A part ``{"type": "cut"}`` at the end says that there was more. What is whole, and what nothing
    can be read of, stays as it is.
    """
    if said is None or not said.structured:
        return said
    system = _readable_system(said.system)
    if not is_whole(said):
        # Of the last one maybe only half a role is left.
        messages = [one for one in messages_in(said) if type(one.get("role")) is str]
        if messages:
            messages[-1] = _marked(messages[-1])
            return Said(json.dumps(messages, ensure_ascii=False), True, system)
    return said if system == said.system else Said(said.raw, True, system)


def _readable_system(system: str | None) -> str | None:
    """Parts of instructions, likewise."""
    if system is None or system.rstrip().endswith("]"):
        return system
    found = genai_cut.parse(system)
    parts = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    parts = parts or [{"type": "text", "content": system}]
    return json.dumps([*parts, {"type": CUT}], ensure_ascii=False)


def _marked(message: Json) -> Json:
    """A message of which the end is missing, and which says so."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        content = message.get("content")
        message = {key: value for key, value in message.items() if key not in ("parts", "content")}
        parts = [{"type": "text", "content": content}] if isinstance(content, str) else content
    return {**message, "parts": [*(parts if isinstance(parts, list) else []), {"type": CUT}]}


# --- what messages say ------------------------------------------------------------------------


def text_of(message: Json) -> str | None:
    """The text of a message, its parts a line each; None when it has none."""
    parts = message.get("parts", message.get("content"))
    texts = [text for text in map(_text, parts if isinstance(parts, list) else [parts]) if text]
    return "\n".join(texts) if texts else None


def last_text(messages: Iterable[Json], *roles: str | None) -> str | None:
    """The text of the last message that has one, of these roles if any are given."""
    for message in reversed(list(messages)):
        if not roles or _role(message) in roles:
            text = text_of(message)
            if text is not None:
                return text
    return None


def call_ids(messages: Iterable[Json]) -> tuple[str, ...]:
    """Ids of the tool calls that messages ask for, each once; a half id is none."""
    return tuple(dict.fromkeys(_call_ids(messages)))


def may_ask_for_tools(raw: str) -> bool:
    """A quick no for the many decisions that ask for no tool."""
    return any(sign in raw for sign in _SAY_CALLS)


def finish_reason(messages: Iterable[Json]) -> str | None:
    """The first reason that output messages give for having ended."""
    for message in messages:
        reason = message.get("finish_reason")
        if type(reason) is str and reason:
            return reason
    return None


def _role(message: Json) -> str | None:
    role = message.get("role")
    return role if isinstance(role, str) else None


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    kind = part.get("type", "text")
    if kind not in ("text", "input_text", "output_text"):
        return None
    text = part.get("content", part.get("text"))
    return text if isinstance(text, str) else None


def _call_ids(messages: Iterable[Json]) -> Iterator[str]:
    for message in messages:
        for key in ("parts", "content", "tool_calls"):
            listed = message.get(key)
            for item in listed if isinstance(listed, list) else ():
                call_id = _call_id(item, is_call=key == "tool_calls")
                if type(call_id) is str and call_id:
                    yield call_id


def _call_id(part: Any, *, is_call: bool) -> Any:
    if not isinstance(part, dict):
        return None
    if isinstance(part.get("toolUse"), dict):
        return part["toolUse"].get("toolUseId")
    kind = part.get("type")
    if kind == "function_call":
        return part.get("call_id")
    return part.get("id") if is_call or kind in ("tool_call", "tool_use") else None


# --- messages made ----------------------------------------------------------------------------


def message(role: str, said: Any) -> Json:
    """A message out of what an event, a log record or flattened keys say of it.

    Args:
        role: of one that does not say whose it is.
        said: the content itself, or a mapping with ``content`` and, where it has them, ``role``,
            ``tool_calls``, ``id`` (of the call that it answers) and whatever else; or a message
            that has ``parts`` already.
    """
    said = plain(said)
    if not isinstance(said, dict):
        return {"role": role, "parts": parts(said)}
    rest = dict(said)
    own = rest.pop("role", None)
    made: Json = {"role": own if isinstance(own, str) and own else role}
    if isinstance(rest.get("parts"), list):
        return made | rest
    content = rest.pop("content", None)
    if made["role"] in ("tool", "function"):
        made["parts"] = _answers(content, rest)
    else:
        made["parts"] = parts(content)
    calls = rest.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    if isinstance(calls, list):
        del rest["tool_calls"]
        made["parts"] += map(tool_call, calls)
    return made | {key: item for key, item in rest.items() if item is not None and key != "parts"}


def parts(content: Any) -> list[Json]:
    """The parts for a content: a text, a list of blocks, one block; none for None and ``""``."""
    if content is None or content == "":
        return []
    return list(map(part_of, content)) if isinstance(content, list) else [part_of(content)]


def _answers(content: Any, rest: Json) -> list[Json]:
    """The parts of a tool's message; takes the id of the call out of `rest`."""
    if isinstance(content, list) and content:
        made = parts(content)
        if all(part.get("type") == "tool_call_response" for part in made):
            return made
    part: Json = {"type": "tool_call_response"}
    for key in ("id", "tool_call_id"):
        if isinstance(rest.get(key), str):
            part.setdefault("id", rest.pop(key))
    return [{**part, "response": content}]
