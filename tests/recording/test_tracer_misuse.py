# SPDX-License-Identifier: Apache-2.0
"""Nothing that goes wrong in recording reaches the agent, and nothing is lost in silence."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_taskhistory import semconv
from otel_taskhistory.recording import handle, handles, misuse
from otel_taskhistory.recording.tracer import TaskTracer


def test_a_handle_used_after_its_end_is_told_once_and_ignored(kit: Any, told: Any) -> None:
    """Whatever is called, and however often: one line for the task, counted each time."""
    task = kit.tasks.task("g", agent="a")
    step = task.step("s")
    call = step.tool_call("t")
    for ended in (call, step, task):
        ended.end()
    for _ in range(3):
        for ended in (call, step, task):
            ended.result("late")
            ended.fail("late")
            ended.cancel()
            ended.set_attribute("late", True)
        step.prompt("late")
        step.decision("late")
        assert step.screenshot(b"late").status == "not_stored"
        step.tool_call("late").end()
        task.step("late").end()
        with step:
            pass
    assert len(told()) == 1
    assert "used after its end" in told()[0]
    assert misuse.counters() == {"misuse.after_end": 3 * 18}
    assert kit.names == ["execute_tool t", "s", "invoke_agent a"]
    assert all("late" not in str(span.attributes) for span in kit.spans)
    assert kit.sink.checkpoints == []


def test_what_can_be_read_only_once_is_left_to_the_agent_and_told(kit: Any, told: Any) -> None:
    """One line says that a stream or iterator was not recorded, and what to pass instead."""

    async def stream() -> Any:
        yield "a piece"

    with kit.tasks.task("g") as task, task.step() as step:
        messages = iter([{"role": "user", "content": "hello"}])
        step.prompt(messages)
        step.decision(stream())
        with step.tool_call("t", map(str, [1])) as call:
            call.result(reversed([1]))
        assert list(messages) == [{"role": "user", "content": "hello"}]
    assert len(told()) == 1
    assert "the prompt is a list_iterator" in told()[0]
    assert "pass a list" in told()[0]
    assert misuse.counters()["misuse.read_once"] == 4


def test_a_second_end_is_told_once(kit: Any, told: Any) -> None:
    """Leaving the block of a handle that was ended in it is no second end."""
    with kit.tasks.task("g") as task, task.step() as step:
        step.end()
        task.end()
    assert told() == []
    task.end()
    step.end()
    assert len(told()) == 1
    assert misuse.counters() == {"misuse.second_end": 2}
    assert kit.names == ["step", "invoke_agent"]


def test_each_task_is_told_of_its_own_misuse_within_limits(
    kit: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in every task does not fill the log; after a while it is told again."""
    now = 1000.0
    monkeypatch.setattr(misuse.time, "monotonic", lambda: now)

    def misused() -> None:
        task = kit.tasks.task("g")
        task.end()
        task.result("late")

    for _ in range(misuse.LINES + 30):
        misused()
    assert len(told()) == misuse.LINES
    assert misuse.counters() == {"misuse.after_end": misuse.LINES + 30}
    now += misuse.SECONDS
    misused()
    assert len(told()) == misuse.LINES + 1


def test_a_step_outside_of_a_task_is_told_once(kit: Any, told: Any) -> None:
    """It and a tool call outside of a step are handles like any other that record nothing."""
    for _ in range(2):
        with kit.tasks.step("lost") as step:
            step.prompt("p")
            step.result("r")
            with kit.tasks.tool_call("t") as call:
                call.result(1)
        with kit.tasks.tool_call("t"):
            pass
    assert len(told()) == 2
    assert misuse.counters() == {"misuse.outside_task": 2, "misuse.outside_step": 2}
    assert kit.spans == []


def test_arguments_that_do_not_fit_are_told_and_ignored(kit: Any, told: Any) -> None:
    """A call with too few or unknown arguments does not raise into the agent."""
    with kit.tasks.task("g", agent="a") as task, task.step("s") as step:
        step.prompt()
        step.decision("d", colour="red")
        with task.step("x", "y"):
            pass
        with step.tool_call():
            pass
        with kit.tasks.task():
            pass
        step.decision("fine")
    assert kit.names == ["s", "invoke_agent a"]
    assert "fine" in kit.one("s").attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert misuse.counters() == {"misuse.bad_call": 5}
    assert any("Step.prompt() missing 1 required positional argument" in line for line in told())


@pytest.mark.parametrize("value", [object(), {1: object()}, ["x"], 3, float("nan"), b"\xff", None])
def test_values_of_any_type_are_taken_anywhere(kit: Any, value: Any) -> None:
    """Names, ids, models, usage, attributes: shown as text or left out, never raised."""
    task = kit.tasks.task(value, agent=value, conversation_id=value, key=value)
    step = task.step(value)
    step.prompt(value, model=value, system=value, tools=value)
    step.decision(value, usage=value, model=value, finish_reason=value)
    step.set_attribute("value", value)
    step.screenshot(value, caption=value)
    call = step.tool_call(value, value, call_id=value)
    call.result(value)
    call.cancel(value)
    step.fail(value)
    task.end()
    assert len(kit.spans) == 3
    assert not [kind for kind in misuse.counters() if kind.startswith("failure")]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"links": 5}, "bad_link"),
        ({"links": ["x"]}, "bad_link"),
        ({"links": None}, None),
        ({"attributes": 5}, "bad_attributes"),
        ({"attributes": "xyz"}, "bad_attributes"),
        ({"attributes": {None: 1}}, None),
    ],
)
def test_links_and_attributes_that_are_none_cost_no_task(kit: Any, given: Any, kind: Any) -> None:
    """They are told and left out; the task is recorded."""
    kit.tasks.task("g", **given).end()
    assert kit.names == ["invoke_agent"]
    assert misuse.counters() == ({f"misuse.{kind}": 1} if kind else {})


def test_a_failure_of_ours_is_counted_and_told_without_content(
    kit: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Type and place are in the log, the message is not; the agent and the step go on."""

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("the secret prompt")

    monkeypatch.setattr(handles, "convert_prompt", fail)
    with kit.tasks.task("g") as task, task.step("s") as step:
        step.prompt("p")
        step.decision("d")
    assert misuse.counters() == {"failure.Step.prompt": 1}
    (line,) = told()
    assert "Step.prompt (ValueError at test_tracer_misuse.py:" in line
    assert "secret" not in line
    assert semconv.GEN_AI_OUTPUT_MESSAGES in kit.one("s").attributes


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_recording_goes_through(
    kit: Any, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """Ctrl-C is for the agent, not for us to swallow; the spans end."""

    def interrupt(*_: Any, **__: Any) -> Any:
        raise kind

    monkeypatch.setattr(handles, "convert_prompt", interrupt)
    with pytest.raises(kind), kit.tasks.task("g") as task, task.step("s") as step:
        step.prompt("p")
    assert kit.names == ["s", "invoke_agent"]


def test_an_interrupt_while_a_span_ends_still_ends_it(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes between the decision to end and the end."""

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(handle.Handle, "_conclude", interrupt)
    task = kit.tasks.task("g")
    with pytest.raises(KeyboardInterrupt):
        task.end()
    assert kit.names == ["invoke_agent"]


def test_a_broken_sink_never_reaches_the_agent(kit: Any, told: Any) -> None:
    """A sink should not raise; one that does costs the checkpoints, not the spans."""
    kit.sink.broken = True
    with kit.tasks.task("g", key="k") as task, task.step("s") as step:
        step.prompt("p")
        step.decision("d")
    assert kit.status("s") == "succeeded"
    assert misuse.counters() == {"failure.sink.earlier": 1, "failure.sink.checkpoint": 2}
    assert not any("secret" in line for line in told())


@pytest.mark.parametrize("where", ["on_start", "on_end"])
def test_a_processor_that_raises_never_reaches_the_agent(kit: Any, where: str) -> None:
    """Another vendor's processor, in the middle of the start or the end of a span."""

    class Broken(SpanProcessor):
        pass

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError

    setattr(Broken, where, fail)
    kit.provider.add_span_processor(Broken())
    done = False
    with kit.tasks.task("g", agent="a") as task, task.step("s") as step:
        step.prompt("p")
        with step.tool_call("t") as call:
            call.result(1)
        done = True
    assert done
    if where == "on_start":
        assert misuse.counters() == {"failure.TaskTracer.task": 1}
    else:
        assert misuse.counters() == {"failure.Handle._leave": 3}
        assert kit.names == ["execute_tool t", "s", "invoke_agent a"]


def test_a_task_whose_start_failed_does_not_look_ended(kit: Any) -> None:
    """Agents skip tasks that have ended; one that could not be recorded is still to be done."""

    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError

    kit.provider.add_span_processor(Broken())
    task = kit.tasks.task("g", key="k")
    assert not task.ended
    task.step().end()


def test_a_log_handler_that_raises_never_reaches_the_agent(kit: Any) -> None:
    """Not even telling can fail the agent."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError

    broken = Broken()
    misuse.LOGGER.addHandler(broken)
    try:
        kit.tasks.step("outside")
    finally:
        misuse.LOGGER.removeHandler(broken)
    assert misuse.counters() == {"misuse.outside_task": 1, "failure.log": 1}


def test_no_lock_is_held_while_a_sink_is_called_or_a_span_ends(kit: Any) -> None:
    """A sink that waits for another thread, which uses the same handles, waits for no deadlock."""
    task = kit.tasks.task("g")
    step = task.step("s")
    reached: list[str] = []

    def other_thread(where: str) -> None:
        def use() -> None:
            task.set_attribute("a", 1)
            step.set_attribute("a", 1)
            task.step(f"beside {where}").end()
            reached.append(where)

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(10)

    class Waiting(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.name == "x":
                other_thread("start")

        def on_end(self, span: Any) -> None:
            if span.name == "x":
                other_thread("end")

    kit.provider.add_span_processor(Waiting())
    kit.sink.checkpoint = lambda *_: other_thread("checkpoint")
    step.prompt("p")
    task.step("x").end()
    assert reached == ["checkpoint", "start", "end"]
    task.end()


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs SIGALRM")
def test_a_signal_handler_may_record_in_the_midst_of_recording(kit: Any) -> None:
    """What it says of the same step is kept, and nothing waits for a lock of its own thread."""
    task = kit.tasks.task("g")
    fired: list[int] = []

    class Interrupting(tuple[str, ...]):
        """A value on whose way into the span, under its lock, the signal comes."""

        __slots__ = ()

        def __iter__(self) -> Any:
            if not fired:
                signal.raise_signal(signal.SIGALRM)
            return super().__iter__()

    def handler(*_: Any) -> None:
        fired.append(1)
        step.set_attribute("stopped by", "alarm")
        step.cancel("alarm")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        step = task.step("s")
        step.set_attribute("page", Interrupting(["a", "b"]))
    finally:
        signal.signal(signal.SIGALRM, before)
    task.end()
    span = kit.one("s")
    assert fired
    assert span.attributes["page"] == ("a", "b")
    assert span.attributes["stopped by"] == "alarm"
    assert kit.status("s") == "cancelled"


@pytest.mark.parametrize("kind", ["no SDK", "no-op provider", "sampled out"])
def test_what_is_not_recorded_costs_nothing(
    kit: Any,
    told: Any,
    goes_on: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    """No message is converted, no picture read, no sink called; what is current still works."""

    def must_not(*_: Any, **__: Any) -> Any:
        raise AssertionError

    for name in ("convert_prompt", "convert_decision", "dump_value"):
        monkeypatch.setattr(handles, name, must_not)
    monkeypatch.setattr(handles.pictures, "unstored", must_not)
    provider = {
        "no SDK": None,
        "no-op provider": trace.NoOpTracerProvider(),
        "sampled out": TracerProvider(sampler=ALWAYS_OFF),
    }[kind]
    tasks = TaskTracer(provider, exporter=kit.sink)
    with goes_on(ValueError), tasks.task("g") as task:
        assert tasks.current_task() is task
        with task.step("s") as step:
            assert tasks.current_step() is step
            step.prompt([{"role": "user", "content": "hi"}], model="m")
            step.decision({"role": "assistant"})
            assert step.screenshot(tmp_path / "missing").status == "not_stored"
            with tasks.tool_call("t", {"a": object()}) as call:
                call.result(object())
            step.result(object())
        assert step.ended
        task.set_attribute("a", 1)
        task.fail("x")
        raise ValueError("x")
    task.end()
    task.result("late")
    assert tasks.current_task() is None
    assert misuse.counters() == {}
    assert told() == []
    assert kit.sink.log == []
    assert kit.sink.pictures == []


def test_without_an_sdk_the_callers_span_context_stays_current(kit: Any) -> None:
    """A trace that passes through the agent is not cut by a tracer that does not record."""
    passing = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    with trace.use_span(passing), TaskTracer().task("g") as task, task.step():
        assert trace.get_current_span() is passing


def test_what_other_libraries_do_in_a_task_that_is_sampled_out_is_too(make_kit: Any) -> None:
    """The decision is the trace's."""
    from opentelemetry.sdk.trace.sampling import ParentBased

    kit = make_kit(sampler=ParentBased(ALWAYS_OFF))
    with kit.tasks.task("g") as task, task.step():
        span = kit.provider.get_tracer("lib").start_span("http")
        assert not span.is_recording()
        assert f"{span.get_span_context().trace_id:032x}" == task.trace_id


def test_a_tool_call_that_a_sampler_took_without_its_step_has_its_arguments(
    make_kit: Any,
) -> None:
    """A sampler of the agent's own may drop steps and keep tool calls."""
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

    class ToolsOnly(Sampler):
        def should_sample(self, parent: Any, trace_id: Any, name: str, *_: Any, **__: Any) -> Any:
            keep = name.startswith("execute_tool")
            return SamplingResult(Decision.RECORD_AND_SAMPLE if keep else Decision.DROP)

        def get_description(self) -> str:
            return "tools only"

    kit = make_kit(sampler=ToolsOnly())
    with kit.tasks.task("g") as task, task.step() as step, step.tool_call("t", {"a": 1}):
        pass
    (span,) = kit.spans
    assert span.attributes[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] == '{"a": 1}'
    assert span.parent == step.span_context


FORKING = """
import logging, os, sys, threading
logging.basicConfig(level=logging.WARNING, format="LOG %(message)s", stream=sys.stdout)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otel_taskhistory.recording.tracer import TaskTracer

memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
tasks = TaskTracer(provider)
task = tasks.task("parent's", agent="parent")
held, release = threading.Event(), threading.Event()

def hold():
    # The child must not wait for locks whose holder it has not got.
    with task._lock, step._lock, tasks._keyed:
        held.set()
        release.wait()

with task, task.step("s") as step:
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child:
        release.set()
        holder.join()
    else:
        step.prompt("p")
        step.result("r")
        step.set_attribute("a", 1)
        step.fail("x")
        with step.tool_call("t") as call:
            call.result(1)
        with task.step("t"):
            pass
        assert tasks.current_task() is None and tasks.current_step() is None
        with tasks.task("child's", agent="child", key="k") as own:
            assert tasks.current_task() is own
            with own.step("own"):
                pass
        step.end()
        task.end()
names = sorted(span.name for span in memory.get_finished_spans())
if child:
    os.waitpid(child, 0)
    print("PARENT", names, flush=True)
else:
    (root,) = (s for s in memory.get_finished_spans() if s.name == "invoke_agent child")
    assert root.attributes["taskhistory.task.parent_id"] == task.id
    print("CHILD", names, flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_handles_of_its_parent_alone() -> None:
    """Only the process that began a span ends it; the child's own tasks are recorded there."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        cwd=Path(handles.__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "PARENT ['invoke_agent parent', 's']" in lines
    assert "CHILD ['invoke_agent child', 'own']" in lines
    assert len([line for line in lines if line.startswith("LOG")]) == 1
    assert done.returncode == 0
