# SPDX-License-Identifier: Apache-2.0
"""Small tools for reading content out of attributes; none of them raises, whatever the value.

Attributes hold content as JSON text, as plain text, or (SDK 1.45 and later, and OTLP) as nested
values. JSON may have been cut by a limit of the SDK, and any type may stand where a string should.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_taskhistory.conventions.facts import Said
from otel_taskhistory.recording.text import dump_json
from otel_taskhistory.spans.encode import encode
from otel_taskhistory.spans.record import as_integer

MOST_TOKENS: Final = 10**12
"""More is no number of tokens; the sums of a task stay within SQLite's numbers."""


def parsed(value: Any) -> Any:
    """What JSON text says, or a value that is no text; None for text that is no (whole) JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def as_text(value: Any) -> str | None:
    """A value as text: a string as it is, anything else as JSON; None and ``""`` are none."""
    if isinstance(value, str):
        return value or None
    return None if value is None else encode(value).text


def text_of(value: Any) -> str | None:
    """`value` when it is a string that says something."""
    return value if isinstance(value, str) and value else None


def tokens_of(value: Any) -> int | None:
    """A number of tokens; whatever cannot be one is none."""
    number = as_integer(value)
    return number if number is not None and 0 <= number <= MOST_TOKENS else None


def cost_of(value: Any) -> float | None:
    """A cost in US dollars; whatever cannot be one is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MOST_TOKENS else None


def first_tokens(attributes: Mapping[str, Any], *keys: str) -> int | None:
    """The first of these attributes that is a number of tokens."""
    return next(
        (n for n in (tokens_of(attributes.get(key)) for key in keys) if n is not None), None
    )


def message_list(messages: Iterable[Mapping[str, Any]], system: str | None = None) -> Said:
    """Messages that a dialect says in its own way, in the form of the GenAI conventions.

    Args:
        messages: each ``{"role": …, "parts": [{"type": …, …}, …]}``.
        system: see `Said`.
    """
    return Said(dump_json(list(messages))[0], structured=True, system=system)
