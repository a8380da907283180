# SPDX-License-Identifier: Apache-2.0
"""What the doctor finds: one fact each, with what it means and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

Severity = Literal["error", "warning", "note"]
"""An error is damage, loss, or a history that cannot be used; a warning is something to do before
it comes to that, or a loss that is over; a note is good to know. Only a note is nothing wrong."""

Progress = Callable[[str, int, int], None]
"""Told (what is being checked, how much is done, how much there is; 0 when it is not known)."""

SHOWN: Final = 20
"""Examples that a finding carries at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor has to say."""

    check: str
    """A short name that stays the same, for programs."""
    severity: Severity
    what: str
    """What was found, one sentence."""
    meaning: str = ""
    """What follows from it."""
    todo: str = ""
    """What to do about it."""
    count: int = 1
    """How many there are of it."""
    items: tuple[str, ...] = ()
    """Which they are; the first `SHOWN`."""
    fixable: bool = False
    """Whether ``--fix`` does something about it."""
    fixed: str = ""
    """What was done about it."""

    @property
    def wrong(self) -> bool:
        """Whether something is wrong (still)."""
        return self.severity != "note" and not self.fixed

    def as_fixed(self, how: str) -> Finding:
        """The finding after something was done about it."""
        return replace(self, fixed=how)


def some(items: Iterable[str]) -> tuple[str, ...]:
    """The first few of many."""
    return tuple(islice(items, SHOWN))
