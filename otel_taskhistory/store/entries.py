# SPDX-License-Identifier: Apache-2.0
"""What is handed over to be written, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import LogRecord, SpanRecord


@dataclass(frozen=True, slots=True)
class Entry:
    """One span to be written, as it is or as it was at a checkpoint."""

    record: SpanRecord
    facts: SpanFacts
    seen_ns: int
    marks: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether it is the span itself and not what it was while it ran."""
        return self.record.end_ns is not None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One log record to be written."""

    record: LogRecord
    seen_ns: int
    marks: frozenset[str] = frozenset()


AnyEntry = Entry | LogEntry


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a group that was committed."""

    reduced: tuple[Exception, ...] = ()
    """Of each span or log record of which only a reduced form could be stored: what was in its
    way."""
    lost: int = 0
    """Those that could not be stored even so."""
    not_understood: tuple[Exception, ...] = ()
    """Of each trace whose tasks and steps could not be made out, and of each span that could not be
    read with its log records: what was in the way. The spans are stored; a trace is looked at again
    when the next one of them comes."""


def reduced(entry: AnyEntry) -> AnyEntry:
    """What can surely be stored of an entry: identity, structure and times."""
    if isinstance(entry, LogEntry):
        said = replace(entry.record, body=None, attributes={})
        return LogEntry(said, entry.seen_ns, entry.marks | {"reduced"})
    record = replace(entry.record, attributes={}, events=(), links=(), status_message=None)
    facts = SpanFacts(
        role=entry.facts.role if entry.facts.role != "tool" else "other",
        own=entry.facts.own and entry.facts.role != "tool",
        status=entry.facts.status,
        attempt=entry.facts.attempt,
        step_index=entry.facts.step_index,
    )
    return Entry(record, facts, entry.seen_ns, entry.marks | {"reduced"})
