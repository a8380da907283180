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

RESPONSE: Final = "taskhistory.response"
CHOICE: Final = "taskhistory.choice"


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
    if isinstance(reply, list) and reply and any(_is_message(entry) for entry in reply):
        messages = [dict(items.to_message(entry, "assistant")) for entry in reply]
        return Reply(messages, _texts(m.get("finish_reason") for m in messages))
    return Reply([dict(items.to_message(reply, "assistant"))])


def _is_message(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("role"), str)


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


def _choice(message: Any, rest: Json, at: int) -> Json:
    """One choice's message; beside it what is more than its number and absences."""
    converted = dict(items.to_message(message, "assistant"))
    rest = {key: value for key, value in rest.items() if value is not None}
    if rest.get("index") == at:
        del rest["index"]
    return {**converted, CHOICE: rest} if rest else converted


def _chat(reply: Json) -> Reply | None:
    """OpenAI chat completions and all that speak like it."""
    choices = reply.get("choices")
    if not isinstance(choices, list):
        return None
    messages = []
    for at, choice in enumerate(choices):
        key = next((k for k in ("message", "text", "delta") if _first_key(choice, k)), None)
        rest = {} if key is None else _without(choice, key, "finish_reason")
        messages.append(_choice(choice if key is None else choice[key], rest, at))
    return Reply(
        messages,
        _texts(_text(choice, "finish_reason") for choice in choices),
        _text(reply, "model"),
        _text(reply, "id"),
        reply.get("usage"),
        _without(reply, "choices", "id", "model"),
    )


def _first_key(choice: Any, key: str) -> bool:
    return isinstance(choice, dict) and choice.get(key) is not None


def _gemini(reply: Json) -> Reply | None:
    candidates = reply.get("candidates")
    if not isinstance(candidates, list):
        return None
    messages = []
    for at, candidate in enumerate(candidates):
        has_content = _first_key(candidate, "content")
        rest = (
            _without(candidate, "content", "finishReason", "finish_reason") if has_content else {}
        )
        messages.append(_choice(candidate["content"] if has_content else candidate, rest, at))
    return Reply(
        messages,
        _texts(_text(candidate, "finishReason", "finish_reason") for candidate in candidates),
        _text(reply, "modelVersion", "model_version"),
        _text(reply, "responseId", "response_id"),
        _first(reply, "usageMetadata", "usage_metadata"),
        _without(reply, "candidates", "modelVersion", "model_version", "responseId", "response_id"),
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
    if _is_message(reply.get("message")) and "role" not in reply:
        message, left = reply["message"], _without(reply, "message", "model", "done_reason")
    elif isinstance(output, dict) and _is_message(output.get("message")):
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
