# SPDX-License-Identifier: Apache-2.0
"""Every key that we add inside recorded JSON (messages, parts, values), as documented constants.

Attributes and events are in `otel_taskhistory.semconv`; these are within their values.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "taskhistory."
"""How every key that we add begins."""

# --- in messages and parts --------------------------------------------------------------------

FORMAT: Final = "taskhistory.format"
"""Of a message or part: the form it had before it was converted."""
SINGLE: Final = "taskhistory.single"
"""Of a message that was handed over by itself, not in a list: true."""
ARGUMENTS: Final = "taskhistory.arguments"
"""Of a tool call part: how its arguments were given. Absent for a string as Python's `json.dumps`
writes it, or one that stayed a string; ``compact`` for one without spaces; ``object`` for
arguments that were no string."""
ESCAPED: Final = "taskhistory.escaped"
"""Of a message: JSON pointers to its strings whose lone surrogates were escaped; ``key:/a/b`` is
an escaped key."""
CHOICE: Final = "taskhistory.choice"
"""Of an output message: what its choice holds beside the message, e.g. log probabilities."""
RESPONSE: Final = "taskhistory.response"
"""Of the first output message: what the response holds beside its messages, id and model."""

# --- values without a JSON form of their own --------------------------------------------------

BYTES: Final = "taskhistory.bytes"
"""Base64 of bytes (exact)."""
ARRAY: Final = "taskhistory.array"
"""Type and shape of an array of numbers that is too long to list, beside its bytes (exact)."""
ITEMS: Final = "taskhistory.items"
"""The pairs of a mapping whose keys would be the same as strings (exact)."""
OBJECT: Final = "taskhistory.object"
"""Class of an object that can only be shown as text (reduced)."""
UNREADABLE: Final = "taskhistory.unreadable"
"""Why there is no value: the class of an object that cannot or must not be read, a cycle, or
nesting too deep (reduced)."""
