# SPDX-License-Identifier: Apache-2.0
"""Policies: what of a span leaves this machine.

``ids_only`` is the default: identifiers, structure, times, statuses, names and counts leave, what
was said and done does not. It is a list of what passes (see `allowed`), not of what is held back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, Protocol, get_args, runtime_checkable

from otel_taskhistory import semconv
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.redaction import allowed, shapes
from otel_taskhistory.redaction.pictures import without_pictures
from otel_taskhistory.redaction.records import change_log, change_span
from otel_taskhistory.redaction.scrubber import Scrubber
from otel_taskhistory.spans.record import (
    Attributes,
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)

PolicyName = Literal["ids_only", "no_images", "scrub", "everything"]
NAMES: Final[tuple[str, ...]] = get_args(PolicyName)
"""The policies that have a name."""


@runtime_checkable
class Policy(Protocol):
    """Decides what of a span leaves."""

    def span(self, record: SpanRecord) -> SpanRecord | None:
        """What leaves of a span that has ended; None: nothing of it.

        The record is not altered. Trace id, span id, parent and times stay as they are.
        """


SpanFunction = Callable[[SpanRecord], SpanRecord | None]
"""A policy of the user's own, as a function."""


def policy_named(
    name: PolicyName, *, secrets: Sequence[str] = ()
) -> IdsOnly | NoImages | Scrub | Everything:
    """The policy of this name.

    Args:
        name: ``ids_only``, ``no_images``, ``scrub`` or ``everything``.
        secrets: values that ``scrub`` masks wherever they stand, and ``ids_only`` never lets out;
            the other two do not look for secrets.

    Raises:
        SettingsError: there is no such policy, or a secret cannot be masked.
    """
    match name:
        case "ids_only":
            return IdsOnly(secrets)
        case "no_images":
            return NoImages()
        case "scrub":
            return Scrub(secrets)
        case "everything":
            return Everything()
        case _:
            raise SettingsError(f"there is no policy {name!r}; use {', '.join(NAMES)}")


class IdsOnly:
    """Lets out what `otel_taskhistory.redaction.allowed` names, in its shape, and nothing else."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._scrubber = Scrubber(secrets)

    def span(self, record: SpanRecord) -> SpanRecord:
        """See `Policy.span`."""
        self._scrubber.look()
        attributes = self._attributes(record.attributes)
        return replace(
            record,
            name=self._name(record, attributes),
            attributes=attributes,
            events=tuple(map(self._event, record.events)),
            links=tuple(map(self._link, record.links)),
            resource=self._resource(record.resource),
            scope=self._scope(record.scope),
            status_message=None,
            trace_state=_trace_state(record.trace_state),
        )

    def log(self, record: LogRecord) -> LogRecord:
        """What leaves of a log record, by the same list; its body does not."""
        self._scrubber.look()
        return replace(
            record,
            event_name=self._text(record.event_name, shapes.is_label),
            body=None,
            attributes=self._attributes(record.attributes),
            severity_text=self._text(record.severity_text, shapes.is_word),
            resource=self._resource(record.resource),
            scope=self._scope(record.scope),
        )

    def _attributes(self, attributes: Attributes) -> Attributes:
        kept = {key: value for key, value in attributes.items() if allowed.passes(key, value)}
        scrubbed = self._scrubber.masked(kept)
        return {key: value for key, value in kept.items() if scrubbed.get(key) == value}

    def _name(self, record: SpanRecord, attributes: Attributes) -> str:
        """The span's name if it is one, else what the attributes that pass say it is."""
        is_step = record.attributes.get(semconv.TASKHISTORY_ROLE) == "step"
        name = self._text(record.name, shapes.is_name if is_step else shapes.is_label)
        if name:
            return name
        operation = attributes.get(semconv.GEN_AI_OPERATION_NAME)
        if not operation:
            return "step" if is_step else "span"
        about = next((attributes[key] for key in _ABOUT if attributes.get(key)), None)
        return f"{operation} {about}" if about else str(operation)

    def _event(self, event: EventRecord) -> EventRecord:
        name = self._text(event.name, shapes.is_label) or "event"
        return replace(event, name=name, attributes=self._attributes(event.attributes))

    def _link(self, link: LinkRecord) -> LinkRecord:
        return replace(
            link,
            trace_state=_trace_state(link.trace_state),
            attributes=self._attributes(link.attributes),
        )

    def _resource(self, origin: OriginRecord) -> OriginRecord:
        attributes = {
            key: value
            for key, value in origin.attributes.items()
            if (shape := allowed.RESOURCE.get(key)) and shape(value)
        }
        scrubbed = self._scrubber.masked(attributes)
        return OriginRecord(
            schema_url=self._text(origin.schema_url, shapes.is_schema_url),
            attributes={key: item for key, item in attributes.items() if scrubbed[key] == item},
        )

    def _scope(self, origin: OriginRecord) -> OriginRecord:
        return OriginRecord(
            name=self._text(origin.name, _is_scope),
            version=self._text(origin.version or "", shapes.is_version) or None,
            schema_url=self._text(origin.schema_url, shapes.is_schema_url),
        )

    def _text(self, text: str, shape: shapes.Shape) -> str:
        """A text of the given shape in which there is no secret; else nothing."""
        return text if text and shape(text) and self._scrubber.masked(text) == text else ""


_ABOUT: Final = (
    semconv.GEN_AI_TOOL_NAME,
    semconv.GEN_AI_AGENT_NAME,
    semconv.GEN_AI_REQUEST_MODEL,
)
_SAMPLING: Final = re.compile(r"(?:^|,)\s*ot=((?:(?:th|rv):[0-9a-f]{1,14};?){1,2})\s*(?:,|$)")


def _is_scope(value: object) -> bool:
    # Names of packages for Node.js begin with the @ of whose they are.
    name = value.removeprefix("@") if isinstance(value, str) else value
    return shapes.is_token(name) or shapes.is_label(name)


def _trace_state(header: str) -> str:
    """Of what vendors put there only what OpenTelemetry's sampling needs."""
    found = _SAMPLING.search(header) if header else None
    return f"ot={found[1]}" if found else ""


class NoImages:
    """Lets out everything but pictures."""

    def span(self, record: SpanRecord) -> SpanRecord:
        """See `Policy.span`."""
        return change_span(record, without_pictures, _as_it_is)

    def log(self, record: LogRecord) -> LogRecord:
        """A log record, likewise."""
        return change_log(
            record, without_pictures, _as_it_is, lambda body: without_pictures({"": body})[""]
        )


def _as_it_is(text: str) -> str:
    return text


class Scrub:
    """Lets out everything, secrets masked."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._scrubber = Scrubber(secrets)

    def span(self, record: SpanRecord) -> SpanRecord:
        """See `Policy.span`."""
        return self._scrubber.record(record)

    def log(self, record: LogRecord) -> LogRecord:
        """A log record, likewise."""
        return self._scrubber.record(record)


class Everything:
    """Lets out everything as it is."""

    def span(self, record: SpanRecord) -> SpanRecord:
        """See `Policy.span`."""
        return record

    def log(self, record: LogRecord) -> LogRecord:
        """A log record, likewise."""
        return record
