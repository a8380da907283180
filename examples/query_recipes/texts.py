# SPDX-License-Identifier: Apache-2.0
"""What the recipes in Python share: recorded messages as lines that are safe to print.

A prompt is a JSON list of messages, each with a role and parts, or a plain text when the agent sent
one. It may hold anything, so nothing that acts upon a terminal gets through.
"""

from __future__ import annotations

import json
from typing import Any


def lines_of(prompt: str | None) -> list[str]:
    """A prompt in lines, one a message."""
    try:
        messages = json.loads(prompt or "[]")
    except ValueError:
        return [shown(prompt or "")]
    return [line_of(message) for message in messages]


def line_of(message: dict[str, Any]) -> str:
    """A message on one line: its role, and its parts; of a picture, that it is one."""
    parts = (str(part.get("content", f"({part['type']})")) for part in message["parts"])
    return shown(f"{message['role']}: {' '.join(parts)}")


def shown(text: str) -> str:
    """A text without line ends, controls and marks that turn the direction of writing."""
    return "".join(
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
