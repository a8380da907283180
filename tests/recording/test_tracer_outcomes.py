# SPDX-License-Identifier: Apache-2.0
"""How tasks, steps and tool calls end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import weakref
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_taskhistory import semconv


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def exception_events(span: Any) -> list[dict[str, Any]]:
    """The attributes of the span's `exception` events."""
    return [
        dict(event.attributes) for event in span.events if event.name == semconv.EXCEPTION_EVENT
    ]


def test_an_exception_fails_what_it_leaves_and_goes_on(kit: Any, goes_on: Any) -> None:
    """Type, message and stack trace are an `exception` event of the step and of the task."""
    with goes_on(ValueError), kit.tasks.task("g", agent="a") as task:
        with task.step("fine"):
            pass
        with task.step("s"):
            raise ValueError("bad page")
    for name in ("s", "invoke_agent a"):
        span = kit.one(name)
        assert kit.status(name) == "failed"
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "ValueError: bad page"
        assert span.attributes[semconv.ERROR_TYPE] == "ValueError"
        (event,) = exception_events(span)
        assert event[semconv.EXCEPTION_TYPE] == "ValueError"
        assert event[semconv.EXCEPTION_MESSAGE] == "bad page"
        assert 'raise ValueError("bad page")' in event[semconv.EXCEPTION_STACKTRACE]
    assert kit.status("fine") == "succeeded"


def test_an_exception_that_is_caught_inside_the_task_fails_the_step_only(kit: Any) -> None:
    """A step's outcome is its own."""
    with kit.tasks.task("g", agent="a") as task, pytest.raises(KeyError), task.step("s"):
        raise KeyError("k")
    assert (kit.status("s"), kit.status("invoke_agent a")) == ("failed", "succeeded")


@pytest.mark.parametrize(
    ("exception", "status"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (concurrent.futures.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (SystemExit(), "succeeded"),
        (SystemExit(0), "succeeded"),
        (SystemExit(False), "succeeded"),
        (SystemExit(2), "failed"),
        (SystemExit("no config"), "failed"),
        (StopIteration(), "failed"),
        (TimeoutError("late"), "failed"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "failed"),
    ],
    ids=repr,
)
def test_what_each_exception_means(kit: Any, exception: BaseException, status: str) -> None:
    """Cancelling ones and a good exit are no errors; all go on to the caller."""
    caught: BaseException | None = None
    try:
        with kit.tasks.task("g", agent="a"):
            raise exception
    except BaseException as error:
        caught = error
    assert caught is exception
    span = kit.one("invoke_agent a")
    assert kit.status("invoke_agent a") == status
    failed = status == "failed"
    assert (span.status.status_code is StatusCode.ERROR) == failed
    assert len(exception_events(span)) == failed
    assert (semconv.ERROR_TYPE in span.attributes) == failed
    assert (semconv.TASKHISTORY_STATUS_REASON in span.attributes) != failed


def test_the_reason_of_a_cancellation_is_kept(kit: Any) -> None:
    """What the exception or the agent says."""
    with pytest.raises(asyncio.CancelledError), kit.tasks.task("g", agent="a"):
        raise asyncio.CancelledError("shutting down")
    with kit.tasks.task("g", agent="b") as task:
        task.cancel("user pressed stop")
    with kit.tasks.task("g", agent="c") as task:
        task.cancel()
    reasons = [span.attributes.get(semconv.TASKHISTORY_STATUS_REASON) for span in kit.spans]
    assert reasons == [
        "asyncio.exceptions.CancelledError: shutting down",
        "user pressed stop",
        None,
    ]
    assert {span.attributes[semconv.TASKHISTORY_STATUS] for span in kit.spans} == {"cancelled"}


def test_a_task_can_fail_without_raising(kit: Any) -> None:
    """With a text or an exception; either is the error, the exception with its event."""
    for agent, error in (("a", "no table left"), ("b", LookupError("no table")), ("c", None)):
        task = kit.tasks.task("g", agent=agent)
        task.fail(error)
        assert not task.ended
        task.end()
    a, b, c = kit.spans
    assert {span.attributes[semconv.TASKHISTORY_STATUS] for span in kit.spans} == {"failed"}
    assert {span.status.status_code for span in kit.spans} == {StatusCode.ERROR}
    assert a.status.description == "no table left"
    assert semconv.ERROR_TYPE not in a.attributes
    assert not exception_events(a)
    assert b.attributes[semconv.ERROR_TYPE] == "LookupError"
    assert exception_events(b)[0][semconv.EXCEPTION_MESSAGE] == "no table"
    assert c.status.description is None


def test_what_the_agent_says_beats_the_exception_and_that_beats_the_status(
    kit: Any, goes_on: Any
) -> None:
    """In this order, whatever came first in time; the last word of the agent counts."""
    with goes_on(ValueError), kit.tasks.task("g", agent="said"):
        kit.tasks.current_task().cancel("given up")
        raise ValueError("x")
    with goes_on(KeyboardInterrupt), kit.tasks.task("g", agent="left") as task:
        task.span.set_status(StatusCode.ERROR, "by hand")
        raise KeyboardInterrupt
    with kit.tasks.task("g", agent="status") as task:
        task.span.set_status(StatusCode.ERROR, "by hand")
    with kit.tasks.task("g", agent="twice") as task:
        task.fail("first")
        task.cancel("second")
    statuses = [span.attributes[semconv.TASKHISTORY_STATUS] for span in kit.spans]
    assert statuses == ["cancelled", "cancelled", "failed", "cancelled"]
    assert kit.one("invoke_agent status").status.description == "by hand"
    assert len(exception_events(kit.one("invoke_agent said"))) == 1


def test_one_exception_is_one_event(kit: Any, goes_on: Any) -> None:
    """Told with `fail` and then raised, it is recorded once; another one is another event."""
    error = ValueError("x")
    with goes_on(ValueError), kit.tasks.task("g", agent="same") as task:
        task.fail(error)
        raise error
    with goes_on(KeyError), kit.tasks.task("g", agent="other") as task:
        task.fail(error)
        raise KeyError("y")
    assert len(exception_events(kit.one("invoke_agent same"))) == 1
    other = kit.one("invoke_agent other")
    assert len(exception_events(other)) == 2
    assert other.attributes[semconv.ERROR_TYPE] == "ValueError"


def test_no_exception_is_too_odd_to_record(kit: Any, told: Any) -> None:
    """One that cannot be shown, a huge one, a deep group, a long chain: the step fails by it."""
    deep: Exception = ValueError("core")
    for _ in range(500):
        deep = ExceptionGroup("g", [deep])
    chained = ValueError("last")
    link: BaseException = chained
    for number in range(500):
        link.__cause__ = KeyError(number)
        link = link.__cause__
    looped = ValueError("loop")
    looped.__context__ = KeyError("other")
    looped.__context__.__context__ = looped
    odd = [Unspeakable(), ValueError("x" * 10_000_000), deep, chained, looped, ValueError("\ud83e")]
    with kit.tasks.task("g") as task:
        for number, exception in enumerate(odd):
            with pytest.raises(type(exception)), task.step(str(number)):
                raise exception
    for number in range(len(odd)):
        assert kit.status(str(number)) == "failed"
        (event,) = exception_events(kit.one(str(number)))
        assert event[semconv.EXCEPTION_STACKTRACE]
    unspeakable = exception_events(kit.one("0"))[0]
    assert unspeakable[semconv.EXCEPTION_MESSAGE] == "<Unspeakable that cannot be shown>"
    assert unspeakable[semconv.EXCEPTION_TYPE].endswith("test_tracer_outcomes.Unspeakable")
    assert exception_events(kit.one("1"))[0][semconv.EXCEPTION_MESSAGE] == "x" * 10_000_000
    assert told() == []


def test_what_is_still_open_ends_with_its_task(kit: Any, told: Any) -> None:
    """Forgotten steps and tool calls end first, the deepest before all; told once."""
    task = kit.tasks.task("g", agent="a")
    step = task.step("s")
    step.tool_call("t")
    done = task.step("done")
    done.result("it worked")
    bad = task.step("bad")
    bad.fail("it did not")
    task.end()
    assert kit.names[-1] == "invoke_agent a"
    assert kit.names.index("execute_tool t") < kit.names.index("s")
    assert (kit.status("s"), kit.status("execute_tool t")) == ("cancelled", "cancelled")
    assert (kit.status("done"), kit.status("bad")) == ("succeeded", "failed")
    assert kit.status("invoke_agent a") == "succeeded"
    assert kit.one("s").attributes[semconv.TASKHISTORY_STATUS_REASON] == "task ended"
    tool = kit.one("execute_tool t")
    assert tool.attributes[semconv.TASKHISTORY_STATUS_REASON] == "step ended"
    assert len(told()) == 1


def test_a_step_whose_handle_was_dropped_ends_with_its_task(kit: Any) -> None:
    """The task knows its open steps, so that none stays open for ever."""
    task = kit.tasks.task("g")
    task.step("dropped")
    gc.collect()
    task.end()
    assert kit.names == ["dropped", "invoke_agent"]


def test_an_ended_handle_holds_nothing_of_what_was_recorded(kit: Any) -> None:
    """An agent may keep its handles; exceptions, prompts and children go."""

    class Marked(Exception):
        pass

    error = Marked("x")
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt("p" * 1000)
    step.fail(error)
    span, gone = weakref.ref(step.span), weakref.ref(error)
    step.end()
    kit.memory.clear()
    del error
    gc.collect()
    assert span() is None
    assert gone() is None
    assert step.id
    task.end()


def test_the_tracer_does_not_keep_tasks(kit: Any) -> None:
    """A task whose handles are gone is gone, keyed or not."""
    handles = [weakref.ref(kit.tasks.task("g", key=key)) for key in (None, "k")]
    gc.collect()
    assert [handle() for handle in handles] == [None, None]
