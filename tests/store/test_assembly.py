# SPDX-License-Identifier: Apache-2.0
"""Which spans are tasks, steps and whose tool calls, rule by rule."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from otel_taskhistory.store.assembly import Plan, Seen, assemble


def seen(name: str, parent: str | None = None, **said: Any) -> Seen:
    """A span called by a letter; it starts at its letter's place unless told."""
    place = ord(name[0])
    start = said.pop("start", place)
    return Seen(
        row=place,
        span_id=name,
        parent_span_id=parent,
        start_ns=start,
        end_ns=said.pop("end", start + 1),
        role=said.pop("role", "other"),
        **said,
    )


def tasks(plan: Plan) -> dict[str | None, str]:
    """Root → letters of the steps of each task."""
    return {
        task.root.span_id if task.root else None: "".join(step.span_id for step in task.steps)
        for task in plan.tasks
    }


def owners(plan: Plan) -> dict[str, str]:
    """Letter of a model or tool span → letter of the step it belongs to."""
    return {chr(row): step.span_id for row, step in plan.step_of.items()}


def planned(*spans: Seen) -> Plan:
    """The plan, which is the same in any order."""
    plan = assemble(spans)
    for order in itertools.islice(itertools.permutations(spans), 0, 720, 7):
        other = assemble(order)
        assert (tasks(other), owners(other)) == (tasks(plan), owners(plan))
        assert (other.same_call, other.nested, other.agents) == (
            plan.same_call,
            plan.nested,
            plan.agents,
        )
    return plan


def test_a_task_is_the_first_root() -> None:
    """Spans without a known parent belong to it."""
    plan = planned(seen("b"), seen("c", "b", role="model"), seen("d", "gone", role="model"))
    assert tasks(plan) == {"b": "cd"}


def test_a_root_may_have_its_parent_in_another_process() -> None:
    """The local root of a request from elsewhere is the task; once the parent comes, it is not."""
    local = seen("c", "b", role="agent", parent_remote=True)
    model = seen("d", "c", role="model")
    assert tasks(planned(local, model)) == {"c": "d"}
    assert tasks(planned(seen("b"), local, model)) == {"b": "d"}
    unknown = seen("c", "b", role="agent")
    assert tasks(planned(unknown, model)) == {None: "d"}


def test_a_step_of_ours_is_no_root() -> None:
    """Whatever it says of its parent: its task has not come yet, or never will."""
    for parent, remote in ((None, False), ("a", False), ("a", True)):
        step = seen("b", parent, role="step", own=True, parent_remote=remote)
        assert tasks(planned(step, seen("c", "b", role="model"))) == {None: "b"}


def test_a_further_root_that_is_an_agent_run_is_a_task() -> None:
    """So is one that begins after the first has ended; any other belongs to the first."""
    first = seen("b", end=ord("f"))
    assert tasks(planned(first, seen("c"), seen("d", "c", role="model"))) == {"b": "d"}
    assert tasks(planned(first, seen("c", role="agent"), seen("d", "c", role="model"))) == {
        "b": "",
        "c": "d",
    }
    assert tasks(planned(first, seen("g"), seen("h", "g", role="model"))) == {"b": "", "g": "h"}
    running = seen("b", end=None)
    assert tasks(planned(running, seen("g"), seen("h", "g", role="model"))) == {"b": "h"}


def test_attempts_are_one_task() -> None:
    """A further attempt belongs to the task of its trace, also when the first root is gone."""
    again = seen("c", "b", role="task", own=True, attempt=2, parent_remote=True)
    step = seen("d", "c", role="step", own=True, step_index=1)
    for spans in ((again, step), (seen("b", role="task", own=True), again, step)):
        plan = planned(*spans)
        (task,) = plan.tasks
        assert [step.span_id for step in task.steps] == ["d"]
        assert task.attempts[-1].span_id == "c"
        assert plan.attempts == {ord("d"): 2}


def test_a_second_task_of_ours_in_a_trace_is_one_of_its_own() -> None:
    """Trace ids may be used again."""
    plan = planned(seen("b", role="task", own=True), seen("g", role="task", own=True))
    assert tasks(plan) == {"b": "", "g": ""}


def test_each_model_call_opens_a_step() -> None:
    """In the order of their start; a call within a call is the same one."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="model"),
        seen("c", "b", role="model"),
        seen("d", "b"),
        seen("e", "d", role="model"),
        seen("f", "a", role="model"),
    )
    assert tasks(plan) == {"a": "bf"}
    assert owners(plan) == {"b": "b", "c": "b", "e": "b", "f": "f"}
    assert plan.same_call == {ord("c"): ord("b"), ord("e"): ord("b")}


def test_a_call_that_began_before_its_outer_one() -> None:
    """Clocks differ between processes: the tree says what is within what."""
    plan = planned(seen("a"), seen("b", "c", role="model"), seen("c", "a", role="model"))
    assert tasks(plan) == {"a": "c"}
    assert owners(plan) == {"b": "c", "c": "c"}


@pytest.mark.parametrize("between", ["tool", "agent"])
def test_an_agent_within_a_model_span_asks_for_itself(between: str) -> None:
    """Some frameworks run tools within the span of the call that asked for them."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="model"),
        seen("c", "b", role=between),
        seen("d", "c", role="model"),
    )
    assert tasks(plan) == {"a": "bd"}
    assert plan.same_call == {}


def test_below_a_step_of_ours_nothing_opens_a_step() -> None:
    """Model and tool spans belong to it, at any depth; an agent's calls within it are nested."""
    plan = planned(
        seen("a", role="task", own=True),
        seen("b", "a", role="step", own=True, step_index=1),
        seen("c", "b", role="model"),
        seen("d", "b", role="tool"),
        seen("e", "d", role="agent"),
        seen("f", "e", role="model"),
        seen("g", "e", role="tool"),
    )
    assert tasks(plan) == {"a": "b"}
    assert owners(plan) == dict.fromkeys("cdfg", "b")
    assert plan.nested == {ord("f")}


def test_a_tool_belongs_to_who_asked_for_it() -> None:
    """By call id first, whatever came in between; the latest that began before it, if several."""
    spans = [
        seen("a"),
        seen("b", "a", role="model", asked_for=frozenset({"x"})),
        seen("c", "a", role="model", asked_for=frozenset({"x", "y"})),
        seen("d", "a", role="model"),
        seen("e", "a", role="tool", call_id="x"),
        seen("f", "a", role="tool", call_id="y"),
        seen("g", "a", role="tool", call_id="z"),
    ]
    found = owners(planned(*spans))
    assert {name: found[name] for name in "efg"} == {"e": "c", "f": "c", "g": "d"}
    late = seen("e", "a", role="tool", call_id="x", start=0)
    assert owners(planned(*spans[:3], late))["e"] == "c"


def test_what_a_twin_was_asked_for_counts_for_its_call() -> None:
    """Only one of the instrumentations that see a call may record its decision."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="model"),
        seen("c", "b", role="model", asked_for=frozenset({"x"})),
        seen("d", "a", role="model"),
        seen("e", "a", role="tool", call_id="x"),
    )
    assert owners(plan)["e"] == "b"


def test_a_tool_belongs_to_the_latest_call_of_its_agent() -> None:
    """Without a call id; without a call of its agent, to the latest of any."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="agent", agent="ann"),
        seen("c", "b", role="model"),
        seen("d", "a", role="agent", agent="bob"),
        seen("e", "d", role="model"),
        seen("f", "b", role="tool"),
        seen("g", "a", role="tool"),
    )
    assert plan.agents[ord("c")] == "ann"
    found = owners(plan)
    assert (found["f"], found["g"]) == ("c", "e")


def test_a_tool_before_any_call_has_no_step() -> None:
    """It is kept, and belongs to the task."""
    assert owners(
        planned(seen("a"), seen("b", "a", role="tool"), seen("c", "a", role="model"))
    ) == {"c": "c"}


def test_without_model_calls_the_children_of_the_root_are_steps() -> None:
    """What is deeper belongs to them; they may be tool calls themselves."""
    plan = planned(
        seen("a"),
        seen("b", "a"),
        seen("c", "b", role="tool"),
        seen("d", "a", role="tool"),
        seen("e", "gone"),
    )
    assert tasks(plan) == {"a": "bd"}
    assert owners(plan) == {"c": "b", "d": "d"}


def test_a_task_of_ours_has_only_the_steps_it_has_begun() -> None:
    """Before its first step, a web request below it is none."""
    assert tasks(planned(seen("a", role="task", own=True), seen("b", "a"))) == {"a": ""}


def test_kinds() -> None:
    """A trace is of an agent when anything in it is; a web request is not."""
    assert planned(seen("a"), seen("b", "a")).tasks[0].kind == "other"
    for role in ("model", "tool", "agent"):
        assert planned(seen("a"), seen("b", "a", role=role)).tasks[0].kind == "agent"


def test_circles_and_long_chains_end() -> None:
    """Parents that form a circle, a span that is its own, and 20,000 spans in a row."""
    plan = planned(
        seen("a", "a", role="model"),
        seen("b", "c", role="model"),
        seen("c", "b", role="model"),
        seen("d", "c", role="tool"),
    )
    assert [len(task.spans) for task in plan.tasks] == [4]
    chain = [
        Seen(n, f"{n:06}", f"{n - 1:06}" if n else None, n, n, "model" if n == 9 else "other")
        for n in range(20_000)
    ]
    assert [step.row for step in assemble(reversed(chain)).tasks[0].steps] == [9]
