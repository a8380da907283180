# SPDX-License-Identifier: Apache-2.0
"""Requests into the history, in this process: shared commits, bounded waiting, losses told."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="an extra")
pytest.importorskip("httpx", reason="comes with Datasette")

import httpx

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.writer import Writer
from otel_taskhistory.transport.access import Names
from otel_taskhistory.transport.receiver.app import Endpoint
from otel_taskhistory.transport.receiver.body import Limits
from otel_taskhistory.transport.receiver.intake import Intake, Rules
from otel_taskhistory.transport.receiver.room import Full, Room, Turnstile

from .receiving import known, request, span, trace_id


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does; the event loop is free meanwhile."""
    while not true():
        time.sleep(0.001)


class Here:
    """A receiver without a network."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self.directory = directory
        self.writer = Writer(Settings.resolve(directory=directory, busy_timeout=0.1))
        self.intake = Intake(self.writer, limits, Rules())
        app = Endpoint(self.intake, names=Names([], any_address=True), token=None)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"
        )

    async def post(self, body: Any) -> Any:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        return await self._client.post(
            "/v1/traces", content=data, headers={"content-type": "application/json"}
        )

    async def close(self) -> None:
        await self._client.aclose()
        self.intake.close()
        self.writer.close()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    """One with little room."""
    running = Here(tmp_path / "history", Limits(body=1000_000, decompressed=1000_000, room=1))
    yield running
    await running.close()


async def test_requests_at_the_same_time_share_commits(here: Here) -> None:
    """What comes while a commit is made goes with the next, whoever sent it."""
    assert (await here.post(request(span(trace_id(), 1)))).status_code == 200
    before = here.writer.counters.commits
    go_on, busy = threading.Event(), threading.Event()
    write = here.writer._write

    def slowly(*args: Any) -> bool:
        busy.set()
        go_on.wait(60)
        return write(*args)

    here.writer._write = slowly  # type: ignore[method-assign]
    sent = [asyncio.create_task(here.post(request(span(trace_id(), 1)))) for _ in range(16)]
    await asyncio.to_thread(busy.wait, 60)
    await asyncio.to_thread(until, lambda: len(here.writer._commit._queue) >= 15)
    go_on.set()
    answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} == {200}
    assert here.writer.counters.commits - before <= 2
    assert len(known(here.directory)) == 17


async def test_who_finds_no_room_is_told_to_come_again(here: Here) -> None:
    """What waits in memory is bounded, however many send."""
    go_on = threading.Event()
    write = here.writer._write

    def slowly(*args: Any) -> bool:
        go_on.wait(60)
        return write(*args)

    here.writer._write = slowly  # type: ignore[method-assign]
    bodies = [request(span(trace_id(), 1, name="x" * 400_000)) for _ in range(12)]
    sent = [asyncio.create_task(here.post(body)) for body in bodies]
    done, _ = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert {task.result().status_code for task in done} == {503}
    go_on.set()
    answers = await asyncio.gather(*sent)
    kept = [answer for answer in answers if answer.status_code == 200]
    told = [answer for answer in answers if answer.status_code == 503]
    assert len(kept) + len(told) == 12
    assert 1 <= len(kept) <= 5
    assert {answer.headers["retry-after"] for answer in told} == {"1"}
    assert len(known(here.directory)) == len(kept)
    here.writer._write = write  # type: ignore[method-assign]
    assert (await here.post(bodies[0])).status_code == 200  # and the room was given back


async def test_what_the_store_cannot_hold_is_not_told_as_kept(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span that not even its identity could be stored of is rejected, the others are not."""
    from otel_taskhistory.store.ledger import Ledger

    write = Ledger.write

    def poisoned(self: Ledger, record: Any, *args: Any, **more: Any) -> Any:
        if record.span_id == f"{2:016x}":
            raise ValueError("poison")
        return write(self, record, *args, **more)

    monkeypatch.setattr(Ledger, "write", poisoned)
    trace = trace_id()
    answer = await here.post(request(*(span(trace, number) for number in (1, 2, 3))))
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert {span_id for _, span_id in known(here.directory)} == {f"{1:016x}", f"{3:016x}"}


async def test_a_large_request_is_several_transactions(here: Here) -> None:
    """So that agents that write at the same time do not wait for all of it."""
    trace = trace_id()
    before = here.writer.counters.commits
    answer = await here.post(request(*(span(trace, number) for number in range(1, 1001))))
    assert answer.status_code == 200
    assert len(known(here.directory)) == 1000
    assert here.writer.counters.commits - before >= 4


async def test_an_error_of_ours_tells_nothing_of_what_was_sent(
    here: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 to the sender, where it happened into the log, and no content anywhere."""
    secret = "secret-of-the-sender"

    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError(secret)

    monkeypatch.setattr("otel_taskhistory.transport.receiver.intake.read_batch", broken)
    answer = await here.post(request(span(trace_id(), 1)))
    assert (answer.status_code, answer.json()["code"]) == (500, 13)
    assert secret not in answer.text
    assert secret not in caplog.text
    assert "RuntimeError at test_intake.py:" in caplog.text


async def test_a_turnstile_lets_in_what_fits_in_order() -> None:
    """Large ones are not overtaken for ever; what is larger than the limit goes alone."""
    turnstile, order, go_on = Turnstile(10), list[int](), asyncio.Event()

    async def through(size: int) -> None:
        await turnstile.enter(size)
        order.append(size)
        try:
            await go_on.wait()
        finally:
            turnstile.leave(size)

    tasks = [asyncio.create_task(through(size)) for size in (6, 9, 25, 3, 7)]
    await asyncio.sleep(0)
    assert order == [6]
    tasks[1].cancel()
    go_on.set()
    await asyncio.wait(tasks)
    assert order == [6, 25, 3, 7]
    assert tasks[1].cancelled()
    await turnstile.enter(10)  # nobody is inside any more


async def test_who_gives_up_at_the_turnstile_holds_up_nobody() -> None:
    """Neither those behind nor the room that it was given at the same moment."""
    turnstile = Turnstile(10)
    await turnstile.enter(6)
    tasks = [asyncio.create_task(turnstile.enter(size)) for size in (9, 4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, False]
    late = asyncio.create_task(turnstile.enter(8))
    await asyncio.sleep(0)
    late.cancel()
    turnstile.leave(6)  # lets it in before it has noticed
    turnstile.leave(4)
    await asyncio.wait([late])
    await turnstile.enter(10)


def test_room_is_given_back_whatever_happens() -> None:
    """Also when a request fails."""
    room = Room(10)

    def too_much() -> None:
        with room.part() as part:
            part.grow(8)
            part.grow(3)

    with pytest.raises(Full):
        too_much()
    with room.part() as part:
        part.grow(10)
