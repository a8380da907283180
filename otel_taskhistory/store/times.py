# SPDX-License-Identifier: Apache-2.0
"""Times as the projection keeps them: ns that fit SQLite, and ISO 8601 text."""

from __future__ import annotations

import time
from typing import Final

LATEST_NS: Final = 2**63 - 1
"""April 2262: the largest number of ns that SQLite holds."""


def sqlite_ns(ns: int) -> int:
    """`ns` within what can be stored and shown: from 1970 to 2262."""
    return min(max(ns, 0), LATEST_NS)


def optional_ns(ns: int | None) -> int | None:
    """`sqlite_ns` for a time that may be missing."""
    return None if ns is None else sqlite_ns(ns)


def iso(ns: int) -> str:
    """Write ns since 1970 as ``2026-11-30T12:00:00.000000Z``: equal lengths sort as text."""
    seconds, microseconds = divmod(sqlite_ns(ns) // 1000, 1_000_000)
    # No datetime: Python 3.13.0 crashes when one is made while the interpreter takes itself apart.
    at = time.gmtime(seconds)
    return (
        f"{at.tm_year:04}-{at.tm_mon:02}-{at.tm_mday:02}"
        f"T{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}.{microseconds:06}Z"
    )


def milliseconds(started_ns: int, ended_ns: int | None) -> float | None:
    """Duration in ms, 0 when the clock was set back in between, None while it runs."""
    return None if ended_ns is None else max(ended_ns - started_ns, 0) / 1e6
