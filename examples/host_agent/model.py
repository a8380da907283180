# SPDX-License-Identifier: Apache-2.0
"""What the task runner expects of a model: OpenAI-style chat messages in, a chat completion out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, Any]
"""``{"role": "system"|"user"|"assistant"|"tool", "content": ..., ...}`` as the chat API has it."""
Reply = dict[str, Any]
"""A chat completion: ``{"choices": [{"message": {...}, "finish_reason": ...}], "usage": ...}``."""


class ModelError(Exception):
    """The model could not be asked, or what came back is no chat completion."""


class Model(Protocol):
    """Anything that continues a conversation."""

    @property
    def name(self) -> str:
        """The model's name, as it is recorded with each prompt."""

    def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the chat completion for `messages`; raises `ModelError`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One tool call that the model asked for."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    problem: str | None = None
    """Why it cannot be carried out: the model sent arguments that are no JSON object."""


def message_of(reply: Reply) -> Message:
    """The assistant message of `reply`; `ModelError` when there is none."""
    try:
        message = reply["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        message = None
    if not isinstance(message, dict):
        raise ModelError("the model's reply has no message: it is no chat completion")
    return message


def text_of(message: Message) -> str:
    """What the assistant said in `message`, ``""`` when it only asked for tools."""
    content = message.get("content")
    return content.strip() if isinstance(content, str) else ""


def asked_in(message: Message) -> list[Asked]:
    """The tool calls that `message` asks for, in order; `ModelError` for a form it cannot read."""
    asked: list[Asked] = []
    for call in message.get("tool_calls") or []:
        try:
            call_id, name = str(call["id"]), str(call["function"]["name"])
            raw = call["function"].get("arguments") or "{}"
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the model asked for a tool in an unknown form: {call!r}") from error
        try:
            arguments = json.loads(raw)
        except (TypeError, ValueError):
            arguments = None
        if isinstance(arguments, dict):
            asked.append(Asked(call_id, name, arguments))
        else:
            asked.append(Asked(call_id, name, {}, f"the arguments are no JSON object: {raw!r}"))
    return asked
