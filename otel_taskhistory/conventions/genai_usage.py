# SPDX-License-Identifier: Apache-2.0
"""Tokens and cost of a model call, under every name that generations and vendors gave them.

By the conventions, input tokens include those that came from a cache and output tokens those spent
on reasoning; they are taken as told. The newest name of a number comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import cost_of, tokens_of
from otel_taskhistory.conventions.facts import Tokens
from otel_taskhistory.spans.record import Attributes

_INPUT: Final = (semconv.GEN_AI_USAGE_INPUT_TOKENS, "gen_ai.usage.prompt_tokens")
_OUTPUT: Final = (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, "gen_ai.usage.completion_tokens")
_CACHED: Final = (
    semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_input_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.details.cached_tokens",
    "gen_ai.usage.prompt_tokens_details.cached_tokens",
    "gen_ai.usage.input_tokens_details.cached_tokens",
)
_REASONING: Final = (
    semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS,
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
    "gen_ai.usage.completion_tokens_details.reasoning_tokens",
    "gen_ai.usage.output_tokens_details.reasoning_tokens",
    "gen_ai.usage.experimental.reasoning_tokens",
)
_COST: Final = ("operation.cost", "gen_ai.usage.cost", "gen_ai.usage.total_cost")
"""In US dollars."""


def tokens(sources: Sequence[Attributes]) -> Tokens:
    """The numbers of tokens; each from the first of `sources` that tells it."""
    return Tokens(
        _first(sources, _INPUT),
        _first(sources, _OUTPUT),
        _first(sources, _CACHED),
        _first(sources, _REASONING),
    )


def cost(sources: Sequence[Attributes]) -> float | None:
    """What the call cost, where that is told."""
    for attributes in sources:
        for key in _COST:
            if key in attributes and (found := cost_of(attributes[key])) is not None:
                return found
    return None


def _first(sources: Sequence[Attributes], keys: tuple[str, ...]) -> int | None:
    for attributes in sources:
        for key in keys:
            value = attributes.get(key)
            if value is not None and (number := tokens_of(value)) is not None:
                return number
    return None
