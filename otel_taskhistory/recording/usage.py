# SPDX-License-Identifier: Apache-2.0
"""Token counts in the words of any model API → ours, counted as the GenAI conventions count.

``input_tokens`` includes what was read from or written to a cache, ``output_tokens`` includes
reasoning. Anthropic and Bedrock count the cache beside the input, Gemini thoughts beside the
output; those are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_taskhistory.recording.plain import to_plain

_INPUT: Final = (
    "input_tokens",
    "prompt_tokens",
    "inputTokens",
    "promptTokens",
    "promptTokenCount",
    "prompt_token_count",
    "inputTokenCount",
    "prompt_eval_count",
)
_OUTPUT: Final = (
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "completionTokens",
    "candidatesTokenCount",
    "candidates_token_count",
    "outputTokenCount",
    "eval_count",
)
_TOTAL: Final = ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count", "total")
_CACHED: Final = (
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "cached_tokens",
    "cached_input_tokens",
    "cachedInputTokens",
    "cache_read",
    "prompt_cache_hit_tokens",
)
_REASONING: Final = (
    "thoughtsTokenCount",
    "thoughts_token_count",
    "reasoning_tokens",
    "reasoningTokens",
    "reasoning",
)
_INPUT_DETAILS: Final = ("input_tokens_details", "prompt_tokens_details", "input_token_details")
_OUTPUT_DETAILS: Final = (
    "output_tokens_details",
    "completion_tokens_details",
    "output_token_details",
)

_BESIDE_INPUT: Final = (
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cacheReadInputTokens",
    "cacheWriteInputTokens",
    "toolUsePromptTokenCount",
    "tool_use_prompt_token_count",
)
"""Counts that their API does not include in its input count."""
_BESIDE_OUTPUT: Final = ("thoughtsTokenCount", "thoughts_token_count")
"""Counts that their API does not include in its output count."""

_MOST: Final = 2**63 - 1
"""The largest integer that an OTLP attribute and a column can hold."""


def convert_usage(usage: Any) -> dict[str, int]:
    """Return what is known among ``input_tokens``, ``output_tokens``, ``cached_tokens``,
    ``reasoning_tokens``; ``total`` only if nothing else is. Never raises.

    Args:
        usage: a dict or object of any SDK; numbers of tokens may be missing, None or nonsense.
    """
    plain, _ = to_plain(usage)
    if not isinstance(plain, dict):
        return {}
    found = {
        "input_tokens": _sum(_first(plain, _INPUT), plain, _BESIDE_INPUT),
        "output_tokens": _sum(_first(plain, _OUTPUT), plain, _BESIDE_OUTPUT),
        "cached_tokens": _first_of(plain, _INPUT_DETAILS, _CACHED),
        "reasoning_tokens": _first_of(plain, _OUTPUT_DETAILS, _REASONING),
    }
    counts = {name: count for name, count in found.items() if count is not None}
    total = _first(plain, _TOTAL)
    if not counts and total is not None:
        return {"total": total}
    return counts


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value // 1 and 0 <= value <= _MOST else None


def _counts(source: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[int]:
    for name in names:
        if (count := _count(source.get(name))) is not None:
            yield count


def _first(source: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next(_counts(source, names), None)


def _first_of(
    plain: Mapping[str, Any], details: tuple[str, ...], names: tuple[str, ...]
) -> int | None:
    """The count at the top, or in one of the objects that hold the details."""
    inner = [plain[key] for key in details if isinstance(plain.get(key), dict)]
    counts = (_first(source, names) for source in (plain, *inner))
    return next((count for count in counts if count is not None), None)


def _sum(count: int | None, plain: Mapping[str, Any], beside: tuple[str, ...]) -> int | None:
    extra = list(_counts(plain, beside))
    if count is None and not extra:
        return None
    total = (count or 0) + sum(extra)
    return total if total <= _MOST else None
