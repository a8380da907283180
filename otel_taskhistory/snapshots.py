# SPDX-License-Identifier: Apache-2.0
"""Spans that stay open are recorded as they are now and then, so that long calls are visible.

Our own tracer tells of each prompt and decision as it happens. Other instrumentations set values
on a span and tell nobody until it ends; a model call that takes a minute, or in which the process
dies, would be seen too late or never. A thread looks at the open spans once an interval and records
those that have changed since it looked last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_taskhistory.store.commit import Flag

_logger = logging.getLogger("otel_taskhistory")

INTERVAL_SECONDS: Final = 1.0
_FORK_SECONDS: Final = 1.0  # how long a fork waits for a look in progress

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Look:
    """How a span was when it was looked at. Holds its values, so that none is taken for another."""

    name: str
    status: object
    events: int
    links: int
    attributes: Mapping[str, Any]

    def is_like(self, other: _Look) -> bool:
        """Whether nothing was set since; values are compared by identity, which costs no time."""
        return (
            (self.name, self.events, self.links) == (other.name, other.events, other.links)
            and self.status is other.status
            and self.attributes.keys() == other.attributes.keys()
            and all(value is other.attributes[key] for key, value in self.attributes.items())
        )


class Snapshots:
    """Watches open spans from a thread of its own.

    Args:
        open_spans: returns the spans that are open now, by identity.
        record: records one of them as it is.
        interval: seconds between two looks.
    """

    def __init__(
        self,
        open_spans: Callable[[], Mapping[Identity, ReadableSpan]],
        record: Callable[[ReadableSpan], None],
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._open_spans = open_spans
        self._record = record
        self._interval = interval
        self._seen: dict[Identity, _Look] = {}
        # No Event: a signal handler may start a span while its thread is setting it.
        self._bell = Flag()
        self._awake = False
        self._over = False
        self._stopped = threading.Event()  # for one thread: after a fork another one goes on
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A span has started: see to it that somebody watches."""
        if self._awake and self._thread is not None:
            return
        self._awake = True
        self._bell.set()
        if self._thread is not None or self._over:
            return
        thread = threading.Thread(target=self._watch, name="otel-taskhistory-open", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The interpreter shuts down: what is open now ends with it, or is recorded at its end.
            _logger.debug("otel-taskhistory: open spans are not watched: %s", error)
            return
        self._thread = thread

    def stop(self) -> None:
        """Watch no more."""
        self._over = True
        self._stopped.set()
        self._bell.set()

    def pause(self) -> None:
        """Before a fork: let the thread leave, so that it is not in the middle of something.

        Newer Pythons warn of a fork while there is another thread. Waits a second at most.
        """
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self._stopped.set()
        self._bell.set()
        thread.join(_FORK_SECONDS)

    def resume(self) -> None:
        """After a fork, in the process that forked: go on watching what is open."""
        if not self._stopped.is_set():
            return
        self._bell = Flag()
        self._awake = False
        self._stopped = threading.Event()
        self._thread = None
        if self._open_spans():
            self.begin()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's, and so is what it knew."""
        self._seen = {}
        self._bell = Flag()
        self._awake = False
        self._stopped = threading.Event()
        self._thread = None

    def look(self) -> None:
        """Record the open spans that have changed since the last look."""
        spans = self._open_spans()
        for identity in self._seen.keys() - spans.keys():
            self._seen.pop(identity, None)
        for identity, span in spans.items():
            now = _look(span)
            before = self._seen.get(identity)
            if before is None or not before.is_like(now):
                self._record(span)
                self._seen[identity] = now

    def _watch(self) -> None:
        stopped, bell = self._stopped, self._bell
        while not stopped.wait(self._interval):
            try:
                self.look()
            except Exception:
                # A span that cannot be looked at must not blind us to all others.
                _logger.exception("otel-taskhistory: open spans could not be looked at")
            if not self._open_spans():
                self._seen = {}
                self._awake = False
                if not self._open_spans():  # one that started in between rings again
                    bell.wait(-1)
                self._awake = True


def _look(span: ReadableSpan) -> _Look:
    return _Look(
        name=span.name,
        status=span.status.status_code,
        events=len(span.events),
        links=len(span.links),
        attributes=dict(span.attributes or {}),
    )
