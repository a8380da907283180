# SPDX-License-Identifier: Apache-2.0
"""GenAI messages as people read them: who said it, and each part as a few lines of text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from otel_taskhistory.recording import keys

Kind = Literal["text", "reasoning", "call", "result", "picture", "other"]

_REFERENCE: Final = re.compile(
    r"(?:data:(?P<type>[\w.+/-]+);base64,)?artifact:sha256:(?P<sha256>[0-9a-f]{64})"
)
_SHOWN_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message."""

    kind: Kind
    text: str
    call_id: str | None = None
    """Of a tool call, or of the result of one."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `role` is empty for a plain text."""

    role: str
    parts: tuple[Part, ...]
    sent: str = ""
    """Whatever else was sent with it, as JSON."""
    noted: str = ""
    """What the recorder noted with it, as JSON: how it came, or the rest of a response."""

    @property
    def text(self) -> str:
        """What was said and sent."""
        return "\n".join([*map(shown, self.parts), *([self.sent] if self.sent else [])])


def read_message(text: str) -> Message:
    """A message out of its JSON; anything else is a plain text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return _message(value) if isinstance(value, dict) else Message("", (Part("text", text),))


def read_messages(text: str | None) -> list[Message]:
    """The messages of a prompt or decision; a plain text is one without a role."""
    if not text:
        return []
    try:
        value = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [_message(item) for item in value]
    return [Message("", (Part("text", text),))]


def shown(part: Part) -> str:
    """A part as text, with a sign of what it is."""
    match part.kind:
        case "reasoning":
            return f"(thinks) {part.text}"
        case "call":
            return f"→ {part.text}"
        case "result":
            return f"← {part.text}"
        case _:
            return part.text


def call_text(name: str, arguments: Any) -> str:
    """A tool call: ``click(selector="#go")``."""
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            parsed = arguments
        arguments = parsed if isinstance(parsed, dict) else arguments
    if isinstance(arguments, dict):
        inside = ", ".join(f"{key}={_json(value)}" for key, value in arguments.items())
    else:
        inside = "" if arguments is None else value_text(arguments)
    return pictures_named(f"{name}({inside})")


def value_text(value: Any) -> str:
    """A value: text as it is, anything else as JSON."""
    return pictures_named(value if isinstance(value, str) else _json(value))


def pictures_named(text: str) -> str:
    """`text` with each reference to a picture in a form for people."""
    return _REFERENCE.sub(
        lambda found: f"[{found['type'] or 'picture'} {found['sha256'][:_SHOWN_DIGITS]}]", text
    )


def _message(value: dict[str, Any]) -> Message:
    parts = value.get("parts")
    known = {"role", "parts", "finish_reason"}
    if not isinstance(parts, list):
        content = value.get("content")
        parts = content if isinstance(content, list) else [] if content is None else [content]
        known.add("content")
    found = [_part(part) for part in parts]
    rest = {key: item for key, item in value.items() if key not in known and item is not None}
    # Said by the parts already: which call is answered, and where its calls stood.
    if rest.get("tool_call_id") in [part.call_id for part in found if part.call_id]:
        del rest["tool_call_id"]
    if isinstance(rest.get("tool_calls"), int):
        del rest["tool_calls"]
    noted = {key: rest.pop(key) for key in list(rest) if key.startswith(keys.PREFIX)}
    noted.pop(keys.FORMAT, None)
    role = value.get("role")
    return Message(
        role if isinstance(role, str) else "",
        tuple(found),
        sent=value_text(rest) if rest else "",
        noted=value_text(noted) if noted else "",
    )


def _part(part: Any) -> Part:
    if not isinstance(part, dict):
        return Part("text", value_text(part))
    call_id = part.get("id") if isinstance(part.get("id"), str) else None
    match part.get("type"):
        case "text" if isinstance(part.get("content", part.get("text")), str):
            return Part("text", value_text(part.get("content", part.get("text"))))
        case "reasoning" if isinstance(part.get("content"), str):
            return Part("reasoning", value_text(part["content"]))
        case "tool_call" if isinstance(part.get("name"), str):
            return Part("call", call_text(part["name"], part.get("arguments")), call_id)
        case "tool_call_response":
            value = part.get("response", part.get("result"))
            return Part("result", value_text(value), call_id)
        case "blob" | "uri" | "file":
            what = part.get("mime_type") or part.get("modality") or part["type"]
            where = part.get("content") or part.get("uri") or part.get("file_id") or ""
            named = pictures_named(where) if isinstance(where, str) else _json(where)
            return Part("picture", f"[{what}] {named}")
        case _:
            return Part("other", value_text(part))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
