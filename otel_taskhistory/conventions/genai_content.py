# SPDX-License-Identifier: Apache-2.0
"""What was sent to a model and what it answered, wherever a span and its log records say it.

The rule where several say it: attributes of the span, then ``…operation.details`` events and log
records, then records of single messages, then flattened keys, then ``gen_ai.prompt`` and
``gen_ai.completion``, then a reference to where it was uploaded. A list that a limit of the SDK
has cut gives way to a whole one. JSON is parsed only where a fact needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai_cut, genai_events, genai_flattened
from otel_taskhistory.conventions.content import message_list
from otel_taskhistory.conventions.facts import Said
from otel_taskhistory.conventions.genai_blocks import Json
from otel_taskhistory.conventions.genai_messages import (
    call_ids,
    finish_reason,
    is_whole,
    may_ask_for_tools,
    message,
    messages_in,
    said_of,
)
from otel_taskhistory.spans.record import Attributes, EventRecord, LogRecord

UPLOADED: Final = "uploaded"
"""Type of the part that says where content was uploaded: ``{"type": "uploaded", "uri": …}``."""

_TELLS_REASON: Final = re.compile(r'"finish_reason":\s*"[^"]')
_REFERENCES: Final = ("_ref", ".ref")
_REASONS: Final = (
    semconv.GEN_AI_RESPONSE_FINISH_REASONS,
    "gen_ai.response.finish_reason",
    "anthropic.message.stop_reason",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision, and what was read out of it."""

    said: Said | None
    finish_reason: str | None
    call_ids: tuple[str, ...]


class Content:
    """The content of one call, read as it is asked for.

    Attributes:
        sources: attributes of the span and of the records that stand for them, the span's first.
    """

    __slots__ = ("_events", "_logs", "_spoken", "sources")

    def __init__(
        self,
        attributes: Attributes,
        events: Sequence[EventRecord] = (),
        logs: Sequence[LogRecord] = (),
    ) -> None:
        self.sources: list[Attributes] = [attributes]
        if events or logs:
            self.sources += genai_events.details(events, logs)
        self._events = events
        self._logs = logs
        self._spoken: genai_events.Spoken | None = None

    def text(self, *keys: str) -> str | None:
        """The first string that says something, of the first of these keys that has one."""
        for key in keys:
            for attributes in self.sources:
                value = attributes.get(key)
                if isinstance(value, str) and value:
                    return value
        return None

    def prompt(self) -> Said | None:
        """What was sent, system instructions beside it where they were told so."""
        said = self.input()
        system = self._system()
        if system is None:
            return said
        # Instructions and prompt are shown as one list: what is one string becomes one message.
        instructions = system.raw if system.structured else _text_parts(system.raw)
        if said is None:
            return Said("[]", structured=True, system=instructions)
        if not said.structured:
            return Said(
                f'[{{"role": "user", "parts": {_text_parts(said.raw)}}}]', True, instructions
            )
        return Said(said.raw, structured=True, system=instructions)

    def input(self) -> Said | None:
        """What was sent, without instructions beside it."""
        return _best(self._inputs())

    def output(self) -> Said | None:
        """What was answered."""
        return _best(self._outputs())

    def answer(self) -> Answer:
        """What was answered, why it ended, and which tool calls it asks for."""
        said = self.output()
        reason = self._reason()
        if said is None or not said.structured:
            return Answer(said, reason, ())
        asks = may_ask_for_tools(said.raw)
        if not asks and (reason is not None or not _TELLS_REASON.search(said.raw)):
            return Answer(said, reason, ())
        messages = messages_in(said)
        return Answer(
            said,
            reason if reason is not None else finish_reason(messages),
            call_ids(messages) if asks else (),
        )

    # --- candidates, the best first ---

    def _inputs(self) -> Iterator[Said | None]:
        yield from self._told(semconv.GEN_AI_INPUT_MESSAGES)
        yield _listed(self._said().prompt)
        yield from self._older(genai_flattened.PROMPT, "user")
        yield self._uploaded(semconv.GEN_AI_INPUT_MESSAGES, "user")

    def _outputs(self) -> Iterator[Said | None]:
        yield from self._told(semconv.GEN_AI_OUTPUT_MESSAGES)
        yield _listed(self._said().decision)
        yield from self._older(genai_flattened.COMPLETION, "assistant")
        yield self._uploaded(semconv.GEN_AI_OUTPUT_MESSAGES, "assistant")

    def _told(self, key: str) -> Iterator[Said | None]:
        for attributes in self.sources:
            yield said_of(attributes.get(key))

    def _said(self) -> genai_events.Spoken:
        if self._spoken is None:
            self._spoken = (
                genai_events.spoken(self._events, self._logs)
                if self._events or self._logs
                else genai_events.Spoken()
            )
        return self._spoken

    def _older(self, key: str, role: str) -> Iterator[Said | None]:
        yield _listed(genai_flattened.messages(self.sources[0], key, role))
        for attributes in self.sources:
            value = attributes.get(key)
            blocks = genai_events.blocks_in(value)
            if isinstance(blocks, list) and blocks is not value:  # one message's, without a role
                yield _listed([message(role, blocks)])
            else:
                yield said_of(value)

    def _system(self) -> Said | None:
        return _best(self._told(semconv.GEN_AI_SYSTEM_INSTRUCTIONS)) or self._reference(
            semconv.GEN_AI_SYSTEM_INSTRUCTIONS
        )

    def _uploaded(self, key: str, role: str) -> Said | None:
        reference = self._reference(key)
        if reference is None:
            return None
        return Said(f'[{{"role": "{role}", "parts": {reference.raw}}}]', structured=True)

    def _reference(self, key: str) -> Said | None:
        """The parts that stand for what was uploaded."""
        where = self.text(*(key + suffix for suffix in _REFERENCES))
        if where is None:
            return None
        return Said(json.dumps([{"type": UPLOADED, "uri": where}], ensure_ascii=False), True)

    def _reason(self) -> str | None:
        for key in _REASONS:
            for attributes in self.sources:
                reason = _first_reason(attributes.get(key))
                if reason is not None:
                    return reason
        return None


def _best(candidates: Iterator[Said | None]) -> Said | None:
    """The first that is whole; if none is, the first."""
    cut = None
    for said in candidates:
        if said is None:
            continue
        if is_whole(said):
            return said
        cut = cut or said
    return cut


def _listed(messages: list[Json]) -> Said | None:
    return message_list(messages) if messages else None


def _text_parts(text: str) -> str:
    return json.dumps([{"type": "text", "content": text}], ensure_ascii=False)


def _first_reason(reasons: Any) -> str | None:
    if isinstance(reasons, str) and reasons.startswith("["):
        reasons = genai_cut.parse(reasons)
    if isinstance(reasons, list | tuple):
        reasons = next((reason for reason in reasons if type(reason) is str and reason), None)
    return reasons if isinstance(reasons, str) and reasons else None
