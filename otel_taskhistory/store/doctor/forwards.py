# SPDX-License-Identifier: Apache-2.0
"""Where spans are sent on to: what waits there, and what never arrived."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Final

from otel_taskhistory.store.doctor.findings import Finding
from otel_taskhistory.store.forwarding import Forward, Left, destinations
from otel_taskhistory.store.times import iso

_STALE_NS: Final = 24 * 3600 * 10**9


def check_forwards(connection: sqlite3.Connection) -> Iterator[Finding]:
    """All about what was to be sent elsewhere."""
    now = time.time_ns()
    for forward, left in destinations(connection):
        where = f"{forward.endpoint} ({forward.policy})"
        if left.spans and now - forward.seen_ns > _STALE_NS:
            yield _waiting(where, forward, left, now)
        lost = {
            "refused by the endpoint": forward.refused,
            "removed before they were sent": forward.removed,
        }
        for what, number in lost.items():
            if number:
                yield Finding(
                    "forward losses",
                    "note",
                    f"{number} spans for {where} were {what}",
                    "They are not there.",
                    "otel-taskhistory forward --again sends all that is here once more.",
                    count=number,
                )


def _waiting(where: str, forward: Forward, left: Left, now: int) -> Finding:
    held = forward.hold_until_ns is not None and forward.hold_until_ns > now
    return Finding(
        "forward",
        "warning",
        f"{left.spans} spans wait to be sent to {where}, and nothing was since"
        f" {iso(forward.seen_ns)}",
        "Retention waits for them, within bounds." if held else "What gets too old goes unsent.",
        "Start otel-taskhistory forward again; if nobody wants them there any more, leave it.",
        count=left.spans,
    )
