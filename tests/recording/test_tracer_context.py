# SPDX-License-Identifier: Apache-2.0
"""What is current where: threads, asyncio tasks, generators that are closed elsewhere."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from otel_taskhistory import semconv


def current_span_id() -> int:
    """Of OpenTelemetry's current span; 0 for none."""
    return trace.get_current_span().get_span_context().span_id


def test_nothing_is_current_outside(kit: Any) -> None:
    """Neither before, nor after, nor in a thread that was started plainly."""
    assert (kit.tasks.current_task(), kit.tasks.current_step()) == (None, None)
    with kit.tasks.task("g") as task, task.step(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(kit.tasks.current_task).result() is None
    assert (kit.tasks.current_task(), kit.tasks.current_step()) == (None, None)
    assert current_span_id() == 0


def test_a_handle_that_is_not_entered_is_not_current(kit: Any) -> None:
    """Only `with` makes current; `.end()` style has explicit parents."""
    task = kit.tasks.task("g")
    task.step()
    assert kit.tasks.current_task() is None
    task.end()


def test_an_ended_handle_is_never_current(kit: Any) -> None:
    """A step ended inside its block leaves the task; an ended task leaves nothing, not an outer."""
    with kit.tasks.task("outer") as outer:
        with outer.step("o"), kit.tasks.task("inner") as inner:
            with inner.step() as step:
                step.end()
                assert kit.tasks.current_step() is None
                assert kit.tasks.current_task() is inner
            inner.end()
            assert kit.tasks.current_task() is None
            assert kit.tasks.current_step() is None
        assert kit.tasks.current_task() is outer


def test_a_step_whose_span_somebody_ended_is_not_current(kit: Any, told: Any) -> None:
    """A span ended behind the handle's back ends the handle; leaving it is no trouble."""
    with kit.tasks.task("g") as task, task.step() as step:
        step.span.end()
        assert step.ended
        assert kit.tasks.current_step() is None
        step.result("lost")
    assert len(told()) == 1


def test_a_handle_goes_along_with_a_copied_context_and_with_opentelemetrys(kit: Any) -> None:
    """Either carries the current step into a thread, as asyncio.to_thread and others do."""
    with kit.tasks.task("g") as task, task.step() as step, ThreadPoolExecutor(1) as pool:
        copied = contextvars.copy_context()
        assert pool.submit(copied.run, kit.tasks.current_step).result() is step
        carried = otel_context.get_current()

        def attached() -> Any:
            token = otel_context.attach(carried)
            try:
                with kit.tasks.step("in thread"):
                    pass
                return kit.tasks.current_step()
            finally:
                otel_context.detach(token)

        assert pool.submit(attached).result() is step
    assert kit.one("in thread").parent == task.span_context


def test_handles_work_from_many_threads_at_once(kit: Any) -> None:
    """Steps are numbered without gap or repeat, in the order of their start times."""
    task = kit.tasks.task("g")
    ready = threading.Barrier(8)

    def work(number: int) -> None:
        ready.wait()
        for turn in range(10):
            with task.step(f"{number}") as step:
                step.prompt(f"{number} {turn}")
                step.decision("ok")
                with step.tool_call("t") as call:
                    call.result(turn)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, number) for number in range(8)]:
            done.result()
    task.end()
    steps = [s for s in kit.spans if s.attributes[semconv.TASKHISTORY_ROLE] == "step"]
    steps.sort(key=lambda span: span.attributes[semconv.TASKHISTORY_STEP_INDEX])
    assert [s.attributes[semconv.TASKHISTORY_STEP_INDEX] for s in steps] == list(range(1, 81))
    starts = [s.start_time for s in steps]
    assert starts == sorted(starts)
    assert all(s.parent == task.span_context for s in steps)


def test_the_number_of_a_step_and_its_start_have_the_same_order(make_kit: Any) -> None:
    """Also when the span of the first one takes longer to be made than that of the second."""
    first_is_numbered, second_has_begun = threading.Event(), threading.Event()

    class Slow(Sampler):
        def should_sample(self, parent: Any, trace_id: Any, name: str, *_: Any, **__: Any) -> Any:
            if name == "first":
                first_is_numbered.set()
                second_has_begun.wait(10)
            return SamplingResult(Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "slow"

    kit = make_kit(sampler=Slow())
    task = kit.tasks.task("g")
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(task.step, "first")
        first_is_numbered.wait(10)
        task.step("second").end()
        second_has_begun.set()
        begun.result().end()
    task.end()
    first, second = kit.one("first"), kit.one("second")
    assert first.attributes[semconv.TASKHISTORY_STEP_INDEX] == 1
    assert second.attributes[semconv.TASKHISTORY_STEP_INDEX] == 2
    assert first.start_time <= second.start_time


def test_a_step_that_begins_while_its_task_ends_ends_with_it(kit: Any) -> None:
    """No span is left open for ever between the two."""

    class Ending(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.name == "s":
                task.end()

    kit.provider.add_span_processor(Ending())
    task = kit.tasks.task("g")
    step = task.step("s")
    assert step.ended
    assert kit.status("s") == "cancelled"


def test_one_step_may_be_written_by_many_threads(kit: Any) -> None:
    """Each prompt and decision is a call of its own or part of one; none is lost."""
    task = kit.tasks.task("g")
    step = task.step("s")
    ready = threading.Barrier(6)

    def work(number: int) -> None:
        ready.wait()
        for turn in range(10):
            step.prompt(f"<{number}.{turn}>")

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, number) for number in range(6)]:
            done.result()
    last = step.span.attributes[semconv.GEN_AI_INPUT_MESSAGES]
    task.end()
    asked = [last, *(e.attributes[semconv.GEN_AI_INPUT_MESSAGES] for e in kit.one("s").events)]
    for number in range(6):
        for turn in range(10):
            assert sum(f"<{number}.{turn}>" in messages for messages in asked) == 1


def test_a_step_may_end_in_another_thread(kit: Any, told: Any) -> None:
    """Entered here, left there: it ends, nothing is logged, and here nothing stays current."""
    with kit.tasks.task("g") as task:
        step = task.step("s")
        step.__enter__()
        thread = threading.Thread(target=step.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        assert kit.names == ["s"]
        assert kit.tasks.current_step() is None
        assert kit.tasks.current_task() is task
        with task.step("next"):
            pass
        assert current_span_id() == task.span_context.span_id
    assert current_span_id() == 0
    assert told() == []


def test_blocks_left_in_the_wrong_order_leave_nothing_behind(kit: Any, told: Any) -> None:
    """A generator holds a step open; its consumer's step outlives it."""

    def stream(task: Any) -> Iterator[int]:
        with task.step("inner"):
            yield 1
            yield 2

    with kit.tasks.task("g") as task:
        pieces = stream(task)
        next(pieces)
        with task.step("outer") as outer:
            pieces.close()
            assert kit.tasks.current_step() is outer
            assert current_span_id() == outer.span_context.span_id
        assert kit.tasks.current_step() is None
        assert current_span_id() == task.span_context.span_id
    assert current_span_id() == 0
    assert kit.status("inner") == "cancelled"
    assert told() == []


async def test_parallel_steps_in_asyncio_are_each_current_in_their_own_task(kit: Any) -> None:
    """gather, TaskGroup and the like: each asyncio task has its own current step."""
    reached: list[int] = []
    everyone = asyncio.Event()

    async def work(number: int) -> None:
        async with kit.tasks.step(f"s{number}") as step:
            reached.append(number)
            if len(reached) == 5:
                everyone.set()
            await everyone.wait()
            assert kit.tasks.current_step() is step
            async with kit.tasks.tool_call(f"t{number}") as call:
                await asyncio.sleep(0)
                call.result(number)

    async with kit.tasks.task("g") as task:
        await asyncio.gather(*(work(number) for number in range(5)))
        assert kit.tasks.current_step() is None
    for number in range(5):
        step = kit.one(f"s{number}")
        assert step.parent == task.span_context
        assert kit.one(f"execute_tool t{number}").parent == step.context
    assert kit.names[-1] == "invoke_agent"


async def test_a_cancelled_asyncio_task_leaves_cancelled_spans(kit: Any) -> None:
    """The step and the task it was in, and the cancellation goes on."""
    entered = asyncio.Event()

    async def work() -> None:
        async with kit.tasks.task("g", agent="a") as task, task.step("s"):
            entered.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(work())
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (kit.status("s"), kit.status("invoke_agent a")) == ("cancelled", "cancelled")


async def test_an_async_generator_closed_by_another_task_is_no_trouble(
    kit: Any, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its step ends with the right parent, nothing is logged at ERROR, nothing stays current."""

    async def stream(task: Any) -> AsyncIterator[int]:
        with task.step("s"):
            yield 1
            yield 2

    with kit.tasks.task("g") as task:
        pieces = stream(task)
        assert await anext(pieces) == 1
        await asyncio.create_task(pieces.aclose())
        assert kit.names == ["s"]
        assert kit.one("s").parent == task.span_context
        assert kit.tasks.current_step() is None
        assert kit.tasks.current_task() is task
        with task.step("next"):
            pass
        assert current_span_id() == task.span_context.span_id
    assert kit.status("s") == "cancelled"
    assert told() == []
    assert not caplog.records


async def test_a_child_asyncio_task_outlives_its_step(kit: Any) -> None:
    """Where the ended step is still in the context, a new step is one of the running task."""
    left = asyncio.Event()

    async def late() -> None:
        token = otel_context.attach(baggage.set_baggage("tenant", "t"))
        await left.wait()
        assert kit.tasks.current_step() is None
        with kit.tasks.step("late"):
            assert baggage.get_baggage("tenant") == "t"
        assert baggage.get_baggage("tenant") == "t"
        assert current_span_id() == task.span_context.span_id
        otel_context.detach(token)

    with kit.tasks.task("g") as task:
        with task.step("early"):
            child = asyncio.create_task(late())
            await asyncio.sleep(0)
        left.set()
        await child
    assert kit.one("late").parent == task.span_context


async def test_a_span_of_others_that_is_current_is_left_alone(kit: Any) -> None:
    """Clearing up behind an ended step does not touch what another library made current."""
    left = asyncio.Event()
    lib = kit.provider.get_tracer("lib")

    async def late() -> None:
        with lib.start_as_current_span("theirs") as theirs:
            await left.wait()
            with kit.tasks.step("late"):
                pass
            assert current_span_id() == theirs.get_span_context().span_id

    with kit.tasks.task("g") as task:
        with task.step("early"):
            child = asyncio.create_task(late())
            await asyncio.sleep(0)
        left.set()
        await child
    assert kit.one("late").parent == task.span_context


def test_a_task_begun_where_an_ended_one_stayed_current_does_not_link_to_it(kit: Any) -> None:
    """The caller of a task is a span that is running, not what a closed generator left behind."""

    def stream() -> Iterator[int]:
        with kit.tasks.task("old", agent="old") as task, task.step():
            yield 1

    pieces = stream()
    next(pieces)
    thread = threading.Thread(target=pieces.close)
    thread.start()
    thread.join()
    assert current_span_id() != 0, "nothing cleared up here so far"
    kit.tasks.task("new", agent="new").end()
    new = kit.one("invoke_agent new")
    assert not new.links
    assert semconv.TASKHISTORY_TASK_PARENT_ID not in new.attributes
    assert current_span_id() == 0
