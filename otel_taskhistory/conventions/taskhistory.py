# SPDX-License-Identifier: Apache-2.0
"""The dialect of our own tracer: spans that say which task, step or tool call they are.

A step's last model call is told by the attributes of its span, the calls before it by events; see
`otel_taskhistory.recording.model_call` for the rule by which they move.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import ModelCall, Role, Said, Screenshot, SpanFacts
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.spans.record import Attributes, EventRecord, SpanRecord, as_integer

_STATUSES: Final = frozenset({"ok", "broken", "empty", "too_large", "unsupported"})
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PATH: Final = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})\.[a-z0-9]{1,8}")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")
_LARGEST: Final = 2**40
"""Pixels and bytes beyond are not believed."""

_ROLES: Final[Mapping[str, Role]] = {"task": "task", "step": "step", "tool_call": "tool"}


def read(record: SpanRecord) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    said = record.attributes.get(semconv.TASKHISTORY_ROLE)
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        return None
    outcome = outcome_of(record)
    step = role == "step"
    return SpanFacts(
        role=role,
        own=True,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
        conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
        goal=_string(record, semconv.TASKHISTORY_TASK_GOAL),
        result=_string(
            record, semconv.TASKHISTORY_STEP_RESULT if step else semconv.TASKHISTORY_TASK_RESULT
        ),
        attempt=max(record.integer(semconv.TASKHISTORY_TASK_ATTEMPT) or 1, 1),
        key=record.text(semconv.TASKHISTORY_TASK_KEY),
        parent_task_id=record.text(semconv.TASKHISTORY_TASK_PARENT_ID),
        step_index=record.integer(semconv.TASKHISTORY_STEP_INDEX),
        model_calls=_model_calls(record, outcome) if step else (),
        tool_call=genai.tool_call(record) if role == "tool" else None,
        screenshots=_screenshots(record) if step else (),
    )


_MESSAGES: Final = (semconv.GEN_AI_INPUT_MESSAGES, semconv.GEN_AI_OUTPUT_MESSAGES)
_TIMES: Final = (semconv.TASKHISTORY_CALL_STARTED, semconv.TASKHISTORY_CALL_ENDED)


def _model_calls(record: SpanRecord, outcome: Outcome) -> tuple[ModelCall, ...]:
    calls = [
        _model_call(event.attributes, record, Outcome("succeeded"), ordinal, event)
        for ordinal, event in enumerate(
            event for event in record.events if event.name == semconv.GEN_AI_INFERENCE_DETAILS_EVENT
        )
    ]
    absent = record.attributes.get(semconv.TASKHISTORY_CALL_ABSENT)
    attributes = record.attributes
    if isinstance(absent, list | tuple) and absent:
        attributes = {key: value for key, value in attributes.items() if key not in absent}
    # Of what was sent without content only the times are left.
    telling = _MESSAGES if absent else _MESSAGES + _TIMES
    if any(name in attributes for name in telling):
        calls.append(_model_call(attributes, record, outcome, len(calls), None))
    return tuple(calls)


def _model_call(
    attributes: Attributes,
    record: SpanRecord,
    outcome: Outcome,
    ordinal: int,
    event: EventRecord | None,
) -> ModelCall:
    """One call: it succeeded once its decision came, else it shares the fate of its step."""
    started = as_integer(attributes.get(semconv.TASKHISTORY_CALL_STARTED))
    ended = as_integer(attributes.get(semconv.TASKHISTORY_CALL_ENDED))
    answered = semconv.GEN_AI_OUTPUT_MESSAGES in attributes or ended is not None
    if event is not None and not answered:
        outcome = Outcome("failed")  # it was asked again: the first answer never came
        ended = ended or event.time_ns
    elif answered:
        outcome = Outcome("succeeded")
    call = genai.model_call(
        attributes,
        record,
        outcome,
        ordinal=ordinal,
        started_ns=started or ended or record.start_ns,
        ended_ns=ended if answered else ended or record.end_ns,
    )
    return _with_text(call, attributes)


def _with_text(call: ModelCall, attributes: Attributes) -> ModelCall:
    """A prompt or decision that was one string is shown as that string."""
    changes: dict[str, Any] = {}
    if attributes.get(semconv.TASKHISTORY_PROMPT_FORMAT) == "text" and call.prompt:
        text = _only_text(call.prompt)
        if text is not None and call.prompt.system is None:
            changes["prompt"] = Said(text, structured=False)
    if attributes.get(semconv.TASKHISTORY_DECISION_FORMAT) == "text" and call.decision:
        text = _only_text(call.decision)
        if text is not None:
            changes["decision"] = Said(text, structured=False)
    if not changes:
        return call
    return ModelCall(**{name: getattr(call, name) for name in ModelCall.__slots__} | changes)


def _only_text(said: Said) -> str | None:
    try:
        content = json.loads(said.raw)[0]["parts"][0]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None  # cut by a limit of the SDK: shown as the list that it is
    return content if isinstance(content, str) else None


def _screenshots(record: SpanRecord) -> tuple[Screenshot, ...]:
    return tuple(
        _screenshot(event)
        for event in record.events
        if event.name == semconv.TASKHISTORY_SCREENSHOT_EVENT
    )


def _screenshot(event: EventRecord) -> Screenshot:
    """A screenshot; what the event says is believed only where it can be true.

    The path is that of our own files: nothing else is ever opened for it.
    """
    said = event.attributes

    def text(key: str) -> str | None:
        value = said.get(key)
        return value if isinstance(value, str) else None

    def size(key: str) -> int | None:
        number = as_integer(said.get(key))
        return number if number is not None and 0 <= number <= _LARGEST else None

    sha256 = text(semconv.TASKHISTORY_SCREENSHOT_SHA256) or ""
    status = text(semconv.TASKHISTORY_SCREENSHOT_STATUS) or ""
    path = text(semconv.TASKHISTORY_SCREENSHOT_PATH)
    media_type = text(semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE) or ""
    is_known = _SHA256.fullmatch(sha256) is not None
    found = _PATH.fullmatch(path) if path is not None and is_known else None
    if (path is not None and (found is None or found[2] != sha256)) or status not in _STATUSES:
        path, status = None, "not_stored"
    elif path is None and status == "ok":
        status = "not_stored"
    return Screenshot(
        sha256=sha256 if is_known else "",
        path=path,
        media_type=media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream",
        width=size(semconv.TASKHISTORY_SCREENSHOT_WIDTH),
        height=size(semconv.TASKHISTORY_SCREENSHOT_HEIGHT),
        bytes=size(semconv.TASKHISTORY_SCREENSHOT_BYTES) or 0,
        caption=text(semconv.TASKHISTORY_SCREENSHOT_CAPTION),
        captured_ns=event.time_ns,
        status=status,
    )


def _string(record: SpanRecord, key: str) -> str | None:
    """The attribute when it is a string, even an empty one."""
    value = record.attributes.get(key)
    return value if isinstance(value, str) else None
