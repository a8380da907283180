# SPDX-License-Identifier: Apache-2.0
"""Tasks that were begun before: `key` and `resume`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.recording.sink import Earlier
from otel_taskhistory.recording.tracer import TaskTracer

TRACE, ROOT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def earlier(status: str, **other: Any) -> Earlier:
    """An earlier task of two attempts and seven steps."""
    facts = {"trace_id": TRACE, "root_span_id": ROOT, "attempts": 2, "last_step_index": 7}
    return Earlier(status=status, **{**facts, **other})


def attempt_of(span: Any) -> Any:
    """Which attempt a root span is."""
    return span.attributes[semconv.TASKHISTORY_TASK_ATTEMPT]


@pytest.mark.parametrize("how", ["resume", "key"])
def test_an_interrupted_task_goes_on_in_its_trace(kit: Any, told: Any, how: str) -> None:
    """A further attempt is a remote child of the first root, and steps are counted on."""
    name = TRACE if how == "resume" else "order-7"
    kit.sink.known[name] = earlier("interrupted")
    with kit.provider.get_tracer("web").start_as_current_span("request") as request:
        task = kit.tasks.task("g", agent="a", **{how: name})
    task.step("s").end()
    task.end()
    root = kit.one("invoke_agent a")
    assert task.id == TRACE
    assert f"{root.parent.span_id:016x}" == ROOT
    assert f"{root.context.trace_id:032x}" == TRACE
    assert root.parent.is_remote
    assert root.parent.trace_flags.sampled
    assert attempt_of(root) == 3
    assert [link.context for link in root.links] == [request.get_span_context()]
    assert root.attributes.get(semconv.TASKHISTORY_TASK_KEY) == (name if how == "key" else None)
    assert kit.one("s").attributes[semconv.TASKHISTORY_STEP_INDEX] == 8
    assert told() == []


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (None, "not in the history"),
        (earlier("running"), "still running"),
        (earlier("succeeded"), "has ended (succeeded)"),
        (earlier("failed"), "has ended (failed)"),
    ],
)
def test_any_other_task_is_not_resumed(kit: Any, told: Any, known: Any, why: str) -> None:
    """It is logged once why, and a new task begins."""
    if known is not None:
        kit.sink.known[TRACE] = known
    task = kit.tasks.task("g", resume=TRACE)
    task.step("s").end()
    task.end()
    (line,) = told()
    assert TRACE in line
    assert why in line
    assert task.id != TRACE
    assert kit.role("task").parent is None
    assert attempt_of(kit.role("task")) == 1
    assert kit.one("s").attributes[semconv.TASKHISTORY_STEP_INDEX] == 1


@pytest.mark.parametrize(
    "nonsense",
    [earlier("interrupted", trace_id="zz"), earlier("interrupted", root_span_id="0" * 16), "text"],
)
def test_a_history_that_answers_nonsense_costs_the_resumption_only(
    kit: Any, told: Any, nonsense: Any
) -> None:
    """The task is recorded as a new one, and what went wrong is counted and told."""
    kit.sink.known[TRACE] = nonsense
    kit.tasks.task("g", resume=TRACE).end()
    assert kit.role("task").parent is None
    assert len(told()) == 2


def test_a_new_key_begins_a_task(kit: Any, told: Any) -> None:
    """The key is on the span, for those who come later."""
    task = kit.tasks.task("g", key="order-7")
    task.end()
    assert kit.sink.asked == [{"task_id": None, "key": "order-7"}]
    assert kit.role("task").attributes[semconv.TASKHISTORY_TASK_KEY] == "order-7"
    assert told() == []


def test_the_same_key_gives_the_running_task(kit: Any) -> None:
    """While it runs here there is one handle; other keys and none have their own."""
    task = kit.tasks.task("g", key="k")
    kit.sink.known["k"] = earlier("running")
    assert kit.tasks.task("other words", key="k") is task
    assert kit.tasks.task("g", key="l") is not task
    assert kit.tasks.task("g") is not task
    task.end()
    assert kit.tasks.task("g", key="k") is not task


def test_a_running_task_of_a_key_ends_when_the_last_block_is_left(kit: Any, goes_on: Any) -> None:
    """A second caller of the same key does not end it under the first one's feet."""
    with kit.tasks.task("g", key="k", agent="a") as task:
        with goes_on(ValueError), kit.tasks.task("g", key="k") as again:
            assert again is task
            raise ValueError("x")
        assert not task.ended
        assert kit.tasks.current_task() is task
        with task.step("s"):
            pass
    span = kit.one("invoke_agent a")
    assert [event.name for event in span.events] == [semconv.EXCEPTION_EVENT]
    assert kit.status("invoke_agent a") == "succeeded"


def test_threads_that_ask_for_one_key_get_one_task(kit: Any) -> None:
    """Look-up and start are one: no second task begins between them."""
    ready = threading.Barrier(6)
    ask = kit.sink.earlier

    def slowly(**names: Any) -> Any:
        found = ask(**names)
        # Others that were let in by now would be asking as well.
        threading.Event().wait(0.01)
        return found

    kit.sink.earlier = slowly

    def begin() -> Any:
        ready.wait()
        return kit.tasks.task("g", key="k")

    with ThreadPoolExecutor(6) as pool:
        begun = [pool.submit(begin) for _ in range(6)]
        handles = {id(done.result()): done.result() for done in begun}
    (task,) = handles.values()
    task.end()
    assert len(kit.sink.asked) == 1


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_the_key_of_an_ended_task_gives_an_ended_handle(kit: Any, told: Any, status: str) -> None:
    """It has the ids of that task, records nothing, and that is told once."""
    kit.sink.known["k"] = earlier(status)
    with kit.tasks.task("outer") as outer:
        with kit.tasks.task("g", key="k") as task:
            assert task.ended
            assert (task.id, task.trace_id) == (TRACE, TRACE)
            assert kit.tasks.current_task() is None
            assert told() == []
            for _ in range(3):
                with task.step("lost") as step:
                    step.prompt("p")
                    step.decision("d")
                    step.screenshot(b"x")
                    with step.tool_call("t") as call:
                        call.result(1)
                    step.result("r")
            with kit.tasks.step("lost too"):
                # A span of another library is no child of a task that has ended.
                kit.provider.get_tracer("lib").start_span("theirs").end()
            task.result("r")
        assert kit.tasks.current_task() is outer
    assert kit.names == ["theirs", "invoke_agent"]
    assert kit.one("theirs").parent == outer.span_context
    assert sorted(line.split(" was ")[0] for line in told()) == ["Task.step", "a step"]
    assert kit.sink.checkpoints == []


def test_the_key_of_a_task_that_runs_elsewhere_gives_an_ended_handle(kit: Any, told: Any) -> None:
    """Whoever skips ended tasks does not do the work twice; the log says where it runs."""
    kit.sink.known["k"] = earlier("running")
    task = kit.tasks.task("g", key="k")
    assert task.ended
    assert task.id == TRACE
    (line,) = told()
    assert TRACE in line
    assert kit.spans == []


def test_a_key_works_within_the_process_without_a_history(kit: Any) -> None:
    """Nobody knows what was before, but the running task is known."""
    tasks = TaskTracer(kit.provider)
    task = tasks.task("g", key="k")
    assert tasks.task("g", key="k") is task
    task.end()
    assert not tasks.task("g", key="k").ended


def test_resume_comes_before_key(kit: Any) -> None:
    """Both given: the task by its id, with the key on the further attempt."""
    kit.sink.known[TRACE] = earlier("interrupted")
    kit.sink.known["k"] = earlier("succeeded")
    task = kit.tasks.task("g", resume=TRACE, key="k")
    task.end()
    assert attempt_of(kit.role("task")) == 3
    assert kit.role("task").attributes[semconv.TASKHISTORY_TASK_KEY] == "k"
