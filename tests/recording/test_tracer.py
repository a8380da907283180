# SPDX-License-Identifier: Apache-2.0
"""What spans a task, its steps and tool calls become."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags

from otel_taskhistory import semconv
from otel_taskhistory.recording.tracer import TaskTracer


def test_a_task_is_a_trace_and_its_steps_and_tool_calls_are_spans_below_it(kit: Any) -> None:
    """Roles, names, parents and attributes follow the GenAI conventions and ours."""
    with kit.tasks.task("Book a table", agent="desk-1", conversation_id="c-7") as task:
        with task.step("open site") as step:
            with step.tool_call("browser.click", {"selector": "#go"}, call_id="call_1") as call:
                call.result({"ok": True})
            step.result("site is open")
        task.result("table booked")

    assert kit.names == ["execute_tool browser.click", "open site", "invoke_agent desk-1"]
    root, one_step, tool = kit.role("task"), kit.role("step"), kit.role("tool_call")
    assert root.parent is None
    assert one_step.parent == root.context
    assert tool.parent == one_step.context
    assert {span.kind for span in kit.spans} == {SpanKind.INTERNAL}
    assert {span.status.status_code for span in kit.spans} == {StatusCode.UNSET}
    assert {span.instrumentation_scope.name for span in kit.spans} == {semconv.SCOPE}
    assert dict(root.attributes) == {
        "taskhistory.role": "task",
        "taskhistory.task.goal": "Book a table",
        "taskhistory.task.attempt": 1,
        "taskhistory.task.result": "table booked",
        "taskhistory.status": "succeeded",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "desk-1",
        "gen_ai.conversation.id": "c-7",
    }
    assert dict(one_step.attributes) == {
        "taskhistory.role": "step",
        "taskhistory.step.index": 1,
        "taskhistory.step.result": "site is open",
        "taskhistory.status": "succeeded",
        "gen_ai.agent.name": "desk-1",
        "gen_ai.conversation.id": "c-7",
    }
    assert dict(tool.attributes) == {
        "taskhistory.role": "tool_call",
        "taskhistory.status": "succeeded",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "browser.click",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": '{"selector": "#go"}',
        "gen_ai.tool.call.result": '{"ok": true}',
    }


def test_the_goal_is_never_the_name_of_the_span(kit: Any) -> None:
    """Names are for grouping: without an agent's name the operation's is all there is."""
    kit.tasks.task("Find the meaning of life").end()
    kit.tasks.task("x").step().end()
    assert kit.names == ["invoke_agent", "step"]


def test_handles_know_their_ids(kit: Any) -> None:
    """A task's id is its trace id, a step's and a tool call's their span ids, in hex."""
    with kit.tasks.task("g") as task, task.step("s") as step, step.tool_call("t") as call:
        context = task.span.get_span_context()
        assert (task.id, task.trace_id) == (f"{context.trace_id:032x}",) * 2
        assert step.id == f"{step.span.get_span_context().span_id:016x}"
        assert call.id == f"{call.span.get_span_context().span_id:016x}"
        assert step.trace_id == call.trace_id == task.id
        assert (call.step, step.task) == (step, task)
    assert task.id == f"{context.trace_id:032x}"
    assert task.span.get_span_context() == context


def test_a_handle_shows_what_it_is(kit: Any) -> None:
    """In a debugger: kind, id and whether it runs."""
    task = kit.tasks.task("g")
    assert repr(task) == f"<Task {task.id} running>"
    task.end()
    assert repr(task) == f"<Task {task.id} ended>"


def test_attributes_and_links_of_the_agent_are_kept(kit: Any) -> None:
    """Further attributes and links go onto the task's span; ours win where they meet."""
    other = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    attributes = {"shop": "north", semconv.TASKHISTORY_ROLE: "mine"}
    task = kit.tasks.task("g", attributes=attributes, links=[Link(other, {"why": "queue"})])
    step = task.step()
    step.set_attribute("page", 3)
    task.end()
    root = kit.role("task")
    assert root.attributes["shop"] == "north"
    assert [(link.context, dict(link.attributes)) for link in root.links] == [
        (other, {"why": "queue"})
    ]
    assert kit.role("step").attributes["page"] == 3


def test_a_value_that_is_no_text_is_kept_as_json(kit: Any) -> None:
    """A string stays as it is, anything else is JSON; None is a result too."""
    task = kit.tasks.task({"find": ["a", 1]})
    step = task.step()
    nothing, text = step.tool_call("f", "raw", call_id="1"), step.tool_call("g", None)
    nothing.result(None)
    text.result("")
    step.result([1, {"a": None}])
    text.end()
    nothing.end()
    step.end()
    task.end()
    assert kit.role("task").attributes[semconv.TASKHISTORY_TASK_GOAL] == '{"find": ["a", 1]}'
    assert kit.role("step").attributes[semconv.TASKHISTORY_STEP_RESULT] == '[1, {"a": null}]'
    f, g = kit.one("execute_tool f").attributes, kit.one("execute_tool g").attributes
    assert f[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] == "raw"
    assert f[semconv.GEN_AI_TOOL_CALL_RESULT] == "null"
    assert semconv.GEN_AI_TOOL_CALL_ARGUMENTS not in g
    assert g[semconv.GEN_AI_TOOL_CALL_RESULT] == ""


def test_what_has_no_exact_form_is_named_as_reduced(kit: Any, told: Any) -> None:
    """`taskhistory.reduced` lists the attributes; a result is told once, one said anew is exact."""
    task = kit.tasks.task("half \ud83e")
    step = task.step()
    call = step.tool_call("f", {"x": "\ud83e"})
    call.result(object())
    call.result(object())
    step.result("\ud83e")
    step.result("whole")
    task.end()
    goal, arguments = semconv.TASKHISTORY_TASK_GOAL, semconv.GEN_AI_TOOL_CALL_ARGUMENTS
    assert kit.role("task").attributes[semconv.TASKHISTORY_REDUCED] == (goal,)
    assert kit.role("step").attributes[semconv.TASKHISTORY_REDUCED] == ()
    assert set(kit.role("tool_call").attributes[semconv.TASKHISTORY_REDUCED]) == {
        arguments,
        semconv.GEN_AI_TOOL_CALL_RESULT,
    }
    assert len([line for line in told() if "no exact text" in line]) == 1


def test_steps_are_numbered_in_the_order_of_their_start(kit: Any) -> None:
    """From 1; a number the agent gives is taken, and counting goes on after the highest."""
    task = kit.tasks.task("g")
    for index in (None, None, 10, None, 3, 0, None):
        task.step("s", index=index).end()
    task.end()
    indexes = [span.attributes[semconv.TASKHISTORY_STEP_INDEX] for span in kit.spans[:-1]]
    assert indexes == [1, 2, 10, 11, 3, 0, 12]


@pytest.mark.parametrize("index", ["7", 1.5, True, 2**63, object()])
def test_an_index_that_is_no_integer_is_replaced(kit: Any, told: Any, index: Any) -> None:
    """The step is numbered as if none was given, and that is told."""
    task = kit.tasks.task("g")
    task.step(index=index).end()
    task.end()
    assert kit.role("step").attributes[semconv.TASKHISTORY_STEP_INDEX] == 1
    assert len(told()) == 1


def test_two_tasks_begun_under_one_active_span_are_two_traces_linked_to_the_caller(
    kit: Any,
) -> None:
    """A task is never a child of the caller's span, which it links to."""
    with kit.provider.get_tracer("web").start_as_current_span("request") as request:
        caller = request.get_span_context()
        with kit.tasks.task("one", agent="a") as one:
            pass
        two = kit.tasks.task("two", agent="b")
        two.end()
    assert len({one.trace_id, two.trace_id, f"{caller.trace_id:032x}"}) == 3
    for name in ("invoke_agent a", "invoke_agent b"):
        span = kit.one(name)
        assert span.parent is None
        assert [link.context for link in span.links] == [caller]
        assert semconv.TASKHISTORY_TASK_PARENT_ID not in span.attributes


def test_a_task_within_a_task_knows_it(kit: Any) -> None:
    """Its trace is its own; it links to the step it was begun in and names the outer task."""
    with kit.tasks.task("outer", agent="o") as outer, outer.step("s") as step:
        caller = step.span.get_span_context()
        with kit.tasks.task("inner", agent="i") as inner:
            assert kit.tasks.current_task() is inner
        with kit.provider.get_tracer("lib").start_as_current_span("plan") as plan:
            below = plan.get_span_context()
            kit.tasks.task("deep", agent="d").end()
    one, deep = kit.one("invoke_agent i"), kit.one("invoke_agent d")
    assert inner.trace_id != outer.trace_id
    assert [link.context for link in one.links] == [caller]
    assert one.attributes[semconv.TASKHISTORY_TASK_PARENT_ID] == outer.id
    assert [link.context for link in deep.links] == [below]
    assert deep.attributes[semconv.TASKHISTORY_TASK_PARENT_ID] == outer.id


def test_a_caller_of_another_trace_is_no_parent_task(kit: Any) -> None:
    """The parent task is the one that the caller's span belongs to, not one that merely runs."""
    with kit.tasks.task("outer"):
        elsewhere = kit.provider.get_tracer("web").start_span("request", otel_context.Context())
        with trace.use_span(elsewhere):
            kit.tasks.task("inner", agent="i").end()
    inner = kit.one("invoke_agent i")
    assert [link.context for link in inner.links] == [elsewhere.get_span_context()]
    assert semconv.TASKHISTORY_TASK_PARENT_ID not in inner.attributes


def test_baggage_reaches_the_task(make_kit: Any) -> None:
    """Processors see the caller's baggage at the start of a task, though not its span."""
    kit = make_kit()
    seen = []

    class Baggage(type(kit.provider._active_span_processor._span_processors[0])):  # type: ignore[misc]
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            seen.append((baggage.get_baggage("tenant", parent_context), span.parent))

    kit.provider.add_span_processor(Baggage(kit.memory))
    token = otel_context.attach(baggage.set_baggage("tenant", "t1"))
    try:
        kit.tasks.task("g").end()
    finally:
        otel_context.detach(token)
    assert seen == [("t1", None)]


def test_spans_of_other_instrumentations_nest_below_the_current_handle(kit: Any) -> None:
    """`with` makes the span current, and what was current before is current again."""
    tracer = kit.provider.get_tracer("http")
    with kit.tasks.task("g") as task:
        with task.step("s") as step:
            tracer.start_span("in step").end()
            with step.tool_call("t") as call:
                tracer.start_span("in tool").end()
        tracer.start_span("in task").end()
    tracer.start_span("outside").end()
    assert kit.one("in step").parent == step.span_context
    assert kit.one("in tool").parent == call.span_context
    assert kit.one("in task").parent == task.span_context
    assert kit.one("outside").parent is None


def test_parents_are_explicit(kit: Any) -> None:
    """A step begun where another span is current is a step of its task all the same."""
    task = kit.tasks.task("g")
    with kit.provider.get_tracer("lib").start_as_current_span("other"):
        step = task.step("s")
        step.tool_call("t").end()
        step.end()
    task.end()
    assert kit.one("s").parent == task.span_context
    assert kit.one("execute_tool t").parent == step.span_context


def test_parallel_tool_calls_have_each_their_own_time_and_outcome(kit: Any) -> None:
    """Several are open at once and end in any order."""
    task = kit.tasks.task("g")
    step = task.step()
    first, second = step.tool_call("a", [1], call_id="1"), step.tool_call("b", [2], call_id="2")
    second.fail("no such page")
    second.end()
    first.result("ok")
    first.end()
    task.end()
    a, b = kit.one("execute_tool a"), kit.one("execute_tool b")
    assert a.start_time <= b.start_time <= b.end_time <= a.end_time
    assert (kit.status("execute_tool a"), kit.status("execute_tool b")) == ("succeeded", "failed")
    assert a.parent == b.parent == step.span_context


def test_the_shortcuts_of_the_tracer_use_what_is_current(kit: Any) -> None:
    """`tasks.step` is a step of the current task, `tasks.tool_call` one of the current step."""
    with kit.tasks.task("g") as task, kit.tasks.step("s", index=4) as step:
        assert (kit.tasks.current_task(), kit.tasks.current_step()) == (task, step)
        with kit.tasks.tool_call("t", {"a": 1}, call_id="c"):
            assert kit.tasks.current_step() is step
    tool = kit.role("tool_call")
    assert kit.one("s").attributes[semconv.TASKHISTORY_STEP_INDEX] == 4
    assert tool.parent == kit.one("s").context
    assert tool.attributes[semconv.GEN_AI_TOOL_CALL_ID] == "c"


def test_identity_survives_the_attribute_limit_of_a_foreign_provider(make_kit: Any) -> None:
    """The SDK drops the oldest attributes; goal, role and prompt are there in the end."""
    from opentelemetry.sdk.trace import SpanLimits

    kit = make_kit(span_limits=SpanLimits(max_span_attributes=20))
    with kit.tasks.task("the goal", agent="a") as task, task.step("s") as step:
        step.prompt("the prompt", model="m")
        for number in range(50):
            step.set_attribute(f"k{number}", number)
            task.set_attribute(f"k{number}", number)
    root, one_step = kit.one("invoke_agent a"), kit.one("s")
    assert root.attributes[semconv.TASKHISTORY_TASK_GOAL] == "the goal"
    assert root.attributes[semconv.TASKHISTORY_STATUS] == "succeeded"
    assert one_step.attributes[semconv.TASKHISTORY_STEP_INDEX] == 1
    assert "the prompt" in one_step.attributes[semconv.GEN_AI_INPUT_MESSAGES]
    assert one_step.attributes[semconv.TASKHISTORY_STATUS] == "succeeded"
    assert root.dropped_attributes > 0


def test_the_global_provider_is_used_also_when_it_is_set_later(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracer made at import time records once the program has set up its provider."""
    tasks = TaskTracer()
    tasks.task("too early", agent="a").end()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", kit.provider)
    tasks.task("in time", agent="b").end()
    assert kit.names == ["invoke_agent b"]


def test_a_provider_that_is_none_is_refused_at_set_up() -> None:
    """Passing something else is found out where the program is set up, not lost in silence."""
    with pytest.raises(TypeError, match="tracer_provider must be a TracerProvider, not str"):
        TaskTracer("sqlite")  # type: ignore[arg-type]
