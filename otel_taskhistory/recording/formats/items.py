# SPDX-License-Identifier: Apache-2.0
"""One entry of a prompt, whatever its API ↔ one GenAI message.

Each entry is judged by itself, so its message is the same text wherever in a conversation it
stands and however often it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_taskhistory.recording.formats import Json, chat, whole
from otel_taskhistory.recording.formats.parts import (
    STRING,
    from_part,
    part_to_untyped,
    to_part,
    untyped_to_part,
)
from otel_taskhistory.recording.keys import ESCAPED, FORMAT, SINGLE

REQUEST: Final = "request"
"""Role and form of the message that holds a request body without its list of messages."""

GEMINI: Final = "gemini"
ITEM: Final = "item"
LIST: Final = "list"
WHOLE: Final = "whole"

_LANGCHAIN_ROLES: Final[Mapping[str, str]] = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}
_REQUEST_LISTS: Final = ("messages", "contents", "input")
_OURS: Final = frozenset({FORMAT, ESCAPED, SINGLE})


def to_message(item: Any, role: str = "user") -> Json:
    """Return the GenAI message for one plain entry.

    Args:
        item: a message, Responses item, Gemini content, content block or string; or anything.
        role: the role of an entry that does not say whose it is.
    """
    if isinstance(item, str):
        return {"role": role, "parts": [{"type": "text", "content": item}], FORMAT: STRING}
    if isinstance(item, list) and item:
        return {"role": role, "parts": [to_part(block) for block in item], FORMAT: LIST}
    if isinstance(item, dict) and item and _OURS.isdisjoint(item):
        message = _from_dict(item, role)
        if message is not None:
            return message
    own = item.get("role") if isinstance(item, dict) else None
    return {"role": own if isinstance(own, str) else role, "parts": [whole(item)], FORMAT: WHOLE}


def from_message(message: Json) -> Any:
    """Return the entry that `to_message` was given."""
    form = message.get(FORMAT)
    if form is None:
        return message
    if form.startswith((chat.CHAT, chat.LANGCHAIN)):
        return chat.from_message(message)
    parts = message["parts"]
    if form.startswith(GEMINI):
        return _gemini_back(message, form)
    if form == LIST:
        return [from_part(part) for part in parts]
    return from_part(parts[0]) if form == ITEM else parts[0]["content"]


def is_message(entry: Any) -> bool:
    """Whether a plain value is a message, which says whose it is, not a piece of one."""
    if not isinstance(entry, dict):
        return False
    return isinstance(entry.get("role"), str) or _langchain_role(entry) is not None


def request_list(prompt: Json) -> str | None:
    """Return the key under which a request body has its list of messages; None if it is none."""
    if "role" in prompt or "type" in prompt or not _OURS.isdisjoint(prompt):
        return None
    for key in _REQUEST_LISTS:
        if isinstance(prompt.get(key), list) and prompt[key]:
            return key
    return None


def _from_dict(item: Json, role: str) -> Json | None:
    has_role = isinstance(item.get("role"), str)
    parts = item.get("parts")
    if isinstance(parts, list) and "content" not in item:
        if has_role and all(_is_typed(part) for part in parts):
            return item
        return _gemini(item, parts, role) if has_role or "role" not in item else None
    if has_role:
        return chat.to_message(item)
    if "role" in item:
        return None
    if (langchain_role := _langchain_role(item)) is not None:
        return chat.to_message(item, langchain_role)
    return {"role": _role_of(item.get("type"), role), "parts": [to_part(item)], FORMAT: ITEM}


def _langchain_role(item: Json) -> str | None:
    kind = item.get("type")
    return _LANGCHAIN_ROLES.get(kind) if isinstance(kind, str) and "content" in item else None


def _is_typed(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _role_of(kind: Any, role: str) -> str:
    """Whose a Responses item is."""
    if not isinstance(kind, str):
        return role
    if kind.endswith("_output") or kind == "mcp_approval_response":
        return "tool"
    ours = ("reasoning", "compaction", "mcp_list_tools", "mcp_approval_request")
    return "assistant" if kind.endswith("_call") or kind in ours else role


# --- Gemini -----------------------------------------------------------------------------------


def _gemini(item: Json, parts: list[Any], role: str) -> Json | None:
    """``{"role": "model", "parts": [{"text": …}]}``: the model is the conventions' assistant."""
    if item.get("role") == "assistant":
        return None
    form = GEMINI if "role" in item else f"{GEMINI}.norole"
    message: Json = {} if "role" in item else {"role": role}
    message |= item
    if item.get("role") == "model":
        message["role"] = "assistant"
    message["parts"] = [_gemini_part(part) for part in parts]
    message[FORMAT] = form
    return message


def _gemini_part(part: Any) -> Json:
    if isinstance(part, str):
        return to_part(part)
    converted = untyped_to_part(part) if isinstance(part, dict) else None
    return whole(part) if converted is None else converted


def _gemini_back(message: Json, form: str) -> Json:
    item = {key: value for key, value in message.items() if key != FORMAT}
    item["parts"] = [part_to_untyped(part) for part in message["parts"]]
    if form != GEMINI:
        del item["role"]
    elif item["role"] == "assistant":
        item["role"] = "model"
    return item


def system_parts(system: Any) -> list[Json]:
    """Return the parts for system instructions given beside the messages, as plain values."""
    if isinstance(system, list):
        return [part for block in system for part in _system_block(block)]
    if isinstance(system, dict):
        message = to_message(system, "system")
        if set(message) <= {"role", "parts", FORMAT} and message.get(FORMAT) != ITEM:
            parts: list[Json] = message["parts"]
            return parts
    if isinstance(system, str):
        return [{"type": "text", "content": system}]
    return [to_part(system)]


def _system_block(block: Any) -> list[Json]:
    is_message = isinstance(block, dict) and ("role" in block or "parts" in block)
    return system_parts(block) if is_message else [to_part(block)]
