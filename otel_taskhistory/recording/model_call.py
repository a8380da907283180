# SPDX-License-Identifier: Apache-2.0
"""Which facts of a step's model calls are attributes of its span, and which are events.

The facts of the step's last model call are attributes. When a further call begins, those of the
one before move into an event ``gen_ai.client.inference.operation.details`` whose time is the end
of that call (the begin of the next, if it never ended), and the new facts take their place. A
further call begins

* with a prompt, when there was a prompt or a decision before it;
* with a decision that follows a decision: the model was asked again with nothing new said. Its
  prompt is that of the call before, and it began when that one ended.

A span cannot forget an attribute. What the earlier call had and the last one has not is set to an
empty value (``""``, ``0``, ``()``) and its name is listed in ``taskhistory.model_call.absent``.
Readers treat the attributes named there as if they were not on the span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_taskhistory import semconv
from otel_taskhistory.recording.messages import Decision, Prompt

Value: TypeAlias = str | int | tuple[str, ...]

_USAGE: Final = {
    "input_tokens": semconv.GEN_AI_USAGE_INPUT_TOKENS,
    "output_tokens": semconv.GEN_AI_USAGE_OUTPUT_TOKENS,
    "cached_tokens": semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
    "reasoning_tokens": semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS,
}


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A model call that is over because another one begins: an event of the step."""

    attributes: dict[str, Value]
    timestamp: int
    """In ns since 1970."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a prompt or a decision changes on the step's span."""

    earlier: EarlierCall | None
    attributes: dict[str, Value]
    reduced: frozenset[str]
    """Which of the attributes do not hold their value as it was."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One half of a model call: its prompt or its decision."""

    facts: dict[str, Value]
    reduced: frozenset[str]


class ModelCalls:
    """The model calls of one step. Its callers see to it that one thread at a time is in here."""

    def __init__(self) -> None:
        self.count = 0
        """How many calls there were, the current one included."""
        self._prompt: _Side | None = None
        self._decision: _Side | None = None
        self._empty: dict[str, Value] = {}
        """Every attribute that a call of this step ever had, with the empty value of its type."""
        self._some_absent = False

    def facts(self) -> dict[str, Value]:
        """The attributes of the current call."""
        return {
            **(self._prompt.facts if self._prompt else {}),
            **(self._decision.facts if self._decision else {}),
        }

    def asked(self, prompt: Prompt, model: str | None, now: int) -> Change:
        """A prompt goes to the model at `now` (ns since 1970)."""
        earlier = self._earlier(now) if self._prompt or self._decision else None
        facts: dict[str, Value] = {
            semconv.GEN_AI_OPERATION_NAME: "chat",
            semconv.GEN_AI_INPUT_MESSAGES: prompt.messages,
            semconv.TASKHISTORY_CALL_STARTED: now,
        }
        if model is not None:
            facts[semconv.GEN_AI_REQUEST_MODEL] = model
        if prompt.system is not None:
            facts[semconv.GEN_AI_SYSTEM_INSTRUCTIONS] = prompt.system
        if prompt.tools is not None:
            facts[semconv.GEN_AI_TOOL_DEFINITIONS] = prompt.tools
        if prompt.text:
            facts[semconv.TASKHISTORY_PROMPT_FORMAT] = "text"
        self.count += 1
        self._prompt = _Side(facts, frozenset(prompt.reduced))
        self._decision = None
        return self._change(earlier)

    def answered(self, decision: Decision, now: int) -> Change:
        """The model answered at `now` (ns since 1970)."""
        earlier = None
        if self._decision is not None:
            earlier = self._earlier(now)
            prompt = self._prompt or _Side({}, frozenset())
            began = earlier.timestamp
            self._prompt = _Side(
                {**prompt.facts, semconv.TASKHISTORY_CALL_STARTED: began}, prompt.reduced
            )
        if earlier is not None or self._prompt is None:
            self.count += 1
        facts: dict[str, Value] = {
            semconv.GEN_AI_OPERATION_NAME: "chat",
            semconv.GEN_AI_OUTPUT_MESSAGES: decision.messages,
            semconv.TASKHISTORY_CALL_ENDED: now,
        }
        if decision.model is not None:
            facts[semconv.GEN_AI_RESPONSE_MODEL] = decision.model
        if decision.response_id is not None:
            facts[semconv.GEN_AI_RESPONSE_ID] = decision.response_id
        if decision.finish_reasons:
            facts[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = tuple(decision.finish_reasons)
        if decision.text:
            facts[semconv.TASKHISTORY_DECISION_FORMAT] = "text"
        for name, attribute in _USAGE.items():
            if name in decision.usage:
                facts[attribute] = decision.usage[name]
        self._decision = _Side(facts, frozenset(decision.reduced))
        return self._change(earlier)

    def _earlier(self, now: int) -> EarlierCall:
        attributes = self.facts()
        reduced = self._reduced()
        if reduced:
            attributes[semconv.TASKHISTORY_REDUCED] = tuple(sorted(reduced))
        ended = attributes.get(semconv.TASKHISTORY_CALL_ENDED)
        return EarlierCall(attributes, ended if isinstance(ended, int) else now)

    def _reduced(self) -> frozenset[str]:
        return frozenset().union(
            *(side.reduced for side in (self._prompt, self._decision) if side is not None)
        )

    def _change(self, earlier: EarlierCall | None) -> Change:
        facts = self.facts()
        absent = {name: empty for name, empty in self._empty.items() if name not in facts}
        attributes = {**absent, **facts}
        if absent or self._some_absent:
            attributes[semconv.TASKHISTORY_CALL_ABSENT] = tuple(sorted(absent))
            self._some_absent = True
        self._empty.update((name, type(value)()) for name, value in facts.items())
        return Change(earlier, attributes, self._reduced())
