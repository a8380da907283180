# SPDX-License-Identifier: Apache-2.0
"""Messages as pydantic-ai and Logfire have written them over the years, as GenAI messages.

Formats 2 and later are the conventions' own message lists, but call some parts by other names
(``thinking`` in all of them; ``binary``, ``image-url``, … up to format 3). Only messages with such
parts are written anew; the others stay the very strings that came, so that they are stored once.

Format 1, and Logfire for the Responses API, say a conversation as a list of events like those that
the conventions once had, one for each message; see `Conversation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.conventions.content import as_text, message_list, parsed, text_of
from otel_taskhistory.conventions.facts import Said
from otel_taskhistory.conventions.genai_events import CHOICE

Message = dict[str, Any]

EVENT_NAME: Final = "event.name"
"""Key of the event's name in an event that is written as a dict."""

_MEDIA: Final[Mapping[str, str]] = {
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "document",
}
_OWN_NAMES: Final = ('"thinking"', '"binary"', '-url"')
"""What a message list with parts of their own names has in it."""

_MESSAGE: Final = ".message"
"""How the names of messages end; before it stands the role."""
_UNKNOWN: Final = ".unknown"
"""Logfire's, for what it has no message for."""


@dataclass(slots=True)
class Conversation:
    """What a list of events says: the messages that were sent, and what came back."""

    sent: list[Message] = field(default_factory=list)
    answered: list[Message] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, name: str, body: Any) -> None:
        """One event; whatever is no message is left out."""
        if not isinstance(body, Mapping):
            return
        if name != CHOICE:
            if name.endswith((_MESSAGE, _UNKNOWN)):
                role = name.removesuffix(_MESSAGE).rpartition(".")[2]
                self.sent.append(_message(text_of(body.get("role")) or role, body))
            return
        message = body.get("message")
        # Older versions put the whole message into the choice; `message` may also be plain text.
        said = message if isinstance(message, Mapping) else {"content": message}
        self.answered.append(_message(text_of(said.get("role")) or "assistant", said))
        self.finish_reason = self.finish_reason or text_of(body.get("finish_reason"))

    def split_answer(self) -> None:
        """Take what the model said last for its answer, where no event says that it is one."""
        if self.answered:
            return
        while self.sent and self.sent[-1]["role"] == "assistant":
            self.answered.append(self.sent.pop())
        self.answered.reverse()

    @property
    def prompt(self) -> Said | None:
        """The messages that were sent."""
        return message_list(self.sent) if self.sent else None

    @property
    def decision(self) -> Said | None:
        """What came back."""
        return message_list(self.answered) if self.answered else None

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Ids of the tool calls that were asked for."""
        return call_ids_in(self.answered)


def conversation(events: Any) -> Conversation | None:
    """A list of events, as JSON text or as it is; None when it is none.

    Each event is a dict: the body of the event with the attributes of the event among its keys.
    """
    listed = parsed(events)
    if not isinstance(listed, list | tuple):
        return None
    found = Conversation()
    for event in listed:
        if isinstance(event, Mapping):
            found.add(text_of(event.get(EVENT_NAME)) or "", event)
    return found


def in_genai_form(value: Any) -> str | None:
    """A message list in which parts have their own names, with the names of the conventions.

    Returns:
        None where nothing is to be renamed, or where `value` is no whole list of messages.
    """
    if not isinstance(value, str) or not any(name in value for name in _OWN_NAMES):
        return None
    changed = False
    pieces: list[str] = []
    for message, raw in _elements(value) or ():
        renamed = _renamed(message)
        changed = changed or renamed is not message
        pieces.append(raw if renamed is message else message_list([renamed]).raw[1:-1])
    return f"[{','.join(pieces)}]" if changed else None


def call_ids_in(messages: Iterable[Any]) -> tuple[str, ...]:
    """Ids of the tool calls in messages."""
    calls = (
        part for message in messages for part in parts_of(message) if _type(part) == "tool_call"
    )
    return tuple(call_id for call_id in (text_of(part.get("id")) for part in calls) if call_id)


def parts_of(message: Any) -> list[Mapping[str, Any]]:
    """The parts of a message that are objects."""
    parts = message.get("parts") if isinstance(message, Mapping) else None
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def text_in(message: Any) -> str | None:
    """The text of a message, its parts on lines of their own."""
    texts = (text_of(part.get("content")) for part in parts_of(message) if _type(part) == "text")
    return "\n".join(text for text in texts if text) or None


def _type(part: Mapping[str, Any]) -> Any:
    return part.get("type")


# --- message lists with parts of other names ---


def _elements(text: str) -> Iterator[tuple[Any, str]] | None:
    """The elements of a JSON array, each with its text; None when it is none or not whole."""
    decoder = json.JSONDecoder()
    found: list[tuple[Any, str]] = []
    position = _after_space(text, 0)
    if text[position : position + 1] != "[":
        return None
    try:
        while text[position] != "]":  # at the opening bracket, then at commas
            start = _after_space(text, position + 1)
            value, end = decoder.raw_decode(text, start)
            found.append((value, text[start:end]))
            position = _after_space(text, end)
            if text[position] not in ",]":
                return None
    except (ValueError, IndexError, RecursionError):
        return None
    return iter(found)


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _renamed(message: Any) -> Any:
    """`message`, or one like it when parts of it have other names in the conventions."""
    parts = message.get("parts") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return message
    renamed = [_part(part) for part in parts]
    if all(new is old for new, old in zip(renamed, parts, strict=True)):
        return message
    return {**message, "parts": renamed}


def _part(part: Any) -> Any:
    """A part by the conventions' name for it; one that they have none for stays as it is."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return part
    rest = {key: item for key, item in part.items() if key != "type"}
    if kind == "thinking":
        return {"type": "reasoning", **rest}
    if kind == "binary":
        media_type = rest.pop("media_type", None)
        named = {"modality": _modality(media_type), "mime_type": media_type}
        return {"type": "blob", **{k: v for k, v in named.items() if v is not None}, **rest}
    if kind in _MEDIA:
        url = {"uri": rest.pop("url")} if "url" in rest else {}
        return {"type": "uri", "modality": _MEDIA[kind], **url, **rest}
    return part


def _modality(media_type: Any) -> str | None:
    if not isinstance(media_type, str) or "/" not in media_type:
        return None
    major = media_type.partition("/")[0]
    return major if major in ("image", "audio", "video") else "document"


# --- messages as events ---


def _message(role: str, body: Mapping[str, Any]) -> Message:
    if role == "tool":
        answered: dict[str, Any] = {"type": "tool_call_response"}
        answered |= {key: body[key] for key in ("id", "name") if body.get(key) is not None}
        if "content" in body:
            answered["response"] = body["content"]
        return {"role": role, "parts": [answered]}
    parts = [*_content(body.get("content")), *_calls(body.get("tool_calls"))]
    if "data" in body and str(body.get(EVENT_NAME)).endswith(_UNKNOWN):
        parts.append({"type": "unknown", "data": body["data"]})
    return {"role": role, "parts": parts}


def _content(content: Any) -> Iterator[Message]:
    """The parts of a message: a text, or a list of texts and of objects with a ``kind``."""
    for item in content if isinstance(content, list | tuple) else (content,):
        if isinstance(item, Mapping):
            yield _object(item)
        elif item is not None:
            yield {"type": "text", "content": item if isinstance(item, str) else as_text(item)}


def _object(item: Mapping[str, Any]) -> Message:
    kind = text_of(item.get("kind")) or text_of(item.get("type"))
    rest = {str(key): value for key, value in item.items() if key not in ("kind", "type")}
    for name in ("text", "binary_content"):  # where the conventions say `content`
        if name in rest and "content" not in rest:
            rest["content"] = rest.pop(name)
    part: Message = _part({"type": kind or "unknown", **rest})
    return part


def _calls(calls: Any) -> Iterator[Message]:
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        part = {"type": "tool_call", "id": call.get("id"), "name": function.get("name")}
        if "arguments" in function:
            part["arguments"] = function["arguments"]
        yield {key: value for key, value in part.items() if value is not None}
