# SPDX-License-Identifier: Apache-2.0
"""Requests into the history: each is answered when what it holds is committed, or why it is not.

Bodies are parsed in a few worker threads, commits are made by the writer's thread; the event loop
does neither. Requests that come at the same time share commits. What waits is bounded: bodies by a
`Room`, what is on its way to the store by a `Turnstile`; who finds no place is told to come again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeVar

from starlette.requests import Request

from otel_taskhistory.redaction.scrubber import scrubber_of
from otel_taskhistory.store.retention import ROOTLESS_NS
from otel_taskhistory.store.silence import interrupt_silent
from otel_taskhistory.store.writer import Job, Wait, Writer
from otel_taskhistory.transport.receiver import body as bodies
from otel_taskhistory.transport.receiver.answers import Form, Signal, busy
from otel_taskhistory.transport.receiver.body import Limits
from otel_taskhistory.transport.receiver.reading import Batch, Portion, read_batch
from otel_taskhistory.transport.receiver.room import Full, Part, Room, Turnstile

_logger = logging.getLogger("otel_taskhistory")

T = TypeVar("T")

_PARSERS: Final = 2
"""Requests that are parsed at the same time; a small one is not kept waiting by one large one."""

_ON_THE_WAY: Final = 32 * 2**20
"""Bytes handed to the writer and not committed yet. Half of what it keeps while the store is away:
what was on its way then is never given up on, and never told as a loss."""

_LAST_SECONDS: Final = 2.0
"""How long a body may take that is still coming when the server is told to stop."""

_AWAY_AGAIN: Final = 2  # seconds; the writer tries twice a second whether the store is back
_FULL_AGAIN: Final = 1
_LOOK_SECONDS: Final = 1.0  # no wake-up can be lost for longer
_LOOK_FOR_SILENCE: Final = 10.0


@dataclass(slots=True)
class Received:
    """What was taken, since the start."""

    requests: int = 0
    records: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may write, and for how long a task may be silent."""

    services: frozenset[str] = field(default_factory=frozenset)
    """The only ``service.name`` that may; empty when all may."""
    silent_seconds: float | None = ROOTLESS_NS / 1e9
    """A task that has not ended and of which nothing has come for so long is interrupted;
    None: never."""


class Intake:
    """Takes requests on one event loop.

    Args:
        writer: of the history; shared with nobody.
        limits: what a sender may ask for.
        rules: who may write.
        clock: ns since 1970.
    """

    def __init__(
        self,
        writer: Writer,
        limits: Limits,
        rules: Rules,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.received = Received()
        self._writer = writer
        self._limits = limits
        self._rules = rules
        self._scrubber = scrubber_of(writer.settings)
        self._clock = clock
        self._room = Room(limits.total)
        self._on_the_way = Turnstile(_ON_THE_WAY)
        self._parsers = ThreadPoolExecutor(_PARSERS, "taskhistory-receive")
        self._clocks: set[asyncio.Timeout] = set()
        self._stopping = False

    async def take(self, request: Request, form: Form, signal: Signal) -> Batch:
        """Commit what a request holds.

        Returns:
            What became of it; all that was not rejected survives power loss.

        Raises:
            Refused: nothing of it counts as kept; what has come into the history all the same is
                recognised when it is sent again.
            starlette.requests.ClientDisconnect: the sender has gone before all of it had come.
        """
        encoding = bodies.encoding_of(request)
        bodies.check_length(request, self._limits)
        self._check_open()
        try:
            with self._room.part() as part:
                body = await bodies.read(request, part, self._limits, self._clocks)
                batch = await self._in_thread(
                    lambda: self._read(body, encoding, form, signal, part)
                )
                await self._commit(batch)
        except Full:
            raise busy("too much is waiting here already", _FULL_AGAIN) from None
        self.received.requests += 1
        self.received.records += batch.records
        self.received.rejected += batch.rejected
        return batch

    def stop(self) -> None:
        """Finish what has come; what is still coming gets a moment."""
        self._stopping = True
        end = asyncio.get_running_loop().time() + _LAST_SECONDS
        for clock in self._clocks:
            due = clock.when()
            if due is None or due > end:
                clock.reschedule(end)

    async def watch_silence(self) -> None:
        """For ever: interrupt the tasks of which nothing comes any more."""
        while True:
            await asyncio.sleep(_LOOK_FOR_SILENCE)
            try:
                await self._in_thread(self.interrupt_silent)
            except Exception as error:  # another program holds the lock, say: the next time
                _logger.warning(
                    "otel-taskhistory: silent tasks were not looked for now (%s)",
                    type(error).__name__,
                )

    def interrupt_silent(self) -> int:
        """Do so once; how many. Waits for the store."""
        settings = self._writer.settings
        seconds = self._rules.silent_seconds
        silent_ns = None if seconds is None else int(seconds * 1e9)
        return interrupt_silent(settings, self._clock(), silent_ns)

    def close(self) -> None:
        """End the threads. The writer is not closed."""
        self._parsers.shutdown(cancel_futures=True)

    # --- inside ---

    def _check_open(self) -> None:
        """See to it that the store is there: what waits for it already is enough."""
        if self._stopping or self._writer.closed:
            raise busy("the receiver is stopping", _AWAY_AGAIN)
        if self._writer.waiting[0]:
            raise busy("the history cannot be written now", _AWAY_AGAIN)

    def _read(
        self, body: bytearray, encoding: str, form: Form, signal: Signal, part: Part
    ) -> Batch:
        whole = bodies.decompressed(body, encoding, part, self._limits)
        return read_batch(
            whole,
            form,
            signal,
            now_ns=self._clock(),
            services=self._rules.services,
            scrubber=self._scrubber,
        )

    async def _commit(self, batch: Batch) -> None:
        counters = self._writer.counters
        lost = counters.lost
        while batch.portions:
            portion = batch.portions.popleft()
            # What was committed before survives power loss with the last.
            if not await self._stored(portion, durable=not batch.portions):
                raise busy("the history cannot be written now", _AWAY_AGAIN)
        unstorable = min(counters.lost - lost, batch.records)
        if unstorable:
            # Of which of the requests that were committed together is not known: each is told.
            batch.reject("could not be stored", unstorable)

    async def _stored(self, portion: Portion, *, durable: bool) -> bool:
        await self._on_the_way.enter(portion.size)
        try:
            job = self._writer.submit(portion.entries, durable=durable, wait=Wait.NOT)
            await self._decided(job)
            return job.stored
        finally:
            self._on_the_way.leave(portion.size)

    async def _decided(self, job: Job) -> None:
        """Wait until a job is committed, or left to what waits for the store."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(done.set)
            except RuntimeError:
                _logger.debug("otel-taskhistory: the event loop ended before a commit")

        job.when_done(tell)
        while not job.done:
            try:
                await asyncio.wait_for(done.wait(), _LOOK_SECONDS)
            except TimeoutError:
                self._writer.submit([], durable=False, wait=Wait.NOT)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._parsers, work)
