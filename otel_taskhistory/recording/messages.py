# SPDX-License-Identifier: Apache-2.0
"""Convert whatever a model API takes or gives into GenAI messages, losslessly; nothing raises.

`convert_prompt` and `restore_prompt` are inverse to each other: the recorded JSON, restored, is
what was handed over, in its own format, as plain JSON values (`plain.to_plain`). The rules are in
`formats`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from otel_taskhistory import semconv
from otel_taskhistory.recording.formats import Json, items
from otel_taskhistory.recording.keys import FORMAT, RESPONSE, SINGLE, UNREADABLE
from otel_taskhistory.recording.plain import is_plain, is_text, to_plain, type_name
from otel_taskhistory.recording.replies import Reply, read_reply
from otel_taskhistory.recording.text import (
    DEPTHS,
    dump_json,
    dump_value,
    dumps,
    escape_message,
    is_encodable,
    unescape_message,
)
from otel_taskhistory.recording.usage import convert_usage

__all__ = [
    "Decision",
    "Prompt",
    "convert_decision",
    "convert_prompt",
    "convert_usage",
    "dump_value",
    "restore_prompt",
]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the GenAI conventions write it."""

    messages: str
    """JSON array of messages ``{"role", "parts", …}``."""
    text: bool
    """Whether the prompt was one str, which is then the content of the only part."""
    system: str | None
    """JSON array of parts, when system instructions were given beside the messages."""
    tools: str | None
    """JSON array of tool definitions as they were given."""
    reduced: tuple[str, ...]
    """Names of the attributes in which something had no exact representation."""
    count: int
    """Number of messages."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A model's response as the GenAI conventions write it."""

    messages: str
    """JSON array of messages ``{"role", "parts", "finish_reason", …}``; the reason is empty when
    nobody told it."""
    text: bool
    """Whether the response was one str."""
    finish_reasons: tuple[str, ...]
    """In the provider's words, one for each choice."""
    model: str | None
    response_id: str | None
    usage: Mapping[str, int]
    """See `convert_usage`."""
    tool_calls: int
    """How many tool calls the model asked for."""
    reduced: tuple[str, ...]
    """Names of the attributes in which something had no exact representation."""


def convert_prompt(messages: Any, *, system: Any = None, tools: Any = None) -> Prompt:
    """Return the prompt as GenAI messages; never raises.

    Args:
        messages: what is sent to the model: a str, a message, a list of messages, Responses
            items, Gemini contents or parts, or a whole request body; dicts or objects of an SDK.
        system: system instructions sent beside the messages (Anthropic, Gemini, Responses).
        tools: definitions of the tools offered to the model.
    """
    reduced = []
    text = is_text(messages)
    try:
        written, count, is_reduced = _write_prompt(messages)
    except Exception:  # whatever a value does, the agent goes on, and the record says so
        written, count, is_reduced = _lost(messages), 1, True
    if is_reduced:
        reduced.append(semconv.GEN_AI_INPUT_MESSAGES)
    parts = definitions = None
    if not _absent(system):
        parts, is_reduced = _write_list(system, items.system_parts)
        if is_reduced:
            reduced.append(semconv.GEN_AI_SYSTEM_INSTRUCTIONS)
    if not _absent(tools):
        definitions, is_reduced = _write_list(tools, _as_list)
        if is_reduced:
            reduced.append(semconv.GEN_AI_TOOL_DEFINITIONS)
    return Prompt(written, text, parts, definitions, tuple(reduced), count)


def convert_decision(
    reply: Any, *, usage: Any = None, model: str | None = None, finish_reason: Any = None
) -> Decision:
    """Return the model's response as GenAI output messages; never raises.

    Args:
        reply: a str, a whole response, a message or a list of either; dicts or objects of an SDK.
        usage: token counts; they win over those in `reply`.
        model: the model that answered; wins over the one in `reply`.
        finish_reason: why the model stopped, or a list with one reason for each choice.
    """
    try:
        return _decision(reply, usage, model, _reasons(finish_reason))
    except Exception:  # as for a prompt
        reduced = (semconv.GEN_AI_OUTPUT_MESSAGES,)
        counts = convert_usage(usage)
        return Decision(_lost(reply, "assistant"), False, (), None, None, counts, 0, reduced)


def restore_prompt(messages_json: str, text: bool = False) -> Any:
    """Return what `convert_prompt` was given, as plain JSON values.

    Messages that did not come from `convert_prompt` are their own originals.

    Args:
        messages_json: `Prompt.messages`.
        text: `Prompt.text`.

    Raises:
        ValueError: `messages_json` is not JSON.
    """
    messages = json.loads(messages_json)
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return messages
    messages = [unescape_message(message) for message in messages]
    if text:
        return messages[0]["parts"][0]["content"]
    if messages and messages[0].get(FORMAT) == items.REQUEST:
        part = messages[0]["parts"][0]
        rest = [items.from_message(message) for message in messages[1:]]
        return {**part["content"], part["list"]: rest}
    if len(messages) == 1 and SINGLE in messages[0]:
        message = {key: item for key, item in messages[0].items() if key != SINGLE}
        return items.from_message(message)
    return [items.from_message(message) for message in messages]


# --- prompts ----------------------------------------------------------------------------------


def _write_prompt(prompt: Any) -> tuple[str, int, bool]:
    """The JSON text, the number of messages, and whether something was reduced."""
    if is_text(prompt):
        content = str.__str__(prompt)
        messages: list[Json] = [{"role": "user", "parts": [{"type": "text", "content": content}]}]
        if is_encodable(written := dumps(messages)):
            return written, 1, False
        return dumps([escape_message(messages[0])]), 1, True
    reduced = False
    if type(prompt) not in (list, tuple, dict):
        prompt, reduced = to_plain(prompt)
    if not isinstance(prompt, dict):
        if isinstance(prompt, list | tuple):
            return _write_entries([], list(prompt), {}, reduced)
        return _write_entries([], [prompt], {SINGLE: True}, reduced)
    key = items.request_list(prompt)
    if key is None:
        return _write_entries([], [prompt], {SINGLE: True}, reduced)
    part = {"type": items.REQUEST, "content": {**prompt, key: None}, "list": key}
    request = {"role": items.REQUEST, "parts": [part], FORMAT: items.REQUEST}
    return _write_entries([request], prompt[key], {}, reduced)


def _write_entries(
    head: list[Json], entries: list[Any], extra: Json, reduced: bool
) -> tuple[str, int, bool]:
    """Write ready messages and those of `entries`, each of these with the `extra` keys."""

    def build(plain: Any) -> Json:
        message = items.to_message(plain)
        return {**message, **extra} if extra else message

    makers = [(message, _as_it_is) for message in head] + [(entry, build) for entry in entries]
    try:
        messages = []
        for value, make in makers:
            plain, is_reduced = (value, False) if is_plain(value) else to_plain(value)
            messages.append(make(plain))
            reduced = reduced or is_reduced
        if is_encodable(written := dumps(messages)):
            return written, len(makers), reduced
    except (ValueError, RuntimeError):
        pass  # some entry needs more care; one by one, the others come out the same
    texts = []
    for value, make in makers:
        written, is_reduced = _write_with_care(value, make)
        texts.append(written)
        reduced = reduced or is_reduced
    return f"[{', '.join(texts)}]", len(makers), reduced


def _as_it_is(message: Json) -> Json:
    return message


def _write_with_care(value: Any, make: Callable[[Any], Json]) -> tuple[str, bool]:
    """One message's text: exact if it can be, else with markers, and no deeper than possible."""
    for depth in DEPTHS:
        try:
            plain, reduced = to_plain(value, depth)
            message = make(plain)
            if is_encodable(written := dumps(message)):
                return written, reduced
            return dumps(escape_message(message)), True
        except RecursionError:  # the agent's own stack is deep
            continue
    return dumps(make({UNREADABLE: "nested too deep"})), True


def _lost(value: Any, role: str = "user") -> str:
    """The one message that says that a value could not be read at all."""
    return dumps([items.to_message({UNREADABLE: type_name(value)}, role)])


# --- what goes beside the messages ------------------------------------------------------------


def _absent(value: Any) -> bool:
    """None, or the object by which an SDK says that nothing was given."""
    return value is None or type(value).__name__ in ("NotGiven", "Omit")


def _write_list(value: Any, build: Callable[[Any], list[Any]]) -> tuple[str, bool]:
    """The JSON text of what `build` makes of `value`, and whether something was reduced."""
    try:
        plain, reduced = (value, False) if is_plain(value) else to_plain(value)
        written, is_reduced = dump_json(build(plain))
        return written, reduced or is_reduced
    except (ValueError, RuntimeError):
        return dumps([{UNREADABLE: type_name(value)}]), True


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --- decisions --------------------------------------------------------------------------------


def _decision(reply: Any, usage: Any, model: str | None, reasons: list[str]) -> Decision:
    taken, written, reduced = _write_reply(reply, reasons, model)
    return Decision(
        messages=written,
        text=is_text(reply),
        finish_reasons=tuple(reasons or taken.reasons),
        model=model if model is not None else taken.model,
        response_id=taken.response_id,
        usage=convert_usage(usage) or convert_usage(taken.usage),
        tool_calls=sum(_calls(message) for message in taken.messages),
        reduced=(semconv.GEN_AI_OUTPUT_MESSAGES,) if reduced else (),
    )


def _write_reply(reply: Any, reasons: list[str], model: str | None) -> tuple[Reply, str, bool]:
    """The reply taken apart, its messages' text, and whether something was reduced."""
    try:
        plain, reduced = (reply, False) if is_plain(reply) else to_plain(reply)
        taken = _read(plain)
        if is_encodable(written := dumps(_finished(taken, reasons, model))):
            return taken, written, reduced
    except (ValueError, RuntimeError):
        pass  # as for a prompt: NaN, an endless integer, a deep stack
    for depth in DEPTHS:
        try:
            plain, reduced = to_plain(reply, depth)
            taken = _read(plain)
            messages = _finished(taken, reasons, model)
            if is_encodable(written := dumps(messages)):
                return taken, written, reduced
            return taken, dumps([escape_message(message) for message in messages]), True
        except RecursionError:
            continue
    taken = _read({UNREADABLE: "nested too deep"})
    return taken, dumps(_finished(taken, reasons, model)), True


def _read(plain: Any) -> Reply:
    if not isinstance(plain, str):
        return read_reply(plain)
    return Reply([{"role": "assistant", "parts": [{"type": "text", "content": plain}]}])


def _finished(taken: Reply, reasons: list[str], model: str | None) -> list[Json]:
    """The messages with their finish reasons; the first also with the rest of the response."""
    final = reasons or taken.reasons
    left = dict(taken.left)
    if model is not None and taken.model not in (None, model):
        left["model"] = taken.model
    if reasons and taken.reasons and reasons != taken.reasons:
        left["finish_reasons"] = taken.reasons
    messages = []
    for at, message in enumerate(taken.messages or [{"role": "assistant", "parts": []}]):
        reason = final[min(at, len(final) - 1)] if final else ""
        rest = {RESPONSE: left} if left and at == 0 else {}
        messages.append({**message, "finish_reason": reason, **rest})
    return messages


def _reasons(given: Any) -> list[str]:
    """The explicit finish reasons; those of an SDK are often enums."""
    if given is None:
        return []
    plain, _ = to_plain(given)
    reasons = plain if isinstance(plain, list) else [plain]
    return [reason if isinstance(reason, str) else dump_json(reason)[0] for reason in reasons]


def _calls(message: Json) -> int:
    parts = message["parts"]
    return sum(1 for part in parts if isinstance(part, dict) and part.get("type") == "tool_call")
