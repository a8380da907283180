# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON as span records and log records; pure, one record at a time, and hard to upset.

One document is an export request of traces or of logs, or a list of such. What other writers than
the reference one produce is understood: ids in hex of any case or in base64, 64-bit numbers as
JSON numbers or as text, enums by number or by name, field names in snake case, attributes as a
plain object, ``scope`` under its former name. Fields that are not known are passed over; a record
that has no identity is rejected, and costs no other.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.spans.encode import MAX_DEPTH
from otel_taskhistory.spans.record import (
    HAS_IS_REMOTE,
    IS_REMOTE,
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)

_MOST_FLAGS: Final = 2**32 - 1

KINDS: Final = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES: Final = ("UNSET", "OK", "ERROR")
KNOWN: Final = "taskhistory"
"""The field of a span or log record for what only we know of it; others pass it over."""

MARKS: Final = frozenset(
    (
        *("attributes", "events", "links", "name", "status_message", "trace_state"),
        *("body", "event_name", "severity_text", "resource", "scope"),
    )
)
"""Marks that a record keeps on its way; others say how it was read, which is found out anew."""

_SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")

_OTHER_SIGNALS: Final = {"resourceMetrics": "metrics", "resourceProfiles": "profiles"}
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,4000}\Z")  # longer ones are refused by int()
_TASK_ID: Final = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{16})?\Z")
_HUGE: Final = re.compile(r"-?0x[0-9a-f]{3000,}\Z")
_EXPONENT: Final = re.compile(r"-?[0-9]{1,17}[eE]\+?[0-9]{1,3}\Z")
_EXACT: Final = 2**53
_OLD_EVENT_NAME: Final = "event.name"

_Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Given:
    """A record that was read.

    Attributes:
        record: what was read.
        marks: parts of it (``attributes``, ``events``, …) in which a value was not what its type
            says, and was kept as the text that stood there.
    """

    record: SpanRecord | LogRecord
    marks: frozenset[str] = frozenset()
    interrupted_ns: int | None = None
    """When the process ended that left the span open, if the history it comes from knew."""
    pinned: str | None = None
    """The id of its task, when that was pinned there."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Something that belongs to no span: metrics, or a log record outside of any."""

    what: str
    number: int = 1
    has_times: bool = False
    """Of a log record: it says when it was, so it is one."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something that cannot be kept."""

    why: str
    """What is wrong with it; never with content."""


Item = Given | PassedOver | Rejected


def items_in(document: Any) -> Iterator[Item]:
    """What a JSON document holds, in its order; never raises.

    Args:
        document: as ``json.loads`` returns it.
    """
    for request in document if isinstance(document, list) else [document]:
        try:
            yield from _request(request)
        except RecursionError:
            yield Rejected("nested too deeply")


def _request(request: Any) -> Iterator[Item]:
    if not isinstance(request, dict):
        yield Rejected("no OTLP: not a JSON object")
        return
    known = False
    for around, scopes, records, read, kind in (
        ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), "spans", _span, "span"),
        (
            "resourceLogs",
            ("scopeLogs", "instrumentationLibraryLogs"),
            "logRecords",
            _log,
            "log record",
        ),
    ):
        groups = _get(request, around)
        if groups is None:
            continue
        known = True
        for group in _list(groups):
            yield from _group(group, scopes, records, read, kind)
    for name, what in _OTHER_SIGNALS.items():
        groups = _get(request, name)
        if groups is not None:
            known = True
            yield PassedOver(what, max(len(_list(groups)), 1))
    if not known and request:  # an export of nothing is one too
        yield Rejected("no OTLP: neither resourceSpans nor resourceLogs in it")


def _group(
    group: Any, scopes: tuple[str, ...], records: str, read: Any, kind: str
) -> Iterator[Item]:
    if not isinstance(group, dict):
        yield Rejected(f"{kind}s of a resource: not a JSON object")
        return
    resource = _Origin.read(_get(group, "resource"), group, "resource")
    for name in scopes:
        for inner in _list(_get(group, name)):
            if not isinstance(inner, dict):
                yield Rejected(f"{kind}s of a scope: not a JSON object")
                continue
            said = _get(inner, "scope") or _get(inner, "instrumentationLibrary")
            scope = _Origin.read(said, inner, "scope")
            for one in _list(_get(inner, records)):
                yield _one(one, resource, scope, read, kind)


def _one(one: Any, resource: _Origin, scope: _Origin, read: Any, kind: str) -> Item:
    if not isinstance(one, dict):
        return Rejected(f"{kind}: not a JSON object")
    reader = _Reader(set(resource.marks | scope.marks))
    try:
        item: Item = read(one, resource.record, scope.record, reader)
    except _Unreadable as error:
        return Rejected(f"{kind}: {error}")
    except RecursionError:
        return Rejected(f"{kind}: nested too deeply")
    return item


class _Unreadable(Exception):
    """A record that cannot be kept; the text says why."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """A resource or scope, and the marks that each of its records gets."""

    record: OriginRecord
    marks: frozenset[str]

    @classmethod
    def read(cls, said: Any, around: _Said, name: str) -> _Origin:
        said = said if isinstance(said, dict) else {}
        reader = _Reader()
        record = OriginRecord(
            _text(said, "name"),
            _text(said, "version") or None,
            _text(around, "schemaUrl"),
            reader.attributes(said, name),
            _count(said, "droppedAttributesCount"),
        )
        return cls(record, frozenset(reader.marks))


def _span(said: _Said, resource: OriginRecord, scope: OriginRecord, reader: _Reader) -> Item:
    flags = _flags(said)
    known = _known(said, reader)
    status = _get(said, "status")
    status = status if isinstance(status, dict) else {}
    record = SpanRecord(
        trace_id=_id(said, "traceId", 16),
        span_id=_id(said, "spanId", 8),
        parent_span_id=_optional_id(said, "parentSpanId", 8),
        name=_text(said, "name"),
        start_ns=_time(said, "startTimeUnixNano"),
        # Without an end it was written down while it ran, e.g. because its process died.
        end_ns=_time(said, "endTimeUnixNano") or (0 if known.get("ended") is True else None),
        attributes=reader.attributes(said, "attributes"),
        events=tuple(
            EventRecord(
                _text(event, "name"),
                _time(event, "timeUnixNano"),
                reader.attributes(event, "events"),
                _count(event, "droppedAttributesCount"),
            )
            for event in reader.objects(said, "events")
        ),
        links=tuple(
            LinkRecord(
                _id_as_it_is(link, "traceId", 16),
                _id_as_it_is(link, "spanId", 8),
                _text(link, "traceState"),
                _flags(link),
                reader.attributes(link, "links"),
                _count(link, "droppedAttributesCount"),
            )
            for link in reader.objects(said, "links")
        ),
        resource=resource,
        scope=scope,
        kind=_enum(said, "kind", KINDS, "SPAN_KIND_"),
        status_code=_enum(status, "code", STATUSES, "STATUS_CODE_"),
        status_message=_text(status, "message") or None,
        trace_state=_text(said, "traceState"),
        flags=flags,
        parent_remote=bool(flags & HAS_IS_REMOTE and flags & IS_REMOTE),
        dropped_attributes=_count(said, "droppedAttributesCount"),
        dropped_events=_count(said, "droppedEventsCount"),
        dropped_links=_count(said, "droppedLinksCount"),
    )
    interrupted = _integer(known.get("interruptedTimeUnixNano"))
    if interrupted is None or not 0 < interrupted < 2**63:
        interrupted = None
    pinned = known.get("pinnedTaskId")
    if not (isinstance(pinned, str) and _TASK_ID.match(pinned) and record.trace_id == pinned[:32]):
        pinned = None
    return Given(record, frozenset(reader.marks), interrupted, pinned)


def _known(said: _Said, reader: _Reader) -> _Said:
    """What a history that wrote this record knew of it; its marks are the record's."""
    found = said.get(KNOWN)
    if not isinstance(found, dict):
        return {}
    named = _list(found.get("marks"))
    reader.marks |= {mark for mark in named if isinstance(mark, str) and mark in MARKS}
    return found


def _log(said: _Said, resource: OriginRecord, scope: OriginRecord, reader: _Reader) -> Item:
    _known(said, reader)
    trace_id = _optional_id(said, "traceId", 16)
    span_id = _optional_id(said, "spanId", 8)
    if trace_id is None or span_id is None:
        timed = bool(_time(said, "timeUnixNano") or _time(said, "observedTimeUnixNano"))
        return PassedOver("log record outside of a span", has_times=timed)
    attributes = reader.attributes(said, "attributes")
    named = attributes.get(_OLD_EVENT_NAME)
    record = LogRecord(
        trace_id=trace_id,
        span_id=span_id,
        event_name=_text(said, "eventName") or (named if isinstance(named, str) else ""),
        body=reader.value(_get(said, "body"), "body"),
        attributes=attributes,
        time_ns=_time(said, "timeUnixNano"),
        observed_ns=_time(said, "observedTimeUnixNano"),
        severity_number=_severity(said),
        severity_text=_text(said, "severityText"),
        flags=_flags(said),
        dropped_attributes=_count(said, "droppedAttributesCount"),
        resource=resource,
        scope=scope,
    )
    return Given(record, frozenset(reader.marks))


@dataclass(slots=True)
class _Reader:
    """Reads values, and remembers in which parts of a record one was not what it should be."""

    marks: set[str] = field(default_factory=set)

    def objects(self, said: _Said, name: str) -> Iterator[_Said]:
        """The events or links of a span; what is none is left out, and marked."""
        for one in _list(_get(said, name)):
            if isinstance(one, dict):
                yield one
            else:
                self.marks.add(name)

    def attributes(self, said: _Said, part: str) -> dict[str, Any]:
        """Attributes as a dict; of a key that stands there twice the last value counts."""
        return self._map(_get(said, "attributes"), part, 0)

    def value(self, said: Any, part: str, depth: int = 0) -> Any:
        """An AnyValue. One of no known type is None; one that its type does not fit is text."""
        if said is None:
            return None
        if not isinstance(said, dict):  # not wrapped, as some write it
            self.marks.add(part)
            return said
        for kind, given in said.items():
            match kind:
                case "stringValue" | "string_value":
                    return self._checked(given, isinstance(given, str), part)
                case "boolValue" | "bool_value":
                    flag = {"true": True, "false": False}.get(given) if _is_str(given) else given
                    return self._checked(flag, isinstance(flag, bool), part, given)
                case "intValue" | "int_value":
                    number = _integer(given)
                    return self._checked(number, number is not None, part, given)
                case "doubleValue" | "double_value":
                    double = _double(given)
                    return self._checked(double, double is not None, part, given)
                case "bytesValue" | "bytes_value":
                    data = _bytes(given)
                    return self._checked(data, data is not None, part, given)
                case "arrayValue" | "array_value":
                    return self._array(given, part, depth)
                case "kvlistValue" | "kvlist_value":
                    values = _get(given, "values") if isinstance(given, dict) else given
                    return self._map(values, part, depth)
        return None

    def _array(self, given: Any, part: str, depth: int) -> list[Any]:
        values = _list(_get(given, "values") if isinstance(given, dict) else given)
        if depth > MAX_DEPTH:  # the ledger cuts here as well, and says so
            return []
        return [self.value(one, part, depth + 1) for one in values]

    def _map(self, given: Any, part: str, depth: int) -> dict[str, Any]:
        if isinstance(given, dict):  # a plain object instead of a list of pairs
            given = [{"key": key, "value": value} for key, value in given.items()]
        found: dict[str, Any] = {}
        if depth > MAX_DEPTH:
            return found
        for pair in _list(given):
            key = pair.get("key", "") if isinstance(pair, dict) else None
            if isinstance(key, str):
                found[key] = self.value(pair.get("value"), part, depth + 1)
            else:
                self.marks.add(part)
        return found

    def _checked(self, value: Any, fits: bool, part: str, given: Any = None) -> Any:
        """`value` when it fits, else what was given, marked."""
        if fits:
            return value
        self.marks.add(part)
        return value if given is None else given


def _get(said: _Said, name: str) -> Any:
    """A field by its JSON name, or by its name in the protocol's definition."""
    value = said.get(name)
    return said.get(_snake(name)) if value is None else value


def _snake(name: str) -> str:
    known = _SNAKE.get(name)
    if known is None:
        known = _SNAKE[name] = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
    return known


_SNAKE: Final[dict[str, str]] = {}
"""Names of fields in snake case; there are only those that this module asks for."""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _text(said: _Said, name: str) -> str:
    value = _get(said, name)
    return value if isinstance(value, str) else ""


def _integer(value: Any) -> int | None:
    """A whole number, as JSON number or as text, of any size."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if _DECIMAL.match(value):
            return int(value)
        if _HUGE.match(value):
            return int(value, 16)
        # As JSON has it: 1e3 is a whole number too, as long as it is an exact one.
        value = _double(value) if _EXPONENT.match(value) else None
        return int(value) if value is not None and abs(value) <= _EXACT else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _bytes(value: Any) -> bytes | None:
    """Base64, of either alphabet, padded or not."""
    if not isinstance(value, str):
        return None
    text = value.translate(_FROM_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


_FROM_URL_SAFE: Final = str.maketrans("-_", "+/")


def _time(said: _Said, name: str) -> int:
    value = _get(said, name)
    if value is None or value == "":
        return 0
    number = _integer(value)
    if number is None:
        raise _Unreadable(f"{name} is no number of nanoseconds")
    return number


def _count(said: _Said, name: str) -> int:
    return max(_integer(_get(said, name)) or 0, 0)


def _flags(said: _Said) -> int:
    number = _integer(_get(said, "flags")) or 0
    return number if 0 <= number <= _MOST_FLAGS else 0


def _severity(said: _Said) -> int:
    """A severity by number, or by a name like ``SEVERITY_NUMBER_INFO2``; 0 where nobody said."""
    value = _get(said, "severityNumber")
    number = _integer(value)
    if number is not None:
        return number if 0 <= number <= _MOST_FLAGS else 0
    name = value.removeprefix("SEVERITY_NUMBER_") if isinstance(value, str) else ""
    level = name.rstrip("234")
    if level not in _SEVERITIES:
        return 0
    return 4 * _SEVERITIES.index(level) + int(name[len(level) :] or 1)


def _enum(said: _Said, name: str, names: tuple[str, ...], prefix: str) -> str:
    """A name of an enum, by name or number; the first one where nobody said or nobody knows."""
    value = _get(said, name)
    if isinstance(value, str) and value.removeprefix(prefix) in names:
        return value.removeprefix(prefix)
    number = _integer(value)
    return names[number] if number is not None and 0 <= number < len(names) else names[0]


def _id(said: _Said, name: str, size: int) -> str:
    found = _optional_id(said, name, size)
    if found is None:
        raise _Unreadable(f"{name} is missing or zero")
    return found


def _optional_id(said: _Said, name: str, size: int) -> str | None:
    """An id as hex digits; None when it is missing, empty or all zeros."""
    value = _get(said, name)
    if value is None or value == "":
        return None
    data = _id_bytes(value, size)
    if data is None:
        raise _Unreadable(f"{name} is no id of {size} bytes, neither in hex nor in base64")
    return data.hex() if any(data) else None


def _id_as_it_is(said: _Said, name: str, size: int) -> str:
    """An id of a link; what is no id is kept as it stands there: nothing depends on it."""
    data = _id_bytes(_get(said, name), size)
    return _text(said, name) if data is None else data.hex()


def _id_bytes(value: Any, size: int) -> bytes | None:
    if not isinstance(value, str):
        return None
    if len(value) == 2 * size:
        try:
            return bytes.fromhex(value) if value.isalnum() else None
        except ValueError:
            return None
    data = _bytes(value)
    return data if data is not None and len(data) == size else None
