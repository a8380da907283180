# SPDX-License-Identifier: Apache-2.0
"""What each prompt added to the one before it, and what the agent took out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from otel_taskhistory.history import PromptChange, PromptMessage, TaskHistory
from otel_taskhistory.store.changes import prompt_changes
from tests.recorded import recording

Prompt = str | Sequence[str]


def said(message: PromptMessage) -> tuple[int, str]:
    """Position and text of a message."""
    try:
        return message.position, json.loads(message.text)["parts"][0]["content"]
    except ValueError:
        return message.position, message.text


@pytest.fixture
def changes(tmp_path: Path) -> Callable[..., list[PromptChange]]:
    """Records a task that sends these prompts, one a step; returns what changed in each."""

    def record(*prompts: Prompt) -> list[PromptChange]:
        with recording(tmp_path) as tasks, tasks.task("talk") as task:
            for prompt in prompts:
                with task.step("say") as step:
                    texts = [{"role": "user", "content": text} for text in prompt]
                    step.prompt(prompt if isinstance(prompt, str) else texts)
                    step.decision("yes")
        with TaskHistory(tmp_path) as history:
            steps = history.steps("latest")
            found = history.prompt_changes("latest", {step.step_id for step in steps})
            return [change for step in steps for change in found[step.step_id]]

    return record


def test_a_growing_conversation_shows_what_was_added(
    changes: Callable[..., list[PromptChange]],
) -> None:
    """The first prompt is new as a whole, each later one its last messages."""
    first, second, third = changes(list("abc"), list("abcde"), list("abcdef"))
    assert (first.first, [said(m) for m in first.new]) == (True, [(1, "a"), (2, "b"), (3, "c")])
    assert (second.first, second.total, second.removed) == (False, 5, ())
    assert [said(m) for m in second.new] == [(4, "d"), (5, "e")]
    assert [said(m) for m in third.new] == [(6, "f")]


def test_a_trimmed_conversation_shows_what_is_gone(
    changes: Callable[..., list[PromptChange]],
) -> None:
    """Messages left out in the middle are removed ones; those after them are not new."""
    _, change = changes(list("sabcdef"), list("sdefg"))
    assert [said(m) for m in change.removed] == [(2, "a"), (3, "b"), (4, "c")]
    assert [said(m) for m in change.new] == [(5, "g")]
    assert change.total == 5


def test_an_edited_message_is_removed_and_new(
    changes: Callable[..., list[PromptChange]],
) -> None:
    """At its place in the old prompt and in the new one."""
    _, change = changes(list("abc"), list("aXc"))
    assert [said(m) for m in change.removed] == [(2, "b")]
    assert [said(m) for m in change.new] == [(2, "X")]


def test_the_same_prompt_again_is_unchanged(changes: Callable[..., list[PromptChange]]) -> None:
    """As a retry sends it."""
    _, change = changes(list("abc"), list("abc"))
    assert (change.new, change.removed, change.total) == ((), (), 3)


def test_a_prompt_that_shares_nothing_replaces_all(
    changes: Callable[..., list[PromptChange]],
) -> None:
    """Everything of the one before is removed, everything is new."""
    _, change = changes(list("abc"), list("xy"))
    assert [said(m) for m in change.removed] == [(1, "a"), (2, "b"), (3, "c")]
    assert [said(m) for m in change.new] == [(1, "x"), (2, "y")]


def test_plain_texts_are_new_unless_equal(changes: Callable[..., list[PromptChange]]) -> None:
    """A text has no messages: it is one."""
    # A str here is sent as a plain prompt; sequences of letters above are lists of messages.
    first, second, third = changes(
        *("the same text " * 40, "the same text " * 40, "another text " * 40)
    )
    assert [said(m) for m in first.new] == [(1, "the same text " * 40)]
    assert (second.new, second.removed) == ((), ())
    assert [said(m) for m in third.new] == [(1, "another text " * 40)]
    assert [said(m) for m in third.removed] == [(1, "the same text " * 40)]


def test_agents_that_take_turns_are_each_compared_with_themselves(
    changes: Callable[..., list[PromptChange]],
) -> None:
    """Two conversations within one task do not look like one that is replaced all the time."""
    *_, third, fourth = changes(list("abc"), list("xyz"), list("abcd"), list("xyzw"))
    assert ([said(m) for m in third.new], third.removed) == ([(4, "d")], ())
    assert ([said(m) for m in fourth.new], fourth.removed) == ([(4, "w")], ())


def test_a_step_costs_the_same_however_long_its_task_is(tmp_path: Path) -> None:
    """Only the prompts of a few steps before it are looked at."""
    costs = []
    for number, steps in enumerate((20, 200)):
        directory = tmp_path / str(number)
        with recording(directory) as tasks, tasks.task("talk") as task:
            for turn in range(steps):
                with task.step("say") as step:
                    step.prompt([{"role": "user", "content": f"{n}"} for n in range(turn + 1)])
        with TaskHistory(directory) as history:
            last = history.steps(task.id, limit=1_000, without=("prompt", "decision"))[-1]
            work = 0

            def count() -> int:
                nonlocal work
                work += 1
                return 0

            def look(
                connection: sqlite3.Connection, step_id: str = last.step_id, total: int = steps
            ) -> None:
                connection.set_progress_handler(count, 20)
                try:
                    (change,) = prompt_changes(connection, task.id, {step_id})[step_id]
                finally:
                    connection.set_progress_handler(None, 0)
                assert (len(change.new), change.total, change.first) == (1, total, False)

            history.read(look)
            costs.append(work)
    assert costs[0] > 0
    assert costs[1] <= costs[0] + 20


def test_steps_may_be_asked_for_in_any_selection(tmp_path: Path) -> None:
    """One alone, some with others between, all: each has the same changes; an unknown one none."""
    with recording(tmp_path) as tasks, tasks.task("talk") as task:
        for turn in range(25):
            with task.step("say") as step:
                step.prompt([{"role": "user", "content": f"{n}"} for n in range(turn + 1)])
    with TaskHistory(tmp_path) as history:
        ids = [step.step_id for step in history.steps(task.id)]
        everything = history.prompt_changes(task.id, ids)
        assert [everything[own][0].first for own in ids] == [True] + [False] * 24
        for some in (ids[3:4], ids[2:20:9], ids[-1:]):
            found = history.prompt_changes(task.id, some)
            assert found == {own: everything[own] for own in some}
        assert history.prompt_changes(task.id, ["f" * 16]) == {}
