# SPDX-License-Identifier: Apache-2.0
"""Where spans and log records of the OpenTelemetry SDK come from, as an `OriginRecord`."""

from __future__ import annotations

from typing import Any

from otel_taskhistory.spans.record import OriginRecord


def resource_of(resource: Any) -> OriginRecord:
    """The SDK's resource; None is one that says nothing."""
    if resource is None:
        return OriginRecord()
    return OriginRecord(schema_url=resource.schema_url or "", attributes=resource.attributes)


def scope_of(scope: Any) -> OriginRecord:
    """The SDK's instrumentation scope, likewise."""
    if scope is None:
        return OriginRecord()
    return OriginRecord(
        name=scope.name,
        version=scope.version or None,
        schema_url=scope.schema_url or "",
        attributes=scope.attributes or {},
    )
