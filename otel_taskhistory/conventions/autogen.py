# SPDX-License-Identifier: Apache-2.0
"""AutoGen: the messages of its runtime, and what its agents do.

The agents' spans (scope ``autogen-core``) follow the GenAI conventions and are read as such, but
that ``create_agent`` is no work.

The runtime's spans (``autogen create|send|publish|process|ack …``) are plumbing. Each message that
is delivered begins a trace of its own, whose root has one link: to the span in the sender's trace
that made the message. So links lead to the cause, and a run has one trace in which a message from
outside is processed: what it asks for is the goal. The agents of a team bear the id of the team,
which is the conversation of all its traces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import as_text, parsed, text_of
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_AGENTS: Final = "autogen-core"
_RUNTIME: Final = "autogen "
"""How the runtimes' scopes and the names of their spans begin."""

_RECIPIENT: Final = "recipient_agent_type"
_SENDER: Final = "sender_agent_type"
_MESSAGE: Final = "message"
_TEAM: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A team's id. Applications that use the runtime by itself name their agents otherwise, by keys
such as ``default`` that say nothing."""
_NAMING_TEAM: Final = ("messaging.destination", _SENDER, _RECIPIENT)


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    if record.scope.name == _AGENTS:
        return _agent(record)
    if "messaging.operation" in record.attributes and record.scope.name.startswith(_RUNTIME):
        return _message(record)
    return None


def _agent(record: SpanRecord) -> SpanFacts | None:
    if record.attributes.get(semconv.GEN_AI_OPERATION_NAME) != "create_agent":
        return None
    outcome = outcome_of(record)
    return SpanFacts(
        role="setup",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
    )


def _message(record: SpanRecord) -> SpanFacts:
    outcome = outcome_of(record)
    asked = _asked(record)
    return SpanFacts(
        role="other" if asked is None else "agent",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=None if asked is None else _recipient(record),
        conversation_id=_team(record),
        goal=asked,
    )


def _asked(record: SpanRecord) -> str | None:
    """What a message from outside asks of the agent that processes it."""
    said = record.attributes
    if said.get("messaging.operation") != "process" or _RECIPIENT not in said or _SENDER in said:
        return None
    message = parsed(said.get(_MESSAGE))
    if not isinstance(message, Mapping) or not message:  # a command, or what could not be shown
        return None
    messages = message.get("messages")
    if isinstance(messages, list):
        texts = [text for text in map(_text, messages) if text]
        return "\n".join(texts) or None
    return _text(message) or as_text(said.get(_MESSAGE))


def _text(message: Any) -> str | None:
    """The text of a chat message, of which pictures may be a part."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list):
        return "\n".join(item for item in content if isinstance(item, str)) or None
    return text_of(content)


def _recipient(record: SpanRecord) -> str | None:
    """The name of the receiving agent, without the id of its team."""
    name = record.text(_RECIPIENT)
    return name and (_TEAM.sub("", name).rstrip("_") or name)


def _team(record: SpanRecord) -> str | None:
    found = (_TEAM.search(value) for value in map(record.text, _NAMING_TEAM) if value)
    return next((match[0] for match in found if match), None)
