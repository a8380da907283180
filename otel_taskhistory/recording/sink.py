# SPDX-License-Identifier: Apache-2.0
"""How checkpoints and pictures leave the tracer, and the process's live way out.

The tracer knows the OpenTelemetry API only. What it learns while a step runs (a prompt, a picture)
must reach the history before the span ends; it hands that to a `Sink`. `TaskHistoryExporter`
is one; the newest exporter that was opened in this process is the live one.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from opentelemetry.trace import Span


@dataclass(frozen=True, slots=True)
class StoredPicture:
    """What is known of a picture after it was handed over; the facts of a screenshot event."""

    sha256: str
    """64 hex digits; the digest of nothing for an empty picture."""
    path: str | None
    """Relative to the artifact folder, or None when no file was written."""
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    status: str
    """``ok``, ``broken``, ``empty``, ``too_large``, ``unsupported`` or ``not_stored``."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A task that was begun before, as `Sink.earlier` found it."""

    trace_id: str
    """32 hex digits."""
    root_span_id: str
    """16 hex digits: the first root; a further attempt is its remote child."""
    status: str
    """``running`` (its process lives), ``interrupted``, or how it ended."""
    attempts: int
    last_step_index: int


class Deferred(Protocol):
    """Commits that were begun under `Sink.deferring`, still to be waited for."""

    def wait(self) -> Awaitable[None]:
        """Return when all of them are in the history, without blocking the event loop."""


@runtime_checkable
class Sink(Protocol):
    """Where a tracer leaves what cannot wait for the end of the span. No method raises."""

    def checkpoint(self, span: Span, event: str, detail: dict[str, Any]) -> None:
        """Record the open span as it is now.

        Args:
            span: the running span; its attributes and events already hold the news.
            event: the timeline's name for it, e.g. ``step.prompt``.
            detail: ids, counts and sizes for the timeline; never content.
        """

    def picture(self, image: Any) -> StoredPicture:
        """Store a picture (encoded bytes, a path, or a PIL image) as a file; see `StoredPicture`.

        The file is fsynced when this returns. Anything that cannot be stored comes back with
        the status that says why.
        """

    def deferring(self) -> AbstractContextManager[Deferred]:
        """Within it, spans that end in this thread hand over their commit instead of waiting."""

    def earlier(self, *, task_id: str | None = None, key: str | None = None) -> Earlier | None:
        """Look up a task by id or by the key it was begun with; None when there is none."""


# No lock, which a forked child could inherit, or a signal handler and `__del__` wait for in vain:
# each of the calls below is one step of the dict.
_live: dict[int, Sink] = {}


def register_sink(sink: Sink) -> None:
    """Make `sink` the live one of this process."""
    _live.pop(id(sink), None)
    _live[id(sink)] = sink


def unregister_sink(sink: Sink) -> None:
    """Forget `sink`; the one registered before it becomes the live one again."""
    _live.pop(id(sink), None)


def live_sink() -> Sink | None:
    """The newest registered sink, or None."""
    sinks = list(_live.values())
    return sinks[-1] if sinks else None
