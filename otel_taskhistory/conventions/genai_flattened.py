# SPDX-License-Identifier: Apache-2.0
"""The oldest generation: ``gen_ai.prompt.N.role``, ``gen_ai.completion.N.tool_calls.M.name``, ….

Indices may be missing, begin anywhere, and come in any order. One pass over the attributes: a
span may have ten thousand of them.
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.conventions.genai_blocks import Json
from otel_taskhistory.conventions.genai_events import blocks_in
from otel_taskhistory.conventions.genai_messages import message
from otel_taskhistory.spans.record import Attributes

PROMPT: Final = "gen_ai.prompt"
COMPLETION: Final = "gen_ai.completion"

_SIGNS: Final = tuple(
    f"{prefix}.0.{key}" for prefix in (PROMPT, COMPLETION) for key in ("role", "content")
)
_CALLS: Final = "tool_calls"
_MOST_DIGITS: Final = 9


def is_flattened(attributes: Attributes) -> bool:
    """Whether a span speaks so, by what nearly all that do have; without looking at all of it."""
    return any(sign in attributes for sign in _SIGNS)


def messages(attributes: Attributes, prefix: str, role: str) -> list[Json]:
    """The messages below `prefix`, in the order of their numbers.

    Args:
        prefix: `PROMPT` or `COMPLETION`.
        role: of messages that do not say whose they are.
    """
    begins = prefix + "."
    numbered: dict[int, Json] = {}
    calls: dict[int, dict[int, Json]] = {}
    for key, value in attributes.items():
        if not isinstance(key, str) or not key.startswith(begins):
            continue
        number, _, name = key[len(begins) :].partition(".")
        at = _number(number)
        if at is None or not name:
            continue
        if name.startswith(_CALLS + "."):
            within, _, field = name[len(_CALLS) + 1 :].partition(".")
            position = _number(within)
            if position is not None and field:
                call = calls.setdefault(at, {}).setdefault(position, {})
                call[field.removeprefix("function.")] = value
                continue
        numbered.setdefault(at, {})[name] = value
    return [
        _message(numbered.get(at, {}), calls.get(at, {}), role)
        for at in sorted(numbered.keys() | calls.keys())
    ]


def _message(said: dict[str, Any], calls: dict[int, Json], role: str) -> Json:
    if "content" in said:
        said["content"] = blocks_in(said["content"])
    if calls:
        said[_CALLS] = [calls[position] for position in sorted(calls)]
    return message(role, said)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
