# SPDX-License-Identifier: Apache-2.0
"""What a model API gave back, as plain values → GenAI output messages and the facts beside them.

A whole response yields one message per choice, or per item of an OpenAI response (as it will be
sent again). What it holds beyond its messages, id and model stays under `RESPONSE` in the first
message, what a choice holds beside its message under `CHOICE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.recording.formats import Json, items
from otel_taskhistory.recording.keys import CHOICE

_REASONS: Final = ("finish_reason", "finishReason")


@dataclass(frozen=True, slots=True)
class Reply:
    """A response taken apart. The messages are new dicts that the caller may add keys to."""

    messages: list[Json]
    reasons: list[str] = field(default_factory=list)
    """Why the model stopped, in the provider's words, one for each choice."""
    model: str | None = None
    response_id: str | None = None
    usage: Any = None
    left: Json = field(default_factory=dict)
    """What else the response holds."""


def read_reply(reply: Any) -> Reply:
    """Return what plain `reply` says; one message with all of it, where it is of no known form."""
    if isinstance(reply, dict):
        for read in _READERS:
            taken = read(reply)
            if taken is not None:
                return taken
        return _message(reply)
    if isinstance(reply, list) and reply and any(items.is_message(entry) for entry in reply):
        messages = [dict(items.to_message(entry, "assistant")) for entry in reply]
        return Reply(messages, _texts(m.get("finish_reason") for m in messages))
    return Reply([dict(items.to_message(reply, "assistant"))])


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str) and value]


def _text(source: Any, *keys: str) -> str | None:
    if not isinstance(source, dict):
        return None
    return next(iter(_texts(source.get(key) for key in keys)), None)


def _without(source: Json, *keys: str) -> Json:
    return {key: value for key, value in source.items() if key not in keys}


def _first(source: Json, *keys: str) -> Any:
    return next((source[key] for key in keys if source.get(key) is not None), None)


def _choices(entries: list[Any], message_keys: tuple[str, ...]) -> list[Json]:
    """The message of each choice; beside it what is more than its number and absences."""
    messages = []
    for at, entry in enumerate(entries):
        if not isinstance(entry, dict):
            messages.append(dict(items.to_message(entry, "assistant")))
            continue
        key = next((key for key in message_keys if entry.get(key) is not None), None)
        message: Json = {"role": "assistant", "parts": []}
        if key is not None:
            message = dict(items.to_message(entry[key], "assistant"))
        rest = _without(entry, *_REASONS, *([] if key is None else [key]))
        rest = {name: value for name, value in rest.items() if value is not None}
        if rest.get("index") == at:
            del rest["index"]
        messages.append({**message, CHOICE: rest} if rest else message)
    return messages


def _chat(reply: Json) -> Reply | None:
    """OpenAI chat completions and all that speak like it."""
    choices = reply.get("choices")
    if not isinstance(choices, list):
        return None
    return Reply(
        _choices(choices, ("message", "text", "delta")),
        _texts(_text(choice, *_REASONS) for choice in choices),
        _text(reply, "model"),
        _text(reply, "id"),
        reply.get("usage"),
        _without(reply, "choices", "id", "model"),
    )


def _gemini(reply: Json) -> Reply | None:
    candidates = reply.get("candidates")
    if not isinstance(candidates, list):
        return None
    models, ids = ("modelVersion", "model_version"), ("responseId", "response_id")
    return Reply(
        _choices(candidates, ("content",)),
        _texts(_text(candidate, *_REASONS) for candidate in candidates),
        _text(reply, *models),
        _text(reply, *ids),
        _first(reply, "usageMetadata", "usage_metadata"),
        _without(reply, "candidates", *models, *ids),
    )


def _responses(reply: Json) -> Reply | None:
    """OpenAI Responses: the reason is that of an incomplete response, else its status."""
    output = reply.get("output")
    if not isinstance(output, list) or not ("status" in reply or reply.get("object") == "response"):
        return None
    reason = _text(reply.get("incomplete_details"), "reason") or _text(reply, "status")
    return Reply(
        [dict(items.to_message(item, "assistant")) for item in output],
        _texts([reason]),
        _text(reply, "model"),
        _text(reply, "id"),
        reply.get("usage"),
        _without(reply, "output", "id", "model"),
    )


def _anthropic(reply: Json) -> Reply | None:
    if "content" not in reply or "stop_reason" not in reply:
        return None
    message = {key: reply[key] for key in ("role", "content") if key in reply}
    return Reply(
        [dict(items.to_message({"role": "assistant"} | message, "assistant"))],
        _texts([_text(reply, "stop_reason")]),
        _text(reply, "model"),
        _text(reply, "id"),
        reply.get("usage"),
        _without(reply, "role", "content", "stop_reason", "id", "model"),
    )


def _wrapped(reply: Json) -> Reply | None:
    """Ollama's ``message``, Bedrock's ``output.message``."""
    output = reply.get("output")
    if items.is_message(reply.get("message")) and "role" not in reply:
        message, left = reply["message"], _without(reply, "message", "model", "done_reason")
    elif isinstance(output, dict) and items.is_message(output.get("message")):
        message, left = output["message"], _without(reply, "output", "model", "stopReason")
        left |= {"output": _without(output, "message")} if len(output) > 1 else {}
    else:
        return None
    return Reply(
        [dict(items.to_message(message, "assistant"))],
        _texts([_text(reply, "done_reason", "stopReason")]),
        _text(reply, "model"),
        None,
        reply.get("usage", reply),
        left,
    )


def _message(reply: Json) -> Reply:
    """A message by itself, of any format; LangChain's keeps the facts in its metadata."""
    message = dict(items.to_message(reply, "assistant"))
    facts = reply.get("response_metadata")
    reason = _text(reply, "finish_reason") or _text(facts, "finish_reason", "stop_reason")
    is_langchain = "usage_metadata" in reply or isinstance(facts, dict)
    usage = _first(reply, "usage_metadata", "usage")
    if usage is None and isinstance(facts, dict):
        usage = _first(facts, "token_usage", "usage")
    return Reply(
        [message],
        _texts([reason]),
        _text(facts, "model_name", "model", "model_id"),
        _text(reply, "id") if is_langchain else None,
        usage,
    )


_READERS: Final[tuple[Callable[[Json], Reply | None], ...]] = (
    _chat,
    _gemini,
    _responses,
    _anthropic,
    _wrapped,
)
