# SPDX-License-Identifier: Apache-2.0
"""A body as what the store takes, in portions of one transaction each; runs in a worker thread."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.redaction.scrubber import Scrubber
from otel_taskhistory.spans.otlp import PassedOver, Rejected, items_in
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.importing import BYTES, RECORDS, entry_of
from otel_taskhistory.store.writer import AnyEntry, size_of
from otel_taskhistory.text import count
from otel_taskhistory.transport.receiver.answers import LOGS, SIGNALS, Form, Refused, Signal
from otel_taskhistory.transport.receiver.weight import check_json, check_protobuf

_BYTE_ORDER_MARK: Final = "\ufeff"
_REASONS: Final = 3
"""How many reasons for rejections are told at most."""


@dataclass(slots=True)
class Portion:
    """What is committed together."""

    entries: list[AnyEntry] = field(default_factory=list)
    size: int = 0
    """About how many bytes they hold."""


@dataclass(slots=True)
class Batch:
    """What a request holds."""

    portions: deque[Portion] = field(default_factory=deque)
    records: int = 0
    rejected: int = 0
    why: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)

    def reject(self, why: str, number: int = 1) -> None:
        """Something cannot be kept."""
        self.rejected += number
        self.why[why] += number

    @property
    def message(self) -> str:
        """What the sender is to be told; empty when all is well."""
        parts = [
            f"{count(number)} × {what}: passed over, not part of any span"
            for what, number in self.passed_over.items()
        ]
        told = self.why.most_common(_REASONS)
        parts[:0] = [f"{count(number)} × {why}" for why, number in told]
        if len(self.why) > _REASONS:
            parts.append("and more")
        return "; ".join(parts)


def read_batch(
    body: bytes | bytearray,
    form: Form,
    signal: Signal,
    *,
    now_ns: int,
    services: frozenset[str] = frozenset(),
    scrubber: Scrubber | None = None,
) -> Batch:
    """Read the body of a request.

    Args:
        body: as it was before it was compressed.
        form: how it is written.
        signal: what it is to hold.
        now_ns: when it came, in ns since 1970.
        services: the only ``service.name`` that may write; empty when all may.
        scrubber: masks secrets before anything is written; None where nobody asked for it.

    Raises:
        Refused: it cannot be read, or is something else.
    """
    document = _document(body, form, signal)
    batch = Batch()
    for item in items_in(document):
        if isinstance(item, Rejected):
            batch.reject(item.why)
        elif isinstance(item, PassedOver):
            batch.passed_over[item.what] += item.number
        elif services and _service(item.record) not in services:
            batch.reject("of a service.name that may not write here (--service)")
        else:
            entry = entry_of(item.record, now_ns, item.marks, scrubber)
            _add(batch, entry, size_of(item.record))
    return batch


def _add(batch: Batch, entry: AnyEntry, size: int) -> None:
    last = batch.portions[-1] if batch.portions else None
    if last is None or len(last.entries) >= RECORDS or last.size >= BYTES:
        last = Portion()
        batch.portions.append(last)
    last.entries.append(entry)
    last.size += size
    batch.records += 1


def _service(record: SpanRecord | LogRecord) -> object:
    return record.resource.attributes.get(semconv.SERVICE_NAME)


def _document(body: bytes | bytearray, form: Form, signal: Signal) -> Any:
    """The request as an OTLP/JSON document.

    Raises:
        Refused: it is none.
    """
    if form == "protobuf":
        check_protobuf(body, signal)
        from otel_taskhistory.spans.otlp_protobuf import logs_from_protobuf, spans_from_protobuf

        try:
            return (logs_from_protobuf if signal is LOGS else spans_from_protobuf)(bytes(body))
        except ValueError as error:
            raise Refused(400, str(error)) from None
    check_json(body)
    document = _json(body)
    if not isinstance(document, dict):
        raise Refused(400, "no OTLP: the body is not a JSON object")
    if not document:
        return document  # an export of nothing
    held = {_in_camel_case(name): value for name, value in document.items()}
    for other in SIGNALS:
        if signal.around not in held and other.around in held:
            raise Refused(400, f"{other.noun}s are sent to {other.path}, not to {signal.path}")
    if not isinstance(held.get(signal.around), list):
        raise Refused(400, f"no OTLP: there is no list {signal.around} in the body")
    return {signal.around: held[signal.around]}


def _json(body: bytes | bytearray) -> Any:
    text = body.decode("utf-8", "surrogateescape").removeprefix(_BYTE_ORDER_MARK)
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise Refused(400, f"no JSON, or cut: {error.msg} (character {error.pos + 1})") from None
    except RecursionError:
        raise Refused(400, "no OTLP: nested too deeply") from None
    except ValueError as error:  # a number with too many digits
        raise Refused(400, f"no JSON that can be read ({type(error).__name__})") from None


def _in_camel_case(name: str) -> str:
    """A field by its name in JSON; some write the names of the protocol's definition."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
