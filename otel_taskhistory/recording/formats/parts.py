# SPDX-License-Identifier: Apache-2.0
"""Content blocks and Responses items ↔ GenAI parts.

`to_part` takes anything that can stand in a list of content: a string, a typed block of OpenAI
(chat and Responses) or Anthropic, an untyped one of Gemini or Bedrock. A block of a type without
a conventional counterpart is its own part. `from_part` gives the block back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_taskhistory.recording.formats import CONVENTIONAL, Json, arguments, media, whole
from otel_taskhistory.recording.keys import ARGUMENTS, FORMAT

GIVEN: Final = "given"
"""Mark of a part that has a conventional type but was given like this."""
STRING: Final = "string"
UNTYPED: Final = "untyped"
FUNCTION_CALL: Final = "function_call_item"
"""Mark of OpenAI's typed item; ``function_call`` is the mark of Gemini's untyped block."""
REASONING: Final = "reasoning_item"

# --- blocks whose keys only need other names --------------------------------------------------

_RENAMED: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "text": ("text", {"text": "content"}),
    "input_text": ("text", {"text": "content"}),
    "output_text": ("text", {"text": "content"}),
    "thinking": ("reasoning", {"thinking": "content"}),
    "tool_use": ("tool_call", {"input": "arguments"}),
    "tool_result": ("tool_call_response", {"tool_use_id": "id", "content": "response"}),
    "custom_tool_call": ("tool_call", {"id": "item_id", "call_id": "id", "input": "arguments"}),
} | {
    kind: ("tool_call_response", {"id": "item_id", "call_id": "id", "output": "response"})
    for kind in (
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
    )
}
"""Block type → part type and new names of keys; the first of them is what the block is about."""

_UNMARKED: Final = {
    "text": "text",
    "reasoning": "thinking",
    "tool_call": "tool_use",
    "tool_call_response": "tool_result",
}
"""What a part without a mark was; the other blocks of that part type are marked with theirs."""

_NAMED: Final[Mapping[str, tuple[str, str]]] = {
    "computer_call": ("computer", "action"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}
"""Calls of tools that the model knows by the item's type: the tool's name, the key of arguments."""

_MUST_BE_TEXT: Final = frozenset({"text", "input_text", "output_text", "thinking"})

# --- blocks that hold a medium ----------------------------------------------------------------

_MEDIA: Final[Mapping[str, tuple[str, media.Inner]]] = {
    "image_url": ("image_url", media.wrapped_url("image_url", "image")),
    "video_url": ("video_url", media.wrapped_url("video_url", "video")),
    "audio_url": ("audio_url", media.wrapped_url("audio_url", "audio")),
    "input_audio": ("input_audio", media.input_audio()),
    "file": ("file", media.chat_file()),
    "input_image": ("input_image", media.bare_url("image_url", "image")),
    "input_image.file_id": ("input_image", media.file_id("image")),
    "input_file": ("input_file", media.data_url("file_data")),
    "input_file.file_url": ("input_file", media.bare_url("file_url", "document")),
    "input_file.file_id": ("input_file", media.file_id("document")),
    "computer_screenshot": ("computer_screenshot", media.bare_url("image_url", "image")),
    "image": ("image", media.source("image")),
    "document": ("document", media.source("document")),
}
"""Mark → block type and how it holds the medium."""

_MEDIA_OF: Final[dict[str, list[str]]] = {}
for _mark, (_kind, _) in _MEDIA.items():
    _MEDIA_OF.setdefault(_kind, []).append(_mark)

_UNTYPED_MEDIA: Final[Mapping[str, media.Inner]] = {
    "inline_data": media.inline_data("inline_data", "mime_type"),
    "inlineData": media.inline_data("inlineData", "mimeType"),
    "file_data": media.file_data("file_data", "mime_type", "file_uri"),
    "fileData": media.file_data("fileData", "mimeType", "fileUri"),
}

# --- untyped blocks whose one key holds the fields --------------------------------------------

_CALL: Final = {"id": "id", "name": "name", "args": "arguments"}
_RESPONSE: Final = {"id": "id", "name": "name", "response": "response", "parts": "parts"}
_FLATTENED: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "function_call": ("tool_call", _CALL),
    "functionCall": ("tool_call", _CALL),
    "function_response": ("tool_call_response", _RESPONSE),
    "functionResponse": ("tool_call_response", _RESPONSE),
    "toolUse": ("tool_call", {"toolUseId": "id", "name": "name", "input": "arguments"}),
    "toolResult": (
        "tool_call_response",
        {"toolUseId": "id", "content": "response", "status": "status"},
    ),
}
"""Gemini's and Bedrock's calls: key → part type and names of the fields in the part."""


def to_part(block: Any) -> Json:
    """Return the part for any plain value that stands in a list of content."""
    if isinstance(block, str):
        return {"type": "text", "content": block, FORMAT: STRING}
    if not isinstance(block, dict) or FORMAT in block:
        return whole(block)
    kind = block.get("type")
    if kind == "text" and len(block) == 2 and isinstance(text := block.get("text"), str):
        return _plain_text(block, text)
    if isinstance(kind, str):
        return _typed(block, kind)
    part = None if "type" in block else untyped_to_part(block)
    if part is None:
        return whole(block)
    return part if FORMAT in part else {**part, FORMAT: UNTYPED}


def from_part(part: Json) -> Any:
    """Return the block that `to_part` was given."""
    mark = part.get(FORMAT)
    kind = part["type"]
    if mark is None:
        return _renamed_back(part, _UNMARKED[kind]) if kind in _UNMARKED else part
    if mark in (STRING, "json"):
        return part["content"]
    if mark == GIVEN:
        return {key: value for key, value in part.items() if key != FORMAT}
    if mark in _RENAMED:
        return _renamed_back(part, mark)
    if mark in _MEDIA:
        return media.from_media(part, _MEDIA[mark][1], _MEDIA[mark][0])
    if mark in _NAMED:
        return _named_back(part, mark)
    if mark == FUNCTION_CALL:
        return _function_call_back(part)
    if mark == REASONING:
        return _reasoning_back(part)
    return part_to_untyped(part)


def untyped_to_part(block: Json) -> Json | None:
    """Return the part for a block without a type (Gemini, Bedrock), or None when no rule fits.

    What is neither text, medium nor call becomes a part named after the block's first key.
    """
    if "type" in block or FORMAT in block or not block:
        return None
    if isinstance(block.get("text"), str) and "content" not in block:
        kind = "reasoning" if block.get("thought") is True else "text"
        renamed = {"content" if key == "text" else key: item for key, item in block.items()}
        return {"type": kind, **renamed}
    for key in block:
        part = None
        if key in _UNTYPED_MEDIA:
            part = media.to_media(block, _UNTYPED_MEDIA[key], key)
        elif key in _FLATTENED:
            part = _flat(block, key)
        if part is not None:
            return part
    first = next(iter(block))
    return None if first in CONVENTIONAL else {"type": first, **block}


def part_to_untyped(part: Json) -> Any:
    """Return the block that `untyped_to_part` was given."""
    mark = part.get(FORMAT, UNTYPED)
    if mark in (STRING, "json"):
        return part["content"]
    if mark in _UNTYPED_MEDIA:
        return media.from_media(part, _UNTYPED_MEDIA[mark], None)
    if mark in _FLATTENED:
        return _flat_back(part, mark)
    is_text = part["type"] in ("text", "reasoning")
    return {
        "text" if is_text and key == "content" else key: item
        for key, item in part.items()
        if key not in ("type", FORMAT)
    }


def _plain_text(block: Json, text: str) -> Json:
    """The block that nearly all are, without the detour; in the order of its keys."""
    if next(iter(block)) == "type":
        return {"type": "text", "content": text}
    return {"content": text, "type": "text"}


def _typed(block: Json, kind: str) -> Json:
    part = None
    if kind in _RENAMED:
        part = _renamed(block, kind)
    elif kind in _MEDIA_OF:
        for mark in _MEDIA_OF[kind]:
            part = part or media.to_media(block, _MEDIA[mark][1], mark)
    elif kind in _NAMED:
        part = _named(block, kind)
    elif kind == "function_call":
        part = _function_call(block)
    elif kind == "reasoning":
        part = _reasoning(block)
    if part is not None:
        return part
    return {**block, FORMAT: GIVEN} if kind in CONVENTIONAL else block


def _renamed(block: Json, kind: str) -> Json | None:
    part_type, names = _RENAMED[kind]
    if any(name in block and name not in names for name in names.values()):
        return None
    if kind in _MUST_BE_TEXT and not isinstance(block.get(next(iter(names))), str):
        return None
    if part_type == "tool_call" and not (isinstance(block.get("name"), str) and "input" in block):
        return None
    part = {names.get(key, key): item for key, item in block.items()}
    part["type"] = part_type
    if _UNMARKED[part_type] != kind:
        part[FORMAT] = kind
    return part


def _renamed_back(part: Json, kind: str) -> Json:
    names = {name: key for key, name in _RENAMED[kind][1].items()}
    block = {names.get(key, key): item for key, item in part.items() if key != FORMAT}
    block["type"] = kind
    return block


def _flat(block: Json, key: str) -> Json | None:
    part_type, names = _FLATTENED[key]
    inner = block[key]
    if not isinstance(inner, dict) or not inner or not names.keys() >= inner.keys():
        return None
    if any(name in block for name in names.values()):
        return None
    if part_type == "tool_call" and not isinstance(inner.get("name"), str):
        return None
    part: Json = {"type": part_type}
    for outer, item in block.items():
        if outer == key:
            part.update((names[name], field) for name, field in inner.items())
        else:
            part[outer] = item
    part[FORMAT] = key
    return part


def _flat_back(part: Json, key: str) -> Json:
    names = {name: field for field, name in _FLATTENED[key][1].items()}
    block: Json = {}
    for name, item in part.items():
        if name in names:
            block.setdefault(key, {})[names[name]] = item
        elif name not in ("type", FORMAT):
            block[name] = item
    return block


def _named(block: Json, kind: str) -> Json | None:
    tool, key = _NAMED[kind]
    if "call_id" not in block or key not in block:
        return None
    if any(name in block for name in ("item_id", "name", "arguments")):
        return None
    names = {"id": "item_id", "call_id": "id", key: "arguments"}
    part: Json = {}
    for name, item in block.items():
        part[names.get(name, name)] = item
    part |= {"type": "tool_call", "name": tool, FORMAT: kind}
    return part


def _named_back(part: Json, kind: str) -> Json:
    names = {"item_id": "id", "id": "call_id", "arguments": _NAMED[kind][1]}
    block = {
        names.get(name, name): item for name, item in part.items() if name not in ("name", FORMAT)
    }
    block["type"] = kind
    return block


def _function_call(block: Json) -> Json | None:
    if not isinstance(block.get("name"), str) or "call_id" not in block:
        return None
    if "arguments" not in block or "item_id" in block or ARGUMENTS in block:
        return None
    names = {"id": "item_id", "call_id": "id"}
    part = {names.get(key, key): item for key, item in block.items()}
    part["arguments"], style = arguments.read(block["arguments"])
    part["type"] = "tool_call"
    if style is not None:
        part[ARGUMENTS] = style
    part[FORMAT] = FUNCTION_CALL
    return part


def _function_call_back(part: Json) -> Json:
    names = {"item_id": "id", "id": "call_id"}
    dropped = (FORMAT, ARGUMENTS)
    block = {names.get(key, key): item for key, item in part.items() if key not in dropped}
    block["arguments"] = arguments.write(part["arguments"], part.get(ARGUMENTS))
    block["type"] = "function_call"
    return block


def _reasoning(block: Json) -> Json | None:
    """A Responses item: its text is that of its content, else of its summary.

    One text is moved to the part's content; several stay where they are and are joined there.
    """
    if "item_content" in block or not isinstance(block.get("summary", block.get("content")), list):
        return None
    part = {"item_content" if key == "content" else key: item for key, item in block.items()}
    key, texts = _reasoning_texts(part)
    if len(texts) == 1:
        part[key] = [{**part[key][0], "text": ""}]
    part["content"] = "\n\n".join(texts)
    part[FORMAT] = REASONING
    return part


def _reasoning_back(part: Json) -> Json:
    key, texts = _reasoning_texts(part)
    block = {name: item for name, item in part.items() if name not in ("content", FORMAT)}
    if len(texts) == 1:
        block[key] = [{**part[key][0], "text": part["content"]}]
    return {"content" if name == "item_content" else name: item for name, item in block.items()}


def _reasoning_texts(part: Json) -> tuple[str, list[str]]:
    for key in ("item_content", "summary"):
        entries = part.get(key)
        if isinstance(entries, list) and entries:
            texts = [entry.get("text") for entry in entries if isinstance(entry, dict)]
            found = [text for text in texts if isinstance(text, str)]
            if len(found) == len(entries):
                return key, found
    return "", []
