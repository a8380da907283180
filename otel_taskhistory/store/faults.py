# SPDX-License-Identifier: Apache-2.0
"""Places where a test may kill the process; elsewhere they do nothing.

Each stands between two steps of which either may be the last one that a process does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

POINTS: Final = (
    "removal.hidden",
    "removal.batch",
    "removal.uncommitted",
    "removal.committed",
    "unlink.unlinked",
    "unlink.committed",
    "space.vacuumed",
    "space.folded",
)
"""Every name that `point` is called with."""

armed: Callable[[str], None] | None = None
"""What a test wants to be called with the name of each point that is passed."""


def point(name: str) -> None:
    """Pass a place where the process may die."""
    if armed is not None:
        armed(name)
