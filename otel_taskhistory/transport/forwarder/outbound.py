# SPDX-License-Identifier: Apache-2.0
"""What leaves: the next spans of the ledger, closed where nobody will end them, through a policy.

A span that a dead process left open is sent closed: it ended when the process was seen last, with
status ERROR. Else whatever other services did below it would hang in the air at the remote end.
Should it turn out that the process lived, its real end is sent when it comes, and is later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.forwarding import Due, left_open, next_batch
from otel_taskhistory.store.outgoing import Outgoing
from otel_taskhistory.store.rebuild import ReadArtifact

if TYPE_CHECKING:
    from otel_taskhistory.redaction import Policy

SPANS: Final = 512
"""Spans of a request at most, as other exporters have it."""

BYTES: Final = 2 * 2**20
"""Bytes of text and pictures of a request, about, but for one span that is larger by itself. Well
below what receivers take: an OpenTelemetry Collector 20 MiB, many proxies 10 MiB or less."""

_READ: Final = 16 * 2**20
"""Bytes that are read for a request at most, however little of it leaves."""

_INTERRUPTED: Final = "interrupted: its process is gone"


@dataclass(frozen=True, slots=True)
class Outbound:
    """A span as it leaves.

    Attributes:
        change: where it is in the order of the history.
        record: what the policy let through.
    """

    change: int
    record: SpanRecord


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent next.

    Attributes:
        spans: in order; may be none.
        up_to: all up to this number is in `spans`, or does not leave.
        withheld: spans that the policy did not let through.
        failed: (which span, why) of those that cannot leave.
        more: whether there is something after that.
    """

    spans: tuple[Outbound, ...]
    up_to: int
    withheld: int
    failed: tuple[tuple[str, str], ...]
    more: bool


def load(
    connection: sqlite3.Connection,
    read_artifact: ReadArtifact | None,
    policy: Policy,
    after: int,
) -> Load:
    """What comes after a number; within one read transaction, about `BYTES` at most."""
    batch = next_batch(connection, after, spans=SPANS, size=_READ)
    return _loaded(connection, read_artifact, policy, batch.due, batch.up_to, batch.more)


def load_left_open(
    connection: sqlite3.Connection,
    read_artifact: ReadArtifact | None,
    policy: Policy,
    processes: Sequence[int],
    after: int,
) -> Load:
    """As `load`, of what dead processes left open that nobody has called interrupted yet."""
    due = [one for one in left_open(connection, processes) if one.change > after][:SPANS]
    up_to = due[-1].change if due else after
    return _loaded(connection, read_artifact, policy, due, up_to, more=bool(due))


def _loaded(
    connection: sqlite3.Connection,
    read_artifact: ReadArtifact | None,
    policy: Policy,
    due: Sequence[Due],
    up_to: int,
    more: bool,
) -> Load:
    outgoing = Outgoing(connection, read_artifact)
    spans: list[Outbound] = []
    failed: list[tuple[str, str]] = []
    withheld = size = 0
    for at, one in enumerate(due):
        try:
            record = _allowed(outgoing, policy, one)
        except _Unsendable as error:
            failed.append((error.which, error.why))
            outgoing = Outgoing(connection, read_artifact)
            continue
        if record is None:
            withheld += 1
            continue
        spans.append(Outbound(one.change, record))
        size += _size_of(record)
        if size >= BYTES and at + 1 < len(due):
            return Load(tuple(spans), one.change, withheld, tuple(failed), more=True)
    return Load(tuple(spans), up_to, withheld, tuple(failed), more)


class _Unsendable(Exception):
    def __init__(self, which: str, why: str) -> None:
        super().__init__(why)
        self.which = which
        self.why = why


def _allowed(outgoing: Outgoing, policy: Policy, due: Due) -> SpanRecord | None:
    """A span as it may leave; None when it may not. One that is broken keeps no other here."""
    which = f"row {due.span} of the spans"
    try:
        (record,) = outgoing.spans([due.span])
    except sqlite3.Error:
        raise
    except Exception as error:
        raise _Unsendable(which, f"it cannot be read ({type(error).__name__})") from error
    which = f"span {record.span_id} of trace {record.trace_id}"
    whole = closed(record, due.left_ns)
    times = (whole.start_ns, whole.end_ns or 0, *(event.time_ns for event in whole.events))
    if not all(0 <= time < 2**64 for time in times):
        raise _Unsendable(which, "it has a time that OTLP cannot say")
    try:
        return policy.span(whole)
    except Exception as error:  # never without the policy
        raise _Unsendable(which, f"the policy failed ({type(error).__name__})") from error


def _size_of(record: SpanRecord) -> int:
    """About how many bytes a span has as it leaves."""
    parts = (record.events, record.links)
    said = [record.attributes, *(one.attributes for part in parts for one in part)]
    return 200 + sum(map(_size, said)) + len(record.status_message or "")


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + 4
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _size(inner) for key, inner in value.items()) + 8
    if isinstance(value, list | tuple):
        return sum(map(_size, value)) + 8
    return 12


def closed(record: SpanRecord, left_ns: int | None) -> SpanRecord:
    """The span, ended if it is one that its process left open.

    Args:
        record: as the ledger has it.
        left_ns: when its process was seen last.
    """
    if record.end_ns is not None or left_ns is None:
        return record
    last = max([left_ns, record.start_ns, *(event.time_ns for event in record.events)])
    attributes: dict[str, Any] = {
        **record.attributes,
        semconv.TASKHISTORY_STATUS: "interrupted",
    }
    return replace(
        record,
        end_ns=last,
        status_code="ERROR",
        status_message=record.status_message or _INTERRUPTED,
        attributes=attributes,
    )


def encoded(spans: Sequence[Outbound]) -> bytes:
    """The request that carries these spans, as protobuf.

    Raises:
        ValueError: it cannot be written; of several spans, one cannot.
        TaskHistoryError: what this needs is not installed.
    """
    from otel_taskhistory.spans.otlp_protobuf import spans_to_protobuf

    try:
        return spans_to_protobuf(document(spans))
    except TaskHistoryError:
        raise
    except Exception as error:  # whatever one span has in it that the format does not
        raise ValueError(type(error).__name__) from error


def document(spans: Sequence[Outbound]) -> dict[str, Any]:
    """The same as OTLP/JSON."""
    from otel_taskhistory.spans.otlp_write import spans_document

    return spans_document([span.record for span in spans])
