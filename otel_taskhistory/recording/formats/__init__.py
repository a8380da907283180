# SPDX-License-Identifier: Apache-2.0
"""One module per way a model API writes messages; each maps plain JSON values there and back.

Every mapping is a rename in place: a message or part keeps the other keys of its original and
their order, and says under `FORMAT` where it came from. A message without `FORMAT` was given in
GenAI form and is its own original, so messages of other instrumentations restore to themselves.
What fits no rule is kept whole.
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.recording.keys import FORMAT

CONVENTIONAL: Final = frozenset(
    {"text", "tool_call", "tool_call_response", "reasoning", "blob", "uri", "file"}
)
"""Types of parts that the GenAI conventions define and we convert to."""

Json = dict[str, Any]


def whole(value: Any) -> Json:
    """Return the part that keeps `value` as it is, because no rule fits it."""
    return {"type": "json", "content": value, FORMAT: "json"}
