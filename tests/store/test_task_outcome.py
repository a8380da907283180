# SPDX-License-Identifier: Apache-2.0
"""How a task ended, weighed from its root and what is below it; rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory.store.assembly import assemble
from otel_taskhistory.store.task_outcome import failures_of, runs_of
from otel_taskhistory.store.tree import Seen
from tests.store.test_assembly import seen


def failed_by(*spans: Seen) -> str:
    """Letters of the spans that tell how the first task failed."""
    plan = assemble(spans)
    return "".join(span.span_id for span in failures_of(plan.tasks[0], plan.tree))


def bad(name: str, parent: str | None = None, **said: Any) -> Seen:
    """A span that failed."""
    return seen(name, parent, **{"status": "failed", "role": "agent", **said})


def test_a_root_that_failed_says_so() -> None:
    """Whatever is below it; those that failed below it tell more of the reason."""
    assert failed_by(bad("a")) == "a"
    assert failed_by(bad("a"), seen("b", "a", role="model")) == "a"
    assert failed_by(bad("a"), bad("b", "a"), bad("c", "b", role="model")) == "abc"
    assert failed_by(bad("a", status="cancelled")) == "a"


@pytest.mark.parametrize("role", ["agent", "other"])
def test_a_root_that_says_ok_though_the_run_raised(role: str) -> None:
    """Many frameworks set it so: the run right below it decides, however much is in between."""
    root = seen("a", role=role)
    assert failed_by(root, bad("b", "a")) == "b"
    assert failed_by(root, seen("b", "a"), seen("c", "b"), bad("d", "c")) == "d"
    assert failed_by(root, seen("b", "a", role="agent"), bad("c", "b", role="model")) == "c"


def test_a_failure_after_which_something_succeeded_was_handled() -> None:
    """A call that was made again, a fallback to another model or agent."""
    root = seen("a", role="agent")
    assert failed_by(root, bad("b", "a", role="model"), seen("c", "a", role="model")) == ""
    assert failed_by(root, seen("b", "a", role="model"), bad("c", "a", role="model")) == "c"
    assert failed_by(seen("a"), bad("b", "a"), seen("c", "a", role="agent")) == ""
    long = bad("b", "a", role="model", end=200)  # it began first, but was the last to end
    assert failed_by(root, long, seen("c", "a", role="model")) == "b"


def test_a_root_that_tells_a_result_has_succeeded() -> None:
    """It got that far, whatever failed on the way; likewise a run below a root that says OK."""
    assert failed_by(seen("a", role="agent", has_result=True), bad("b", "a", role="model")) == ""
    run = seen("b", "a", role="agent", has_result=True)
    assert failed_by(seen("a"), run, bad("c", "b", role="model")) == ""
    assert failed_by(bad("a", has_result=True)) == "a"


def test_tools_do_not_decide() -> None:
    """A model is told of them; nor does what an agent within a tool did."""
    root, call = seen("a", role="agent"), seen("b", "a", role="model")
    assert failed_by(root, call, bad("c", "a", role="tool")) == ""
    assert failed_by(root, call, seen("c", "a", role="tool"), bad("d", "c")) == ""


def test_steps_of_others_decide() -> None:
    """As those of a framework that records no model calls."""
    root = seen("a", role="agent")
    assert failed_by(root, bad("b", "a", role="step"), seen("c", "a", role="step")) == ""
    assert failed_by(root, seen("b", "a", role="step"), bad("c", "a", role="step")) == "c"


def test_what_runs_decides_nothing() -> None:
    """A root that runs or never came says nothing; what is still open below it neither."""
    assert failed_by(seen("a", role="agent", status="running", end=None), bad("b", "a")) == ""
    assert failed_by(bad("b", "gone")) == ""
    running = seen("c", "a", role="agent", status="running", end=None)
    assert failed_by(seen("a"), bad("b", "a"), running) == "b"


def test_a_plain_span_that_failed_decides_nothing() -> None:
    """A web request that an agent made says so by itself, and the agent went on or did not."""
    assert failed_by(seen("a", role="agent"), bad("b", "a", role="other")) == ""


def test_a_model_span_is_believed() -> None:
    """What its client saw below it (and tried again) was its business."""
    call = seen("b", "a", role="model")
    assert failed_by(seen("a", role="agent"), call, bad("c", "b", role="model")) == ""


def test_a_parent_that_never_came_hides_no_failure() -> None:
    """What names it counts as right below the root."""
    assert failed_by(seen("a", role="agent"), bad("b", "gone", role="model")) == "b"


def test_runs_that_no_tool_began() -> None:
    """The outermost of them speak for the task; those in tools do not."""
    plan = assemble(
        [
            seen("a"),
            seen("b", "a", role="agent"),
            seen("c", "b", role="agent"),
            seen("d", "c", role="tool"),
            seen("e", "d", role="agent"),
            seen("f", "a", role="agent"),
        ]
    )
    found = [(depth, span.span_id) for depth, span in runs_of(plan.tasks[0], plan.tree)]
    assert found == [(1, "b"), (2, "c"), (1, "f")]


def test_a_tool_call_that_was_cancelled_ends_the_run_that_waited_for_it() -> None:
    """Unlike one that failed, of which the model is told; but not when something came after it."""
    root = seen("a", role="agent")
    asked = seen("b", "a", role="model")
    cancelled = bad("c", "a", role="tool", status="cancelled")
    assert failed_by(root, asked, cancelled) == "c"
    assert failed_by(seen("z", role="other"), seen("a", "z", role="agent"), cancelled) == "c"
    assert failed_by(root, asked, bad("c", "a", role="tool")) == ""
    assert failed_by(root, asked, cancelled, seen("d", "a", role="model")) == ""
    assert failed_by(seen("a", role="agent", has_result=True), asked, cancelled) == ""
    within = bad("d", "c", role="tool", status="cancelled")
    assert failed_by(root, asked, seen("c", "a", role="tool"), within) == ""
