# SPDX-License-Identifier: Apache-2.0
"""Where spans and log records of the OpenTelemetry SDK come from, as an `OriginRecord`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_taskhistory.spans.record import OriginRecord

_MOST: Final = 256
_known: dict[int, tuple[Any, OriginRecord]] = {}
"""By identity: resources and scopes of the SDK never change, and a process has few of them."""


def resource_of(resource: Any) -> OriginRecord:
    """The SDK's resource; None is one that says nothing."""
    return _once(resource, _resource_of)


def scope_of(scope: Any) -> OriginRecord:
    """The SDK's instrumentation scope, likewise."""
    return _once(scope, _scope_of)


def _once(origin: Any, read: Callable[[Any], OriginRecord]) -> OriginRecord:
    known = _known.get(id(origin))
    if known is not None and known[0] is origin:
        return known[1]
    record = read(origin)
    if len(_known) >= _MOST:
        _known.clear()
    _known[id(origin)] = (origin, record)
    return record


def _resource_of(resource: Any) -> OriginRecord:
    if resource is None:
        return OriginRecord()
    return OriginRecord(schema_url=resource.schema_url or "", attributes=resource.attributes)


def _scope_of(scope: Any) -> OriginRecord:
    if scope is None:
        return OriginRecord()
    return OriginRecord(
        name=scope.name,
        version=scope.version or None,
        schema_url=scope.schema_url or "",
        attributes=scope.attributes or {},
    )
