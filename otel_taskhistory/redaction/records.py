# SPDX-License-Identifier: Apache-2.0
"""A span or log record with its parts changed, the same record where nothing was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from otel_taskhistory.spans.record import (
    Attributes,
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)

Change = Callable[[Attributes], Attributes]
"""Attributes in, attributes out; the same object when nothing is to be changed."""
Text = Callable[[str], str]

_Record = TypeVar("_Record", SpanRecord, LogRecord)


def change_span(record: SpanRecord, attributes: Change, text: Text) -> SpanRecord:
    """A span with all its attributes, and all that is text by itself, changed.

    Args:
        record: the span; it is not altered.
        attributes: applied to those of span, events, links, resource and scope.
        text: applied to the names of span, events and scope, to the status message, versions,
            addresses of schemas and trace states.
    """
    return replace(
        record,
        name=text(record.name),
        attributes=attributes(record.attributes),
        events=tuple(_event(event, attributes, text) for event in record.events),
        links=tuple(_link(link, attributes, text) for link in record.links),
        resource=change_origin(record.resource, attributes, text),
        scope=change_origin(record.scope, attributes, text),
        status_message=None if record.status_message is None else text(record.status_message),
        trace_state=text(record.trace_state),
    )


def change_origin(origin: OriginRecord, attributes: Change, text: Text) -> OriginRecord:
    """A resource or scope, likewise."""
    return replace(
        origin,
        name=text(origin.name),
        version=None if origin.version is None else text(origin.version),
        schema_url=text(origin.schema_url),
        attributes=attributes(origin.attributes),
    )


def _event(event: EventRecord, attributes: Change, text: Text) -> EventRecord:
    return replace(event, name=text(event.name), attributes=attributes(event.attributes))


def _link(link: LinkRecord, attributes: Change, text: Text) -> LinkRecord:
    return replace(link, trace_state=text(link.trace_state), attributes=attributes(link.attributes))


def change_log(
    record: LogRecord,
    attributes: Change,
    text: Text,
    body: Callable[[object], object],
) -> LogRecord:
    """A log record, likewise; `body` is applied to its body."""
    return replace(
        record,
        event_name=text(record.event_name),
        body=body(record.body),
        attributes=attributes(record.attributes),
        severity_text=text(record.severity_text),
        resource=change_origin(record.resource, attributes, text),
        scope=change_origin(record.scope, attributes, text),
    )


def without_contents(record: _Record) -> _Record:
    """What is surely no content of a span or log record: identity, structure, times, outcome."""
    if isinstance(record, LogRecord):
        return replace(
            record,
            event_name="",
            body=None,
            attributes={},
            severity_text="",
            resource=OriginRecord(),
            scope=OriginRecord(),
        )
    return replace(
        record,
        name="span",
        attributes={},
        events=(),
        links=tuple(replace(link, trace_state="", attributes={}) for link in record.links),
        resource=OriginRecord(),
        scope=OriginRecord(),
        status_message=None,
        trace_state="",
    )
