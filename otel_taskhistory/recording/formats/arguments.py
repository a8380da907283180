# SPDX-License-Identifier: Apache-2.0
"""Arguments of a tool call: the JSON string of OpenAI's APIs ↔ the object the conventions want.

The string is parsed only if writing the object gives the identical string again.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from otel_taskhistory.recording.plain import MAX_DEPTH, is_plain

COMPACT: Final = "compact"
OBJECT: Final = "object"
"""Styles that are told under `keys.ARGUMENTS`."""

_DEEPEST: Final = MAX_DEPTH // 2


def read(given: Any) -> tuple[Any, str | None]:
    """Return the arguments for the part, and what goes under `keys.ARGUMENTS`."""
    if not isinstance(given, str):
        return given, OBJECT
    if not given.startswith("{"):
        return given, None
    try:
        parsed = _decode(given)
        for style in (None, COMPACT) if '": ' in given else (COMPACT, None):
            if _write(parsed, style) == given and is_plain(parsed, MAX_DEPTH - _DEEPEST):
                return parsed, style if given != "{}" else None
    except (ValueError, RecursionError):
        pass  # not JSON, or not within limits: the string is exact in any case
    return given, None


def write(kept: Any, style: str | None) -> Any:
    """Return what `read` was given."""
    return kept if style == OBJECT or isinstance(kept, str) else _write(kept, style)


def _write(value: Any, style: str | None) -> str:
    return _encode_compact(value) if style == COMPACT else _encode(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Made once: `json.dumps` and `json.loads` make new ones for each call with options.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_encode_compact: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
_decode: Final = json.JSONDecoder(parse_constant=_refuse).decode
