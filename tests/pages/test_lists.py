# SPDX-License-Identifier: Apache-2.0
"""The list of tasks and the list of steps: filters, totals, parts in either direction."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.pages import (
    Links,
    changes,
    film_fragment,
    problem_page,
    steps_fragment,
    task_list_page,
    task_page,
)
from otel_taskhistory.pages.single import single_page
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.store.overview.steps import step_list, steps_around
from tests.pages.conftest import FAILED, STEPS, Recorded
from tests.recorded import recording

LINKS = Links()


def ids(page: str) -> list[str]:
    """The tasks of a list."""
    return re.findall(r'tasks/([0-9a-f]{32})" class="goal"', page)


def test_the_list_has_every_agent_task_newest_first(recorded: Recorded) -> None:
    """Without filters all tasks are there, with outcome as a word, steps, tokens and a picture."""
    page = task_list_page(recorded.history(), {}, LINKS)
    assert ids(page) == [recorded.other, recorded.good, recorded.booking]
    assert "failed</span>" in page
    assert "3 tasks" in page
    assert "the confirmation never came" in page
    assert page.count('class="thumb" src="/-/taskhistory/thumbnails/') == 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"status": "failed"}, ["booking"]),
        ({"agent": "walker"}, ["other"]),
        ({"agent": "nobody"}, []),
        ({"since": "1h"}, ["other", "good", "booking"]),
        ({"since": "2100-01-01"}, []),
        ({"until": "2100-01-01T00:00:00+02:00"}, ["other", "good", "booking"]),
        ({"kind": "other"}, []),
        ({"kind": "all", "status": "cancelled"}, ["other"]),
    ],
)
def test_filters(recorded: Recorded, params: dict[str, str], expected: list[str]) -> None:
    """Each filter leaves what it says, and says when it leaves nothing."""
    page = task_list_page(recorded.history(), params, LINKS)
    assert ids(page) == [getattr(recorded, name) for name in expected]
    assert ("No task is like that." in page) == (not expected)


@pytest.mark.parametrize(
    "params", [{"status": "lost"}, {"kind": "x"}, {"since": "soon"}, {"cursor": "1'--"}]
)
def test_a_filter_that_makes_no_sense_is_told(recorded: Recorded, params: dict[str, str]) -> None:
    """Nothing is shown as if it were the answer; the page says what may be given."""
    page = task_list_page(recorded.history(), params, LINKS)
    assert 'role="alert"' in page
    assert ids(page) == []


def test_tasks_are_paged_with_the_true_total(tmp_path: Path) -> None:
    """A page says how many there are in all; following the cursors shows each task once."""
    with recording(tmp_path / "history") as tasks:
        for number in range(120):
            with tasks.task(f"goal {number}"):
                pass
    history = TaskHistory(tmp_path / "history")
    seen: list[str] = []
    params: dict[str, str] = {}
    for shown in (50, 50, 20):
        page = task_list_page(history, params, LINKS)
        assert f"{shown} of 120 tasks" in page
        seen += ids(page)
        following = re.search(r'cursor=([^"&]+)" rel="next"', page)
        params = {"cursor": following[1]} if following else {}
    assert params == {}
    assert len(seen) == len(set(seen)) == 120


def test_an_empty_history_says_so(tmp_path: Path) -> None:
    """No task yet is not the same as none that matches."""
    with recording(tmp_path / "history"):
        pass
    assert "No task has been recorded yet." in task_list_page(
        TaskHistory(tmp_path / "history"), {}, LINKS
    )


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskHistory, str, list[str]]:
    """A task of 250 steps, some of the same number."""
    directory = tmp_path_factory.mktemp("long") / "history"
    with recording(directory) as tasks, tasks.task("long") as task:
        for number in range(250):
            with task.step(index=1 + number // 3 * 3):
                pass
    history = TaskHistory(directory)
    steps = history.steps(task.id, limit=1000)
    return history, task.id, [step.step_id for step in steps]


def test_steps_come_in_parts_in_either_direction(
    long: tuple[TaskHistory, str, list[str]],
) -> None:
    """Forward and backward each step comes once and in order, equal numbers included."""
    history, task_id, order = long
    for start, follow in ((None, "after"), (f"before:{10**6}.f", "before")):
        cursor: str | None = start
        seen: list[str] = []
        while True:
            part = history.read(lambda c, at=cursor: step_list(c, task_id, at, 40))  # type: ignore[misc]
            found = [line.step.step_id for line in part.lines]
            seen = seen + found if follow == "after" else found + seen
            cursor = getattr(part, follow)
            if cursor is None:
                break
        assert seen == order


@pytest.mark.parametrize("at", [0, 5, 120, 249])
def test_the_part_around_a_step_has_it_and_both_ways_on(
    long: tuple[TaskHistory, str, list[str]], at: int
) -> None:
    """Whoever opens a link to a step finds it in the list, with the rest before and after it."""
    history, task_id, order = long
    part = history.read(lambda c: steps_around(c, task_id, order[at], 40))
    found = [line.step.step_id for line in part.lines]
    assert order[at] in found
    first = order.index(found[0])
    assert found == order[first : first + 40]
    assert (part.before is None) == (first == 0)
    assert (part.after is None) == (found[-1] == order[-1])


@pytest.mark.parametrize("cursor", ["x", "1", "1.2 3", f"{10**30}.a", "'; DROP TABLE tasks;--"])
@pytest.mark.parametrize("part", [steps_fragment, film_fragment])
def test_a_cursor_that_is_none_is_refused(
    recorded: Recorded, cursor: str, part: Callable[..., str]
) -> None:
    """It is told, not taken for the beginning."""
    with pytest.raises(SettingsError):
        part(recorded.history(), recorded.booking, cursor, LINKS)


def test_a_failed_task_opens_at_its_first_failed_step(recorded: Recorded) -> None:
    """The head names it with a link, and it is the one that is shown."""
    history = recorded.history()
    failed = history.steps(recorded.booking)[FAILED - 1].step_id
    page = task_page(history, recorded.booking, LINKS)
    assert f"Go to the first of 2 failed steps: step {FAILED}" in page
    assert f'<article class="pane-step failed" data-id="{failed}"' in page
    assert "TimeoutError" in page
    assert "conv-7" in page


@pytest.mark.parametrize(
    ("outcome", "opens"), [("succeeded", 1), ("failed", 2), ("cancelled", 1), ("running", 3)]
)
def test_where_a_task_opens(tmp_path: Path, outcome: str, opens: int) -> None:
    """As `looking.md` says: failed at its first failure, running at its newest step, else at the
    first; the file that is exported opens at the same step.
    """
    with recording(tmp_path / "history") as tasks, tasks.task("x") as task:
        for number in range(1, 4):
            with task.step(f"part {number}") as step:
                if number == 2:
                    step.fail("no")
        if outcome == "failed":
            task.fail("no")
        elif outcome == "cancelled":
            task.cancel("no")
        elif outcome == "succeeded":
            task.result("yes")
        if outcome != "running":
            task.end()
        with TaskHistory(tmp_path / "history") as history:
            step_id = history.steps(task.id)[opens - 1].step_id
            page = task_page(history, task.id, LINKS)
            assert re.search(f'<article class="pane-step [a-z]+" data-id="{step_id}"', page)
            whole = "".join(single_page(WholeTask(history, task.id)))
            assert f'data-all="1" data-first="{step_id}"' in whole


def test_a_task_may_be_named_by_the_beginning_of_its_id(recorded: Recorded) -> None:
    """Everything on the page then goes by the whole id."""
    page = task_page(recorded.history(), recorded.booking[:8], LINKS)
    assert f'data-changes="/-/taskhistory/tasks/{recorded.booking}/changes.json"' in page


def test_an_unknown_task_or_step_is_told(recorded: Recorded) -> None:
    """An unknown task is an error that names near ones; an unknown step is told on the page."""
    with pytest.raises(TaskNotFound, match="newest"):
        task_page(recorded.history(), "0" * 32, LINKS)
    page = task_page(recorded.history(), recorded.booking, LINKS, "f" * 16)
    assert f"has no step &#39;{'f' * 16}&#39;" in page
    assert "<b>near</b>" not in problem_page("No such task", "<b>near</b>", LINKS)


def test_changes_name_the_steps_since_a_number(recorded: Recorded) -> None:
    """From the beginning all steps, from the end none; a number of another history is told."""
    history = recorded.history()
    everything = changes(history, recorded.booking, 0)
    assert [index for _, index in everything["steps"]] == list(range(1, STEPS + 1))
    assert everything["ended"] is True
    assert everything["status"] == "failed"
    assert changes(history, recorded.booking, everything["seq"])["steps"] == []
    assert changes(history, recorded.booking, 10**30)["reset"] is True
    with pytest.raises(SettingsError):
        changes(history, recorded.booking, "soon")
