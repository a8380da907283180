# SPDX-License-Identifier: Apache-2.0
"""Prompts and decisions as Laminar records them: in the provider's own format, as JSON.

`otel_taskhistory.recording.messages` knows those formats. It marks what it converts, so that it
can be inverted; the marks are left away here, for the span itself keeps what was said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.conventions.content import message_list
from otel_taskhistory.conventions.facts import Said
from otel_taskhistory.conventions.genai_messages import call_ids
from otel_taskhistory.conventions.traceloop_json import is_empty
from otel_taskhistory.conventions.traceloop_values import unwrapped
from otel_taskhistory.recording.keys import FORMAT, PREFIX
from otel_taskhistory.recording.messages import convert_decision, convert_prompt

_COUNTED: Final = ("tool_calls", "refusal", "reasoning_content", "reasoning", "thinking")
"""Keys beside the content that a conversion leaves as the number of parts they became."""
_CHOICES: Final = {"message": "choices", "delta": "choices", "content": "candidates"}
"""Key of one choice → the key under which its API lists them."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and what was read out of it."""

    said: Said
    finish_reason: str | None
    call_ids: tuple[str, ...]


def prompt_of(value: Any) -> Said | None:
    """The prompt that `value` (plain JSON values) is; None when there is nothing in it."""
    if is_empty(value):
        return None
    if isinstance(value, str):
        return Said(value, structured=False)
    if isinstance(value, list):
        value = [_entry(entry) for entry in value]
    return _said(convert_prompt(value).messages)


def decision_of(value: Any) -> Decided | None:
    """The decision that `value` (plain JSON values) is; None when there is nothing in it."""
    if is_empty(value):
        return None
    decision = convert_decision(_reply(value))
    messages = [_unmarked(message) for message in json.loads(decision.messages)]
    for message in messages:
        if message.get("finish_reason") == "":
            del message["finish_reason"]
    reasons = [*decision.finish_reasons, *(message.get("stop_reason") for message in messages)]
    reason = next((one for one in reasons if isinstance(one, str) and one), None)
    return Decided(message_list(messages), reason, call_ids(messages))


def is_converted(value: Any) -> bool:
    """Whether all messages of a list are in the form of the GenAI conventions already."""
    return isinstance(value, list) and all(
        isinstance(entry, Mapping)
        and isinstance(entry.get("parts"), list)
        and all(isinstance(part, Mapping) and "type" in part for part in entry["parts"])
        for entry in value
    )


def _reply(value: Any) -> Any:
    """Choices and candidates as the response that they were taken out of."""
    if not isinstance(value, list):
        return unwrapped(value)
    first = value[0]
    if isinstance(first, Mapping) and "role" not in first and "type" not in first:
        for key, listed in _CHOICES.items():
            if key in first:
                return {listed: value}
    return [_entry(entry) for entry in value]


def _entry(entry: Any) -> Any:
    return dict(fields) if isinstance(fields := unwrapped(entry), Mapping) else fields


def _said(messages: str) -> Said:
    return message_list(_unmarked(message) for message in json.loads(messages))


def _unmarked(message: Mapping[str, Any]) -> dict[str, Any]:
    left = {key: item for key, item in message.items() if not key.startswith(PREFIX)}
    if FORMAT in message:
        for key in _COUNTED:
            if type(left.get(key)) is int or (key == "tool_calls" and key in left):
                del left[key]
    parts = left.get("parts")
    if isinstance(parts, list):
        left["parts"] = [
            {key: item for key, item in part.items() if not key.startswith(PREFIX)}
            if isinstance(part, dict)
            else part
            for part in parts
        ]
    return left
