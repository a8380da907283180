# SPDX-License-Identifier: Apache-2.0
"""The numbers by which a history is recognised; apart, as only making one needs sqlite-utils."""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x4F544C48
"""``PRAGMA application_id`` of a history: "OTLH" in ASCII."""

SCHEMA_VERSION: Final = 1
"""``PRAGMA user_version`` of the histories that this version writes."""

READABLE_FROM: Final = 1
"""The oldest schema version whose reader can still read what this version writes."""

OLDEST_SQLITE: Final = (3, 37, 0)
"""STRICT tables came with it."""
