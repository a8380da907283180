# SPDX-License-Identifier: Apache-2.0
"""Haystack's ``ChatMessage`` as JSON, in the forms of its versions, as GenAI messages.

* ``{"role", "meta", "name", "content": [part, …]}``, the newest;
* ``{"_role", "_meta", "_name", "_content": [part, …]}``, until spring 2025;
* ``{"role", "meta", "name", "content": "text"}``, until 2.8.

A part has one key that says what it is (``text``, ``tool_call``, ``tool_call_result``, ``image``,
``file``, ``reasoning``), or is the fields of one of these by itself. Nothing raises; what fits
nothing is kept whole, and no key with a value is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_taskhistory.conventions.content import as_text
from otel_taskhistory.conventions.traceloop_json import is_empty

Json = dict[str, Any]

_PLACEHOLDER: Final = re.compile(r"Base64 string \(\d+ characters\)")
"""What tracing writes in the place of a picture or file."""

_RESPONSE: Final = "tool_call_response"

_KINDS: Final = ("tool_call", "tool_call_result", "image", "file", "reasoning")
_FLAT: Final[Mapping[str, str]] = {
    "tool_name": "tool_call",
    "origin": "tool_call_result",
    "reasoning_text": "reasoning",
    "base64_image": "image",
    "base64_data": "file",
}
"""A field that only one kind of part has → that kind."""


def is_message(value: Any) -> bool:
    """Whether a value is a message of any of the forms."""
    if not isinstance(value, Mapping):
        return False
    return ("_role" in value and "_content" in value) or ("role" in value and "content" in value)


def messages_in(value: Any) -> list[Mapping[str, Any]] | None:
    """The messages that a value is a list of, or one of; None when it is neither."""
    if is_message(value):
        return [value]
    if isinstance(value, list) and value and all(map(is_message, value)):
        return value
    return None


def message(said: Mapping[str, Any]) -> Json:
    """The GenAI message for one message."""
    role = _field(said, "role")
    role = role.rpartition(".")[2].lower() if isinstance(role, str) else "user"
    made: Json = {"role": role, "parts": parts(_field(said, "content"))}
    name = _field(said, "name")
    if name is not None:
        made["name"] = name
    meta = _field(said, "meta")
    if isinstance(meta, Mapping) and isinstance(reason := meta.get("finish_reason"), str):
        made["finish_reason"] = reason
    return made


def meta_of(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the message says of the request that it answers: model, usage, …."""
    meta = _field(said, "meta")
    return meta if isinstance(meta, Mapping) else {}


def role_of(said: Mapping[str, Any]) -> str:
    """Whose the message is."""
    role = _field(said, "role")
    return role.rpartition(".")[2].lower() if isinstance(role, str) else ""


def text_of(said: Mapping[str, Any]) -> str | None:
    """The texts of a message, each a paragraph, else the results of tools in it."""
    made = parts(_field(said, "content"))
    texts = [part["content"] for part in made if part["type"] == "text"]
    if not texts:
        texts = [as_text(part["response"]) for part in made if part["type"] == _RESPONSE]
    return "\n".join(text for text in texts if text) or None


def parts(content: Any) -> list[Json]:
    """The parts for the content of a message."""
    if is_empty(content):
        return []
    blocks: Iterable[Any] = content if isinstance(content, list) else [content]
    return [_part(block) for block in blocks]


def _field(said: Mapping[str, Any], name: str) -> Any:
    return said[name] if name in said else said.get(f"_{name}")


def _part(block: Any) -> Json:
    if isinstance(block, str):
        return {"type": "text", "content": block}
    if not isinstance(block, Mapping):
        return {"type": "json", "content": block}
    if isinstance(block.get("text"), str):
        rest = {key: item for key, item in block.items() if key not in ("text", "type")}
        return {"type": "text", "content": block["text"], **_known(rest)}
    for kind in _KINDS:
        if isinstance(block.get(kind), Mapping):
            return _of_kind(kind, block[kind])
    for key, kind in _FLAT.items():
        if key in block:
            return _of_kind(kind, block)
    return {"type": "json", "content": dict(block)}


def _of_kind(kind: str, fields: Mapping[str, Any]) -> Json:
    rest = dict(fields)
    if kind == "tool_call":
        made = {"type": kind, "id": rest.pop("id", None), "name": rest.pop("tool_name", "")}
        made["arguments"] = rest.pop("arguments", None)
    elif kind == "tool_call_result":
        made = _result(rest)
    elif kind == "reasoning":
        made = {"type": "reasoning", "content": rest.pop("reasoning_text", "")}
    else:
        made = _medium(kind, rest)
    return {key: item for key, item in made.items() if key != "id" or item is not None} | _known(
        {key: item for key, item in rest.items() if key not in made}
    )


def _result(rest: Json) -> Json:
    """Takes what it uses out of `rest`; the call itself is in an earlier message."""
    origin = rest.pop("origin", None)
    fields = origin if isinstance(origin, Mapping) else {}
    result = rest.pop("result", None)
    if isinstance(result, list):
        result = parts(result)
    made: Json = {"type": _RESPONSE, "id": fields.get("id"), "response": result}
    if isinstance(name := fields.get("tool_name"), str):
        made["name"] = name
    if rest.pop("error", None) is True:
        made["error"] = True
    return made


def _medium(kind: str, rest: Json) -> Json:
    data = rest.pop("base64_image" if kind == "image" else "base64_data", None)
    rest.pop("validation", None)
    if not isinstance(data, str):
        return {"type": kind}
    if _PLACEHOLDER.fullmatch(data):  # not the picture, so that nobody tries to read it as one
        return {"type": kind, "omitted": data}
    mime_type = rest.pop("mime_type", None)
    made: Json = {"type": "blob", "modality": "image" if kind == "image" else "document"}
    if isinstance(mime_type, str):
        start = mime_type.partition("/")[0]
        if start in ("image", "audio", "video"):
            made["modality"] = start
        made["mime_type"] = mime_type
    return {**made, "content": data}


def _known(fields: Mapping[str, Any]) -> Json:
    return {key: item for key, item in fields.items() if not is_empty(item)}
