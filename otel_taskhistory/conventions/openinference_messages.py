# SPDX-License-Identifier: Apache-2.0
"""Puts flattened OpenInference messages together again, as messages of the GenAI conventions.

The dialect writes one attribute for each leaf of its lists, e.g.
``llm.input_messages.0.message.contents.1.message_content.image.image.url``. They come in any
order, numbers may begin at 1 and leave gaps, and one tool call may be told twice: where it stands
among the contents, and in the list of calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.conventions.content import as_text, text_of
from otel_taskhistory.conventions.openinference_parts import (
    arguments_of,
    keep,
    medium,
    plain,
    response_part,
    text_parts,
)
from otel_taskhistory.recording.formats import Json
from otel_taskhistory.spans.record import Attributes

_TOOL_ROLES: Final = frozenset({"tool", "function"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text"})
_REASONING: Final = frozenset({"reasoning", "thinking"})
_MEDIA: Final = frozenset({"image", "audio", "video"})
_LONGEST_NUMBER: Final = 9
_LIST_NAMES: Final = (
    *("llm.input_messages.", "llm.output_messages."),
    *("llm.prompts.", "llm.choices."),
)


@dataclass(slots=True)
class _Draft:
    """What came of one message; keys of the inner dicts are the rest of the attribute's name."""

    fields: Json = field(default_factory=dict)
    contents: dict[int, Json] = field(default_factory=dict)
    calls: dict[int, Json] = field(default_factory=dict)


class Flattened:
    """One flattened list of messages: `add` its attributes in any order, then read `messages`."""

    def __init__(self, role: str) -> None:
        """`role` is that of a message that does not say whose it is."""
        self._role = role
        self._drafts: dict[int, _Draft] = {}

    def add(self, path: str, value: Any) -> None:
        """Take the attribute whose name ends in `path`, which begins with the message's number."""
        number, path = _numbered(path)
        if number is None or value is None:
            return
        if type(value) is not str:
            value = plain(value)
        draft = self._drafts.setdefault(number, _Draft())
        path = path.removeprefix("message.")
        head, _, rest = path.partition(".")
        if head in ("contents", "tool_calls"):
            inner, rest = _numbered(rest)
            if inner is not None:
                lists = draft.contents if head == "contents" else draft.calls
                lists.setdefault(inner, {})[rest] = value
                return
        draft.fields[path] = value

    def messages(self) -> list[Json]:
        """The messages in the order of their numbers."""
        return [_message(self._drafts[number], self._role) for number in sorted(self._drafts)]


class FlattenedTexts:
    """A flattened list of plain texts: prompts or answers of a completions API."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def add(self, path: str, value: Any) -> None:
        """As `Flattened.add`; what follows the number does not matter."""
        number, _ = _numbered(path)
        text = as_text(value)
        if number is not None and text is not None:
            self._texts.setdefault(number, text)

    def add_all(self, values: Any) -> None:
        """Take a list of texts, or a single one."""
        for number, value in enumerate(values if isinstance(values, list | tuple) else [values]):
            self.add(str(number), value)

    def texts(self) -> list[str]:
        """The texts in the order of their numbers."""
        return [self._texts[number] for number in sorted(self._texts)]


@dataclass(slots=True)
class Lists:
    """The flattened lists of a span."""

    input: Flattened = field(default_factory=lambda: Flattened("user"))
    output: Flattened = field(default_factory=lambda: Flattened("assistant"))
    prompts: FlattenedTexts = field(default_factory=FlattenedTexts)
    choices: FlattenedTexts = field(default_factory=FlattenedTexts)
    found: bool = False
    """Whether there are any."""


def gathered(attributes: Attributes) -> Lists:
    """The flattened attributes, in one pass over all."""
    lists = Lists()
    into = (lists.input.add, lists.output.add, lists.prompts.add, lists.choices.add)
    for key, value in attributes.items():
        if not isinstance(key, str) or not key.startswith("llm."):
            continue
        for prefix, add in zip(_LIST_NAMES, into, strict=True):
            if key.startswith(prefix):
                add(key[len(prefix) :], value)
                lists.found = True
                break
    if (prompts := attributes.get("llm.prompts")) is not None:
        lists.prompts.add_all(prompts)
    return lists


def _numbered(path: str) -> tuple[int | None, str]:
    """The number that `path` begins with, and what follows it."""
    number, _, rest = path.partition(".")
    if len(number) > _LONGEST_NUMBER or not (number.isascii() and number.isdigit()):
        return None, path
    return int(number), rest


def _message(draft: _Draft, role: str) -> Json:
    fields = dict(draft.fields)
    said, call_id = fields.pop("role", None), as_text(fields.pop("tool_call_id", None))
    name = fields.pop("function_call_name", None)
    arguments = fields.pop("function_call_arguments_json", None)
    asks = bool(draft.calls) or name is not None or arguments is not None
    if not isinstance(said, str) or not said:  # dropped by a limit of the SDK, or of a wrong type
        said = "tool" if call_id is not None else "assistant" if asks else role
    content = fields.pop("content", None)
    parts = [_part(draft.contents[number]) for number in sorted(draft.contents)]
    if call_id is not None or said in _TOOL_ROLES:
        # Where a message holds a result and more, the content is the result.
        told = content if content is not None else parts or None
        rest = parts if content is not None else []
        parts = [response_part(call_id, told), *rest]
    elif content is not None and not _is_told(content, parts):
        parts = [*text_parts(content), *parts]
    message: Json = {"role": said, "parts": parts}
    _add_calls(parts, (_call(draft.calls[number]) for number in sorted(draft.calls)))
    if name is not None or arguments is not None:
        call = _named_call(name, arguments)
        if not any(part["type"] == "tool_call" and _agree(part, call) for part in parts):
            parts.append(call)
    keep(message, fields)
    return message


def _is_told(content: Any, parts: list[Json]) -> bool:
    """Whether the contents say what the content says: some instrumentations write both."""
    texts = [part["content"] for part in parts if part["type"] == "text"]
    return content in texts or (len(texts) > 1 and content in ("".join(texts), "\n".join(texts)))


# --- contents -----------------------------------------------------------------------------------


def _part(fields: Json) -> Json:
    """One of a message's contents; of an unknown type it keeps all of its fields."""
    own: Json = {}
    call: Json = {}
    for key, value in fields.items():
        if key.startswith("tool_call."):
            call[key] = value
        else:
            own[key.removeprefix("message_content.")] = value
    kind = text_of(own.pop("type", None))
    if call or kind == "tool_use":
        part = _call(call)
        keep(part, own)
        return part
    text = own.pop("text", None)
    if kind in _REASONING:
        part = {"type": "reasoning", "content": as_text(text) or ""}
    elif kind in _TEXTS or (kind is None and text is not None):
        part = {"type": "text", "content": as_text(text) or ""}
    elif (found := _medium(kind, own)) is not None:
        part = found
        keep(part, {} if text is None else {"text": text})
    else:
        part = {"type": kind or "unknown"}
        keep(part, {} if text is None else {"text": text})
    keep(part, own)
    return part


def _medium(kind: str | None, own: Json) -> Json | None:
    """The picture or sound in a content, whose fields are then taken out of `own`."""
    kinds = [kind] if kind in _MEDIA else sorted(_MEDIA) if kind is None else []
    for name in kinds:
        for key in (f"{name}.{name}.url", f"{name}.url", f"{name}_url", name):
            if isinstance(own.get(key), str):
                mime_type = own.pop(f"{name}.{name}.mime_type", None)
                return medium(name, own.pop(key), mime_type)
    return None


# --- tool calls ---------------------------------------------------------------------------------


def _call(fields: Json) -> Json:
    inner = {key.removeprefix("tool_call."): value for key, value in fields.items()}
    call_id = as_text(inner.pop("id", None))
    part: Json = {"type": "tool_call"}
    if call_id is not None:
        part["id"] = call_id
    part |= _named_call(inner.pop("function.name", None), inner.pop("function.arguments", None))
    keep(part, inner)
    return part


def _named_call(name: Any, arguments: Any) -> Json:
    part: Json = {"type": "tool_call", "name": as_text(name) or ""}
    if arguments is not None:
        part["arguments"] = arguments_of(arguments)
    return part


def _add_calls(parts: list[Json], calls: Iterable[Json]) -> None:
    """Add the calls that the parts do not tell of yet; one they tell of gets what it lacks.

    The same call is one with the same id; without an id, one of the contents with the same name
    and arguments. What contradicts a call of the same id is kept beside it.
    """
    told: dict[tuple[str, ...], list[Json]] = {}
    for part in parts:
        if part["type"] == "tool_call":
            told.setdefault(_key(part), []).append(part)
    for call in calls:
        known = told.setdefault(_key(call), [])
        has_id = "id" in call
        if known and _agree(known[0], call):
            found = known[0] if has_id else known.pop(0)
            keep(found, call)
            found["name"] = found["name"] or call["name"]
            continue
        parts.append(call)
        if has_id:
            known.append(call)


def _agree(one: Json, other: Json) -> bool:
    return all(
        not one.get(key) or not other.get(key) or one[key] == other[key]
        for key in ("name", "arguments")
    )


def _key(call: Json) -> tuple[str, ...]:
    if isinstance(call_id := call.get("id"), str):
        return (call_id,)
    try:
        return (call["name"], json.dumps(call.get("arguments"), sort_keys=True))
    except (TypeError, ValueError, RecursionError):  # a structured value that JSON does not have
        return (call["name"], "")
