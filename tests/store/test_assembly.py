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
    """A trace is of an agent when an agent or a model is in it; a web request is not.

    Neither is a tool alone: a server that offers tools serves somebody else's agent.
    """
    assert planned(seen("a"), seen("b", "a")).tasks[0].kind == "other"
    assert planned(seen("a"), seen("b", "a", role="tool")).tasks[0].kind == "other"
    for role in ("model", "agent", "step"):
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


# --- one call, seen several times ---


def same(plan: Plan) -> dict[str, str]:
    """Letter of a hidden call → letter of the one that it points to."""
    return {chr(row): chr(other) for row, other in {**plan.same_call, **plan.same_tool}.items()}


def chat(name: str, parent: str | None, start: int, end: int | None, **said: Any) -> Seen:
    """A model span with its times."""
    return seen(name, parent, role="model", start=start, end=end, **said)


def test_two_spans_of_one_response_are_one_call() -> None:
    """Wherever they are in the task, if both were going on; the one that began first is shown."""
    ids = {"response_ids": frozenset({"r1"})}
    wrapper, client = chat("b", "a", 1, 9, **ids), chat("c", "a", 2, 8, **ids)
    plan = planned(seen("a", start=0, end=20), wrapper, client)
    assert (tasks(plan), same(plan), owners(plan)) == ({"a": "b"}, {"c": "b"}, {"b": "b", "c": "b"})
    deep = [seen("d", "a", role="agent", start=0), chat("e", "d", 2, 12, **ids)]
    assert same(planned(seen("a", start=0, end=20), wrapper, *deep)) == {"e": "b"}
    later = chat("c", "a", 10, 12, **ids)
    assert tasks(planned(seen("a", start=0, end=20), wrapper, later)) == {"a": "bc"}
    running = chat("b", "a", 1, None, **ids)
    assert tasks(planned(seen("a", start=0, end=None), running, later)) == {"a": "b"}


def test_three_views_of_one_call() -> None:
    """A framework's span around a client's, and a second client's beside it with the same id."""
    ids = {"response_ids": frozenset({"r1"})}
    plan = planned(
        seen("a", start=0, end=20),
        chat("b", "a", 1, 9),
        chat("c", "b", 3, 7, **ids),
        chat("d", "a", 2, 8, **ids),
    )
    assert tasks(plan) == {"a": "b"}
    assert same(plan) == {"c": "b", "d": "b"}


def test_clients_beside_their_wrappers() -> None:
    """Another instrumentation's call within its time, of the same model or tokens."""
    root = seen("a", start=0, end=40)
    told = {"model": "m", "tokens": (5, 2)}
    wrappers = [chat("b", "a", 1, 9, scope=1, **told), chat("c", "a", 3, 15, scope=1, **told)]
    clients = [chat("d", "a", 2, 8, scope=2, **told), chat("e", "a", 4, 14, scope=2, **told)]
    plan = planned(root, *wrappers, *clients)
    assert tasks(plan) == {"a": "bc"}
    assert same(plan) == {"d": "b", "e": "c"}
    for other in (
        {"scope": 1},  # two calls by one instrumentation, at the same time
        {"model": "other"},
        {"tokens": (6, 2)},
        {"end": 10},  # not within
        {"model": None, "tokens": (None, None)},  # nothing says so
    ):
        fields = {"start": 2, "end": 8, "scope": 2, **told, **other}
        one = seen("d", "a", role="model", **fields)
        assert tasks(planned(root, wrappers[0], one)) == {"a": "bd"}, other
    failed = {"status": "failed"}
    plan = planned(root, chat("b", "a", 1, 9, scope=1, **failed), chat("c", "a", 2, 8, **failed))
    assert same(plan) == {"c": "b"}


def test_responses_with_ids_are_not_guessed() -> None:
    """Two ids are two calls, however alike they are otherwise."""
    plan = planned(
        seen("a", start=0, end=40),
        chat("b", "a", 1, 9, scope=1, model="m", response_ids=frozenset({"r1"})),
        chat("c", "a", 2, 8, scope=2, model="m", response_ids=frozenset({"r2"})),
    )
    assert tasks(plan) == {"a": "bc"}


def test_a_tool_call_seen_by_agent_client_and_server() -> None:
    """One call while it is the same tool; the outermost is shown, all belong to its step."""
    spans = [
        seen("a", role="agent"),
        seen("b", "a", role="model", asked_for=frozenset({"x"})),
        seen("c", "a", role="model"),
        seen("d", "a", role="tool", tool="look", call_id="x"),
        seen("e", "d"),
        seen("f", "e", role="tool", tool="look"),
        seen("g", "f", role="tool", tool="look"),
    ]
    plan = planned(*spans)
    assert same(plan) == {"f": "d", "g": "d"}
    assert owners(plan) == {"b": "b", "c": "c", "d": "b", "f": "b", "g": "b"}


def test_tools_within_tools_are_calls_of_their_own() -> None:
    """Of another name, or begun by an agent within the tool."""
    inner = [seen("c", "b", role="agent"), seen("d", "c", role="tool", tool="look")]
    spans = [seen("a", role="agent"), seen("b", "a", role="tool", tool="look")]
    assert same(planned(*spans, *inner)) == {}
    assert same(planned(*spans, seen("c", "b", role="tool", tool="fetch"))) == {}


def test_attempts_at_a_model_call_are_one_step() -> None:
    """When the framework counts them; of each agent run by itself."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="agent"),
        seen("c", "b", role="model", asked_for=frozenset({"x"})),
        seen("d", "a", role="model"),
        seen("e", "b", role="model", call_attempt=2),
        seen("f", "b", role="model", call_attempt=3),
        seen("g", "b", role="model"),
    )
    assert tasks(plan) == {"a": "cdg"}
    assert owners(plan) == {"c": "c", "d": "d", "e": "c", "f": "c", "g": "g"}
    assert plan.retried[ord("c")].span_id == "f"
    alone = planned(seen("a"), seen("b", "a", role="model", call_attempt=2))
    assert tasks(alone) == {"a": "b"}


# --- what is late or missing ---


def test_a_pending_span_stands_for_the_one_it_announces() -> None:
    """With its id and its parent; when that has come, it is nothing any more."""
    announced = seen("p", "b", role="pending", announces="b", acts_as="agent", start=ord("b"))
    call = seen("c", "b", role="model")
    plan = planned(announced, call)
    assert tasks(plan) == {"b": "c"}
    assert plan.tasks[0].root is not None
    assert plan.tasks[0].root.end_ns is None
    plan = planned(announced, call, seen("b", role="agent"))
    assert tasks(plan) == {"b": "c"}
    assert plan.tree.gone == {ord("p")}
    for acts_as, steps in (("model", "b"), ("other", "")):
        one = seen("p", "b", role="pending", announces="b", announced_parent="a", acts_as=acts_as)
        assert tasks(planned(seen("a", role="agent"), one))["a"] in (steps, "b")


def test_of_two_announcements_one_stands() -> None:
    """And one that announces nothing is nothing."""
    plan = planned(
        seen("a", role="agent"),
        seen("p", "b", role="pending", announces="b", announced_parent="a", acts_as="model"),
        seen("q", "b", role="pending", announces="b", announced_parent="a", acts_as="model"),
        seen("r", "a", role="pending", acts_as="model"),
    )
    assert tasks(plan) == {"a": "b"}
    assert plan.tree.gone == {ord("q"), ord("r")}


def test_what_is_only_made_ready_is_no_task() -> None:
    """A trace in which an agent or a graph was built, and whatever is a part of that."""
    assert planned(seen("a", role="setup"), seen("b", "a"), seen("c", role="setup")).tasks == []
    for other in (seen("b"), seen("b", role="agent"), seen("b", "gone")):
        plan = planned(seen("a", role="setup"), other)
        assert len(plan.tasks) == 1
        assert plan.tasks[0].root is None or plan.tasks[0].root.span_id == "b"
    run = planned(seen("a", role="setup"), seen("b", "a", role="agent"))
    assert tasks(run) == {"a": "b"}


def test_spans_whose_parent_never_came_belong_to_the_run_they_fall_into() -> None:
    """And to its agent: a span in the middle that was never ended hides nothing else."""
    plan = planned(
        seen("a", role="agent", agent="ann", start=0, end=10),
        seen("b", role="agent", agent="bob", start=20, end=30),
        chat("c", "gone", 5, 6),
        chat("d", "lost", 25, 26),
        chat("e", "lost", 35, 36),
    )
    assert tasks(plan) == {"a": "ce", "b": "d"}
    assert [plan.agents[ord(letter)] for letter in "cde"] == ["ann", "bob", "ann"]


def test_what_lies_beside_a_run_within_its_time_is_its_own() -> None:
    """Where an instrumentation hangs an agent's work beside the agent's span."""
    spans = [
        seen("a", role="agent", agent="main", start=0, end=90),
        seen("b", "a", role="tool", tool="ask", start=10, end=50),
        seen("c", "b", role="agent", agent="geo", start=20, end=40),
        seen("d", "b", start=21, end=39),
        chat("e", "d", 22, 23),
        chat("f", "a", 60, 61),
        seen("g", "b", role="tool", tool="map", start=24, end=25),
    ]
    plan = planned(*spans)
    assert [plan.agents[ord(letter)] for letter in "efg"] == ["geo", "main", "geo"]
    assert owners(plan)["g"] == "e"
    unsure = planned(*spans, seen("h", "b", role="agent", agent="sea", start=19, end=45))
    assert unsure.agents[ord("e")] == "main"


def test_a_tool_belongs_to_the_run_it_is_in() -> None:
    """Also when another run of the same agent has asked its model since."""
    plan = planned(
        seen("a"),
        seen("b", "a", role="agent", agent="ann"),
        seen("c", "a", role="agent", agent="ann"),
        seen("d", "b", role="model"),
        seen("e", "c", role="model"),
        seen("f", "b", role="tool"),
        seen("g", "a", role="tool", agent="ann"),
    )
    found = owners(plan)
    assert (found["f"], found["g"]) == ("d", "e")


def test_steps_that_call_themselves_so() -> None:
    """Without a model call they are the steps, of nested agents too; with one they are not."""
    spans = [
        seen("a", role="agent", agent="main"),
        seen("b", "a", role="step"),
        seen("c", "b", role="agent", agent="geo"),
        seen("d", "c", role="step"),
        seen("e", "d", role="tool"),
        seen("f", "a", role="step"),
        seen("g", "f", role="tool"),
        seen("h", "a"),
    ]
    plan = planned(*spans)
    assert tasks(plan) == {"a": "bdf"}
    assert owners(plan) == {"e": "d", "g": "f"}
    assert [plan.agents.get(ord(letter)) for letter in "bdf"] == ["main", "geo", "main"]
    assert tasks(planned(*spans, seen("i", "f", role="model"))) == {"a": "i"}


def test_without_a_root_the_topmost_spans_are_steps() -> None:
    """The root may have been lost: what it began is there."""
    plan = planned(seen("b", "a"), seen("c", "b", role="tool"), seen("d", "a", agent="ann"))
    assert tasks(plan) == {None: "bd"}
    assert owners(plan) == {"c": "b"}


def test_a_step_that_holds_a_run_is_of_its_agent() -> None:
    """Where what lies right below the root is plumbing of the framework."""
    plan = planned(seen("a"), seen("b", "a"), seen("c", "b", role="agent", agent="ann"))
    assert tasks(plan) == {"a": "b"}
    assert plan.agents[ord("b")] == "ann"
