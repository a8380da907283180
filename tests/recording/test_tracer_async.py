# SPDX-License-Identifier: Apache-2.0
"""`async with`: the span ends without blocking the loop, then its commit is awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from otel_taskhistory.recording.tracer import TaskTracer


def note_ends(kit: Any) -> None:
    """Have the sink's log say when spans end."""
    export = kit.memory.export

    def noting(spans: Any) -> Any:
        kit.sink.log.extend(f"end {span.name}" for span in spans)
        return export(spans)

    kit.memory.export = noting


async def test_leaving_ends_the_span_while_deferring_and_then_waits(kit: Any) -> None:
    """In this order for each handle, children first."""
    note_ends(kit)
    async with kit.tasks.task("g") as task, task.step("s") as step, step.tool_call("t"):
        pass
    assert kit.sink.log == [
        *("deferring", "end execute_tool t", "deferred", "wait"),
        *("deferring", "end s", "deferred", "wait"),
        *("deferring", "end invoke_agent", "deferred", "wait"),
    ]


async def test_a_plain_with_inside_a_running_loop_ends_at_once(kit: Any) -> None:
    """It is allowed, and waits for its commit as anywhere."""
    note_ends(kit)
    with kit.tasks.task("g"):
        pass
    assert kit.sink.log == ["end invoke_agent"]


async def test_without_a_sink_it_simply_ends(kit: Any) -> None:
    """`async with` needs no history."""
    async with TaskTracer(kit.provider).task("g") as task, task.step("s"):
        pass
    assert kit.names == ["s", "invoke_agent"]


async def test_cancellation_while_waiting_goes_on_and_the_span_has_ended(kit: Any) -> None:
    """The commit is begun; whoever cancels does not wait for it."""
    waiting = asyncio.Event()

    async def for_ever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    kit.sink.on_wait = for_ever

    async def work() -> None:
        async with kit.tasks.task("g"):
            pass

    running = asyncio.create_task(work())
    await waiting.wait()
    assert kit.status("invoke_agent") == "succeeded"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_exception_of_the_block_goes_on_after_the_wait(kit: Any) -> None:
    """Waiting changes nothing about what left the block."""
    with pytest.raises(ValueError, match="x"):
        async with kit.tasks.task("g"):
            raise ValueError("x")
    assert kit.sink.log == ["deferring", "deferred", "wait"]
    assert kit.status("invoke_agent") == "failed"


@pytest.mark.parametrize("when", ["deferring", "waiting"])
async def test_a_sink_that_fails_costs_nothing_but_the_wait(kit: Any, told: Any, when: str) -> None:
    """The span ends all the same, and it is told without content."""

    async def fail() -> None:
        raise OSError("the secret prompt")

    kit.sink.on_wait = fail
    kit.sink.broken = when == "deferring"
    async with kit.tasks.task("g"):
        pass
    assert kit.status("invoke_agent") == "succeeded"
    assert len(told()) == 1
    assert "secret" not in told()[0]


def test_a_coroutine_that_is_closed_does_not_wait(kit: Any) -> None:
    """`close()` allows no waiting: the span ends at once, as under no event loop at all."""

    class Pause:
        def __await__(self) -> Any:
            yield

    async def work() -> None:
        async with kit.tasks.task("g", agent="a"):
            await Pause()

    async def stay() -> None:
        await Pause()

    kit.sink.on_wait = stay
    coroutine = work()
    coroutine.send(None)
    coroutine.close()
    assert kit.status("invoke_agent a") == "cancelled"
    assert kit.sink.log == []


async def test_a_coroutine_that_is_closed_in_a_loop_does_not_wait_either(kit: Any) -> None:
    """A loop runs, but whoever closes the coroutine cannot wait for it."""

    async def stay() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        async with kit.tasks.task("g", agent="a"):
            await asyncio.Event().wait()

    kit.sink.on_wait = stay
    coroutine = work()
    coroutine.send(None)
    coroutine.close()
    assert kit.status("invoke_agent a") == "cancelled"
    assert "wait" not in kit.sink.log


async def test_handles_that_record_nothing_do_not_wait(kit: Any) -> None:
    """Without an SDK, and for a task that has ended before, there is nothing to wait for."""
    tasks = TaskTracer(exporter=kit.sink)
    async with tasks.task("g") as task, task.step() as step, step.tool_call("t"):
        pass
    assert kit.sink.log == []
