# SPDX-License-Identifier: Apache-2.0
"""Whether tasks and steps were made by the rules of this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from otel_taskhistory.store.doctor.findings import Finding
from otel_taskhistory.store.rules import older_traces


def check_rules(connection: sqlite3.Connection) -> Iterator[Finding]:
    """A note when there are traces that an older version has read."""
    older = older_traces(connection)
    if older:
        yield Finding(
            "rules",
            "note",
            "traces were read by the rules of an older version",
            "Their tasks and steps may lack what this version understands.",
            "otel-taskhistory reproject reads them again; agents may go on meanwhile.",
            count=older,
        )
