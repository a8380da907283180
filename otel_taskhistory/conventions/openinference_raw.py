# SPDX-License-Identifier: Apache-2.0
"""Model calls as the raw request and response tell them: JSON in ``input.value``, ``output.value``.

Instrumentations flatten less than they see: OpenInference drops pictures over 32,000 characters,
openai-agents all items of the Responses API and each picture, Anthropic's what is in a tool's
result. The raw values hold these, but are absent when they are hidden, no JSON when they were
cut, and of no use where a framework wrote ``repr``. Hence the rule of `believed`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from otel_taskhistory.conventions import openinference_langchain as langchain
from otel_taskhistory.conventions.content import parsed
from otel_taskhistory.conventions.openinference_parts import (
    pieces,
    plain,
)
from otel_taskhistory.recording.formats import Json, items
from otel_taskhistory.recording.replies import Reply, read_reply

_LISTS: Final = ("messages", "input", "contents", "prompt")
_INSTRUCTIONS: Final = ("system", "instructions", "system_instruction", "systemInstruction")
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_MARGIN: Final = 64
"""So far into a text JSON may begin after white space."""
_NOT_AN_ID: Final = "__fake_id__"
"""What openai-agents writes when a chat model answers in the form of a Responses item."""


def believed(raw: list[Json] | None, flattened: list[Json], *, exact: bool) -> list[Json]:
    """The messages to believe, the raw ones or the flattened.

    Those that say more (see `openinference_parts.pieces`) are believed. When both say as much, the
    raw ones are if they are `exact`, what was sent in the provider's own words, with all details;
    else the flattened. Instructions that only the flattened ones have, because they were given
    beside the input, come before the raw ones.
    """
    if not raw:
        return flattened
    if not any(message["role"] in _SYSTEM_ROLES for message in raw):
        raw = [*_leading_instructions(flattened), *raw]
    more = pieces(raw) - pieces(flattened)
    return raw if more > 0 or (more == 0 and (exact or not flattened)) else flattened


def _leading_instructions(messages: list[Json]) -> list[Json]:
    leading: list[Json] = []
    for message in messages:
        if message["role"] not in _SYSTEM_ROLES:
            break
        leading.append(message)
    return leading


def json_of(value: Any) -> Any:
    """What a raw value holds: of JSON text an object or a list, of a structured value itself.

    None for plain text, and for JSON that is cut.
    """
    if isinstance(value, str):
        return None if is_text(value) else parsed(value)
    return plain(value) if isinstance(value, list | tuple | dict) else None


def is_text(value: Any) -> bool:
    """Whether a value is text that does not even begin like JSON's objects and lists."""
    return isinstance(value, str) and value[:_MARGIN].lstrip()[:1] not in ("{", "[")


def is_only_instructions(messages: list[Json]) -> bool:
    """Whether there are messages, and all of them are instructions."""
    return bool(messages) and all(message["role"] in _SYSTEM_ROLES for message in messages)


def prompt_of(request: Any) -> tuple[list[Json] | None, bool]:
    """(the messages of a request, whether they are as the provider got them).

    Args:
        request: what `json_of` gave; anything but a request of a known form has no messages.
    """
    if isinstance(request, dict):
        held = request.get("messages")
        first = held[0] if isinstance(held, list) and held else None
        if isinstance(first, list) or langchain.is_serialised(first):
            return langchain.messages_in(request), False
    elif isinstance(request, list) and request and langchain.is_serialised(request[0]):
        return langchain.messages_in(request), False
    if isinstance(request, list):
        return _messages(request), True
    if not isinstance(request, dict):
        return None, False
    if isinstance(request.get("role"), str):
        return _messages([request]), True
    for key in _LISTS:
        messages = _messages(request.get(key))
        if messages is not None:
            return [*_instructions(request), *messages], True
    return None, False


def _messages(entries: Any) -> list[Json] | None:
    """The messages of a list that holds nothing but messages and items, or of a text."""
    if isinstance(entries, str) and entries:
        # As the same text is given in a list, when the conversation goes on.
        return [items.to_message({"role": "user", "content": entries})]
    if not isinstance(entries, list) or not entries:
        return None
    if not all(isinstance(entry, dict) and _is_entry(entry) for entry in entries):
        return None
    return [items.to_message(entry) for entry in entries]


def _is_entry(entry: Json) -> bool:
    return any(isinstance(entry.get(key), str) for key in ("role", "type")) or "parts" in entry


def _instructions(request: Json) -> list[Json]:
    """What was given beside the list of messages, as the message that the others write first."""
    config = request.get("config")
    for source in (request, config if isinstance(config, dict) else {}):
        for key in _INSTRUCTIONS:
            given = source.get(key)
            if isinstance(given, str | list | dict) and given:
                return [{"role": "system", "parts": items.system_parts(given)}]
    return []


# --- responses ----------------------------------------------------------------------------------


def reply_of(response: Any) -> Reply | None:
    """What a response of a known form says, else None.

    Args:
        response: what `json_of` gave: a whole response, a message, a list of either, or of items.
    """
    if isinstance(response, dict):
        if "generations" in response:
            return langchain.reply_of(response)
        return _with_id(read_reply(response), response) if _is_reply(response) else None
    if not isinstance(response, list) or not response:
        return None
    if not all(
        isinstance(entry, dict) and (_is_entry(entry) or _is_reply(entry)) for entry in response
    ):
        return None
    if len(response) == 1 and _is_reply(response[0]):
        return reply_of(response[0])
    return read_reply(response)


def _is_reply(value: Any) -> bool:
    """Whether `read_reply` knows the form of a whole response, or it is a message."""
    if not isinstance(value, dict):
        return False
    output = value.get("output")
    return (
        any(isinstance(value.get(key), list) for key in ("choices", "candidates"))
        or (isinstance(output, list) and ("status" in value or value.get("object") == "response"))
        or ("content" in value and "stop_reason" in value)
        or items.is_message(value)
        or items.is_message(value.get("message"))
        or (isinstance(output, dict) and items.is_message(output.get("message")))
    )


def _with_id(reply: Reply, response: Json) -> Reply:
    """The reply with the provider's id, wherever the response says it."""
    if reply.response_id is None:
        # smolagents keeps what the client gave beside its own message.
        inner = response.get("raw")
        told = inner.get("id") if isinstance(inner, dict) else None
        return replace(reply, response_id=told if isinstance(told, str) and told else None)
    if reply.response_id != _NOT_AN_ID:
        return reply
    output = response.get("output")
    for item in output if isinstance(output, list) else ():
        data = item.get("provider_data") if isinstance(item, dict) else None
        told = data.get("response_id") if isinstance(data, dict) else None
        if isinstance(told, str) and told:
            return replace(reply, response_id=told)
    return replace(reply, response_id=None)


def finished(messages: list[Json], reasons: list[str]) -> list[Json]:
    """The messages of a decision, each with why the model stopped where that is known."""
    if not reasons:
        return messages
    return [
        {**message, "finish_reason": reasons[min(at, len(reasons) - 1)]}
        for at, message in enumerate(messages)
    ]
