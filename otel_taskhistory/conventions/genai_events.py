# SPDX-License-Identifier: Apache-2.0
"""Content that travels as span events or log records beside a span; pure, and raises for nothing.

Three generations are in use:

* ``gen_ai.client.inference.operation.details``: the attributes a span would have (`details`).
* one record a message: ``gen_ai.system.message``, ``gen_ai.user.message``,
  ``gen_ai.assistant.message``, ``gen_ai.tool.message`` and ``gen_ai.choice`` (`spoken`). A log
  record says it in its body; a span event in its attributes, where lists are JSON text, or in
  ``gen_ai.event.content`` as one JSON object.
* ``gen_ai.content.prompt`` and ``gen_ai.content.completion``: one JSON text each (`details`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai_cut
from otel_taskhistory.conventions.genai_blocks import Json, is_block, plain
from otel_taskhistory.conventions.genai_messages import message
from otel_taskhistory.spans.record import Attributes, EventRecord, LogRecord, SpanRecord

CHOICE: Final = "gen_ai.choice"
"""A message of the model's answer."""
EVENT_CONTENT: Final = "gen_ai.event.content"
"""Of a span event, in Azure's SDKs: the body that a log record would have, as JSON."""

_EVENT_NAME: Final = "event.name"
_ROLES: Final[Mapping[str, str]] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_DETAILS: Final = frozenset(
    {
        semconv.GEN_AI_INFERENCE_DETAILS_EVENT,
        "gen_ai.content.prompt",
        "gen_ai.content.completion",
    }
)
_ABOUT_CHOICE: Final = ("index", "finish_reason", "message", "tool.result")


@dataclass(frozen=True, slots=True)
class Spoken:
    """What was sent and what came back, message by message, in the order in which it was told."""

    prompt: list[Json] = field(default_factory=list)
    decision: list[Json] = field(default_factory=list)


def details(events: Iterable[EventRecord], logs: Iterable[LogRecord]) -> list[Attributes]:
    """The attributes of events and records that tell of a whole call, events first."""
    found = [event.attributes for event in events if event.name in _DETAILS]
    for log in logs:
        if name_of(log) in _DETAILS:
            found.append(log.attributes)
            if isinstance(log.body, Mapping):
                found.append(log.body)
    return found


def spoken(events: Iterable[EventRecord], logs: Sequence[LogRecord]) -> Spoken:
    """The messages that events tell one by one; those of log records where events tell none."""
    told = [(event.name, event.attributes) for event in events if _tells(event.name)]
    from_events = _messages((name, _body(attributes)) for name, attributes in told)
    if not logs or (from_events.prompt and from_events.decision):
        return from_events
    from_logs = _messages((name, log.body) for log in logs if _tells(name := name_of(log)))
    return Spoken(
        from_events.prompt or from_logs.prompt, from_events.decision or from_logs.decision
    )


def name_of(log: LogRecord) -> str:
    """The name of the event that a log record is; older ones say it in an attribute."""
    if log.event_name:
        return log.event_name
    name = log.attributes.get(_EVENT_NAME)
    return name if isinstance(name, str) else ""


def is_meant_for(log: LogRecord, record: SpanRecord) -> bool:
    """Whether a record that another span is given for tells of this model call.

    Instrumentations that do not make their span the current one write their records into its
    parent: those of the same scope, while the span ran.
    """
    at = log.time_ns or log.observed_ns
    return (
        _tells(name_of(log))
        and (log.trace_id, log.span_id) == (record.trace_id, record.parent_span_id)
        and log.scope.name == record.scope.name
        and record.start_ns <= at
        and (record.end_ns is None or at <= record.end_ns)
    )


def blocks_in(text: Any) -> Any:
    """The blocks that a text lists as JSON; a text that is none, or no text, as it is."""
    if not isinstance(text, str) or not text.startswith("["):
        return text
    if text == "[]":
        return None
    if not text[1:].lstrip().startswith("{"):
        return text
    found = genai_cut.parse(text)
    if isinstance(found, list) and found and all(map(is_block, found)):
        return found
    return text


def _tells(name: str) -> bool:
    return name in _ROLES or name == CHOICE


def _messages(told: Iterable[tuple[str, Any]]) -> Spoken:
    said = Spoken()
    for name, body in told:
        body = plain(body)
        if name == CHOICE:
            said.decision.append(_choice(body))
        elif not _offers_tools(body):
            said.prompt.append(message(_ROLES[name], body))
    return said


def _offers_tools(body: Any) -> bool:
    """Whether it tells of the tools on offer: some write that as a message of the user."""
    content = body.get("content") if isinstance(body, dict) else None
    return isinstance(content, dict) and content.keys() == {"tools"}


def _choice(body: Any) -> Json:
    """An output message; its tool calls may stand in it or beside it."""
    if not isinstance(body, dict) or "message" not in body:
        return message("assistant", body)
    said = body["message"]
    inner = dict(said) if isinstance(said, dict) else {"content": said}
    beside = {key: item for key, item in body.items() if key not in _ABOUT_CHOICE}
    made = message("assistant", beside | inner)
    reason = body.get("finish_reason")
    return made if reason is None else made | {"finish_reason": reason}


def _body(attributes: Attributes) -> Any:
    """What a log record would have for a body."""
    whole = attributes.get(EVENT_CONTENT)
    if isinstance(whole, str) and whole:
        found = genai_cut.parse(whole)
        return found if isinstance(found, dict) else whole
    if isinstance(whole, Mapping):
        return whole
    said = {
        key: item
        for key, item in attributes.items()
        if isinstance(key, str) and not key.startswith(("gen_ai.", "event."))
    }
    if "content" in said:
        said["content"] = blocks_in(said["content"])
    if "message" in said:
        said["message"] = _message_in(said["message"])
    if isinstance(said.get("tool_calls"), str):
        found = genai_cut.parse(said["tool_calls"])
        said["tool_calls"] = found if isinstance(found, list) else said["tool_calls"]
    return said


def _message_in(text: Any) -> Any:
    """What a choice says: a message as JSON, a list of blocks, or the text itself."""
    if isinstance(text, str) and text.startswith("{"):
        found = genai_cut.parse(text)
        is_message = isinstance(found, dict) and isinstance(found.get("role"), str)
        return found if is_message else text
    return blocks_in(text)
