# SPDX-License-Identifier: Apache-2.0
"""Blocks of content as providers and frameworks write them, as parts of the GenAI conventions.

OpenAI, Anthropic and Gemini are known to the recorder (`otel_taskhistory.recording.formats`),
which marks what it converts so that it can be inverted; the marks are left away here, for the
span itself keeps what was said. Bedrock's media and pydantic-ai's first format are added.
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.recording.formats import arguments, parts, whole
from otel_taskhistory.recording.keys import BYTES, PREFIX
from otel_taskhistory.recording.plain import is_plain, to_plain

Json = dict[str, Any]

_BEDROCK_MEDIA: Final = {"image": "image", "video": "video", "audio": "audio"}
_BEDROCK_KEYS: Final = frozenset(
    {"text", "toolUse", "toolResult", "reasoningContent", "document", "cachePoint"}
    | _BEDROCK_MEDIA.keys()
)
_TYPES: Final = frozenset(
    {
        *("text", "input_text", "output_text", "reasoning", "thinking", "redacted_thinking"),
        *("image", "image_url", "input_image", "input_audio", "audio", "video", "document"),
        *("file", "input_file", "blob", "uri", "refusal"),
        *("tool_use", "tool_result", "tool_call", "tool_call_response", "function_call"),
    }
)
"""Types of blocks in the APIs of providers and in the conventions."""
_KINDS: Final = frozenset({"text", "thinking", "binary"})
"""And of pydantic-ai's first format."""


def plain(value: Any) -> Any:
    """`value` in plain JSON types, whatever it was."""
    return value if is_plain(value) else to_plain(value)[0]


def is_block(value: Any) -> bool:
    """Whether a value that was found in a text is a block of content.

    Only what is one beyond doubt: a user may send JSON as a text, too.
    """
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if isinstance(kind, str):
        return kind in _TYPES
    kind = value.get("kind")
    if isinstance(kind, str):
        return kind in _KINDS or kind.endswith("-url")
    return len(value) == 1 and next(iter(value)) in _BEDROCK_KEYS


def part_of(block: Any) -> Json:
    """The part for one block of plain values; what fits no rule is kept whole."""
    if isinstance(block, dict):
        if isinstance(block.get("kind"), str) and "type" not in block:
            return _of_kind(block)
        found = _bedrock(block)
        if found is not None:
            return found
    return _unmarked(parts.to_part(block))


def tool_call(call: Any) -> Json:
    """The part for a tool call as chat APIs list them; arguments in JSON are parsed."""
    if not isinstance(call, dict):
        return _unmarked(whole(call))
    inner = call.get("function")
    fields = inner if isinstance(inner, dict) else call
    made: Json = {"type": "tool_call"}
    if "id" in call:
        made["id"] = call["id"]
    name = fields.get("name")
    if not isinstance(name, str):
        return {"type": "tool_call", **{key: item for key, item in call.items() if key != "type"}}
    made["name"] = name
    for key in ("arguments", "args", "input"):
        if key in fields:
            made["arguments"] = arguments.read(fields[key])[0]
            break
    return made


def _unmarked(part: Json) -> Json:
    return {key: item for key, item in part.items() if not key.startswith(PREFIX)}


def _of_kind(block: Json) -> Json:
    """pydantic-ai's first format: ``{"kind": "text", "text": …}``."""
    kind = block["kind"]
    rest = {key: item for key, item in block.items() if key != "kind"}
    if kind in ("text", "thinking") and isinstance(rest.get("text"), str):
        return {
            "type": "text" if kind == "text" else "reasoning",
            "content": rest.pop("text"),
            **rest,
        }
    media_type = rest.get("media_type")
    if kind == "binary" and isinstance(rest.get("binary_content"), str):
        return _blob(media_type, rest["binary_content"])
    if kind.endswith("-url") and isinstance(rest.get("url"), str):
        return {"type": "uri", "modality": kind[: -len("-url")], "uri": rest["url"]}
    return {"type": kind, **rest}


def _bedrock(block: Json) -> Json | None:
    """Bedrock's reasoning and media, whose one key says what they are."""
    if len(block) != 1:
        return None
    ((key, inner),) = block.items()
    if not isinstance(inner, dict):
        return None
    if key == "reasoningContent":
        said = inner.get("reasoningText")
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            rest = {name: item for name, item in said.items() if name != "text"}
            return {"type": "reasoning", "content": said["text"], **rest}
        return None
    if key not in _BEDROCK_MEDIA and key != "document":
        return None
    source = inner.get("source")
    data = source.get("bytes") if isinstance(source, dict) else None
    data = data.get(BYTES) if isinstance(data, dict) else data
    kind = inner.get("format")
    if not isinstance(data, str) or not isinstance(kind, str):
        return None
    # The bytes may have been left out ("<replaced>"): that is shown where they would stand.
    rest = {name: item for name, item in inner.items() if name not in ("format", "source")}
    mime_type = f"{_BEDROCK_MEDIA.get(key, 'application')}/{kind}"
    return _blob(mime_type, data, "document" if key == "document" else None) | rest


def _blob(mime_type: Any, content: str, modality: str | None = None) -> Json:
    mime_type = mime_type if isinstance(mime_type, str) else "application/octet-stream"
    kind = mime_type.partition("/")[0]
    return {
        "type": "blob",
        "modality": modality or (kind if kind in ("image", "audio", "video") else "document"),
        "mime_type": mime_type,
        "content": content,
    }
