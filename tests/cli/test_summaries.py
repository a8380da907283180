# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory stats``: agents, models, tools and bytes, of all or of a period."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.cli.summaries import print_summaries, read_summaries
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.store import summaries as store
from otel_taskhistory.store.summaries import Summaries, Tokens, task_names
from otel_taskhistory.text import width
from tests.recorded import PICTURES, one_task, recording

from .conftest import Run

ROOT = Path(__file__).parents[2]


def figures(directory: Path, **period: datetime) -> Summaries:
    """What the history says."""
    with TaskHistory(directory) as history:
        return read_summaries(history, **period)


def busy_day(tasks: TaskTracer) -> None:
    """Two agents, two models, three tools, one of which fails half of the time."""
    for number in range(4):
        with tasks.task(f"goal {number}", agent="desk" if number else "door") as task:
            with task.step("look") as step:
                step.prompt("what now?", model="small")
                step.decision(
                    "look", usage={"input_tokens": 100, "output_tokens": 10}, model="small"
                )
                with step.tool_call("look", {}) as call:
                    call.result("nothing")
                with step.tool_call("try", {}) as call:
                    if number % 2:
                        call.fail("it would not")
            with task.step("think") as step:
                step.prompt("and now?", model="large")
                step.decision("done", usage={"input_tokens": 1000, "output_tokens": 7})
                if number == 3:
                    step.fail("no idea")
            if number == 3:
                task.fail("no idea")


def test_tasks_and_steps_are_counted_by_outcome(directory: Path) -> None:
    """And agents by what they were given and what they did, the busiest first."""
    with recording(directory) as tasks:
        busy_day(tasks)
    found = figures(directory)
    assert found.tasks == {"succeeded": 3, "failed": 1}
    assert found.steps == {"succeeded": 7, "failed": 1}
    assert [(one.agent, one.tasks, one.failed, one.steps) for one in found.agents] == [
        ("desk", 3, 1, 6),
        ("door", 1, 0, 2),
    ]
    assert found.agents[0].tokens == Tokens(3300, 51, 0, 0, 0.0)
    assert found.agents[0].failed_steps == 1


def test_tokens_are_those_of_the_model_that_used_them(directory: Path) -> None:
    """By model; together they are what the tasks say."""
    with recording(directory) as tasks:
        busy_day(tasks)
    found = figures(directory)
    used = {one.model: (one.calls, one.tokens.input, one.tokens.output) for one in found.models}
    assert used == {"small": (4, 400, 40), "large": (4, 4000, 28)}
    with TaskHistory(directory) as history:
        assert sum(task.input_tokens or 0 for task in history.tasks()) == 4400


def test_tools_have_rates_and_times(directory: Path) -> None:
    """How many calls, how many failed, and the times of those that ended."""
    with recording(directory) as tasks:
        busy_day(tasks)
    tools = {tool.name: tool for tool in figures(directory).tools}
    assert (tools["try"].calls, tools["try"].failed, tools["try"].failure_rate) == (4, 2, 0.5)
    assert (tools["look"].calls, tools["look"].failed) == (4, 0)
    median, p95 = tools["look"].median_ms, tools["look"].p95_ms
    longest = tools["look"].longest_ms
    assert median is not None
    assert p95 is not None
    assert longest is not None
    assert 0 <= median <= p95 <= longest


def spans_at(directory: Path, moments: list[tuple[int, int]]) -> None:
    """Record a task with one tool call per (begin, milliseconds) pair, at these very times."""
    exporter = TaskHistoryExporter(directory=directory, durability="normal")
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tracer = provider.get_tracer("test")
    for at_ns, took_ms in moments:
        root = tracer.start_span(
            "invoke_agent a",
            start_time=at_ns,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"},
        )
        call = tracer.start_span(
            "execute_tool t",
            context=set_span_in_context(root),
            start_time=at_ns,
            attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"},
        )
        call.end(at_ns + took_ms * 10**6)
        root.end(at_ns + took_ms * 10**6)
    provider.shutdown()


def test_median_and_p95_are_those_of_the_durations(directory: Path) -> None:
    """Of 1 to 100 ms: 50.5 and 95.05, between neighbours in proportion."""
    second = 10**9
    spans_at(directory, [(1_790_000_000 * second + n * second, n) for n in range(1, 101)])
    (tool,) = figures(directory).tools
    assert (tool.calls, tool.longest_ms) == (100, 100.0)
    assert tool.median_ms == pytest.approx(50.5)
    assert tool.p95_ms == pytest.approx(95.05)


def test_a_period_has_the_tasks_that_began_in_it(directory: Path) -> None:
    """From its first moment on, up to but without its end, with all that belongs to them."""
    begin = datetime(2026, 11, 30, tzinfo=UTC)
    ns = int(begin.timestamp()) * 10**9
    spans_at(directory, [(ns - 1, 1), (ns, 2), (ns + 10**9, 3), (ns + 2 * 10**9, 4)])
    assert figures(directory).tasks == {"succeeded": 4}
    found = figures(directory, since=begin, until=begin + timedelta(seconds=2))
    assert found.tasks == {"succeeded": 2}
    assert [(tool.calls, tool.longest_ms) for tool in found.tools] == [(2, 3.0)]
    assert (found.since, found.until) == (
        "2026-11-30T00:00:00.000000Z",
        "2026-11-30T00:00:02.000000Z",
    )


def test_bytes_are_told_by_kind_and_by_task(directory: Path) -> None:
    """Live and free pages, log, pictures; the largest tasks first, pinned ones marked."""
    with recording(directory) as tasks:
        one_task(tasks, "small")
        with tasks.task("large") as task, task.step("s") as step:
            step.prompt("".join(f"{number:x}" for number in range(50_000)))
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
        large = task.id
    with TaskHistory(directory) as history:
        history.pin(large)
        usage = history.usage()
    found = figures(directory)
    assert found.room.artifacts == (PICTURES / "png_ok.png").stat().st_size
    assert found.room.database_live + found.room.database_free == usage.database_file
    largest = found.largest[0]
    assert (largest.task_id, largest.goal, largest.pinned) == (large, "large", True)
    assert largest.bytes > 100_000
    assert all(one.bytes < 20_000 for one in found.largest[1:])


def test_what_a_dead_agent_left_is_interrupted(directory: Path) -> None:
    """Before any writer has noted it: no task or step of it runs."""
    program = f"""
import os, signal
from pathlib import Path
from tests.recorded import recording
with recording(Path({str(directory)!r})) as tasks:
    task = tasks.task("left", agent="desk")
    step = task.step("left too")
    step.prompt("hello")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    found = figures(directory)
    assert (found.tasks, found.steps) == ({"interrupted": 1}, {"interrupted": 1})
    assert [(one.failed, one.failed_steps) for one in found.agents] == [(1, 1)]
    with TaskHistory(directory) as history:
        (name,) = history.read(lambda c: task_names(c, "", 10))
    assert name.status == "interrupted"


def test_numbers_beyond_64_bits_hide_nothing(directory: Path) -> None:
    """Absurd token counts are no reason to fail."""
    with recording(directory) as tasks:
        for _ in range(3):
            with tasks.task("g", agent="a") as task, task.step("s") as step:
                step.prompt("p", model="m")
                step.decision("d", usage={"input_tokens": 2**63 - 1, "output_tokens": 5})
    (model,) = figures(directory).models
    assert (model.calls, model.tokens.output) == (3, 15)


# --- what they cost -------------------------------------------------------------------------------


@contextmanager
def plain(directory: Path) -> Iterator[sqlite3.Connection]:
    """The database, for looking at plans."""
    connection = sqlite3.connect(directory / "history.db")
    try:
        yield connection
    finally:
        connection.close()


def plan(connection: sqlite3.Connection, sql: str, values: Any) -> str:
    """How SQLite goes about a query."""
    return " / ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))


BOUNDS = {"since": 1, "until": 2, "left": "[]", "died": "[]"}


@pytest.mark.parametrize("name", ["TASKS", "STEPS", "AGENTS", "STEPS_OF_AGENTS", "MODELS", "TOOLS"])
def test_only_what_belongs_to_tasks_of_the_period_is_read(directory: Path, name: str) -> None:
    """The tasks by the index of their start, their rows by the index of their task: no scan."""
    with recording(directory) as tasks:
        one_task(tasks)
    with plain(directory) as connection:
        found = plan(connection, getattr(store, name), BOUNDS)
    assert "SCAN" not in found
    assert "INDEX tasks_newest (kind=? AND started_ns>? AND started_ns<?)" in found
    if name in ("STEPS", "STEPS_OF_AGENTS"):
        assert "USING INDEX _steps_task (task=?)" in found
    if name == "MODELS":
        assert "USING INDEX _model_calls_task (task=?)" in found
    if name == "TOOLS":
        assert "USING INDEX _tool_calls_task (task=?)" in found


def test_rare_rows_are_found_by_index(directory: Path) -> None:
    """Losses among all of the timeline, steps of dead writers among all spans, ids by beginning."""
    with recording(directory) as tasks:
        one_task(tasks)
    with plain(directory) as connection:
        assert "INDEX _timeline_task (task=?)" in plan(connection, store.LOSSES, BOUNDS)
        left = plan(connection, store.STEPS_LEFT_RUNNING, BOUNDS)
        assert "INDEX _spans_open (process=?)" in left
        names = plan(connection, store.NEWEST_NAMES, ("agent", 5))
        assert names == "SEARCH tasks USING INDEX tasks_newest (kind=?)"
        begun = plan(connection, store.NAMES_FROM, ("a", "b", 5))
        assert "(task_id>? AND task_id<?)" in begun


# --- as people see them ---------------------------------------------------------------------------


def test_stats_show_the_sections(run: Run, directory: Path) -> None:
    """Agents, models and tools as tables, numbers never cut."""
    with recording(directory) as tasks:
        busy_day(tasks)
    lines = run("stats").stdout.splitlines()
    at = lines.index("tools")
    assert lines[at + 1].split() == ["calls", "failed", "median", "p95", "longest", "tool"]
    assert lines[at + 3].split()[:3] == ["4", "2", "(50%)"]
    assert lines[at + 3].endswith("try")
    at = lines.index("models")
    assert lines[at + 2].split() == ["4", "4,000", "28", "large"]


def test_stats_of_a_period_say_which_and_count_only_that(run: Run, directory: Path) -> None:
    """In the words of ``tasks``; the time is local and says its zone."""
    spans_at(directory, [(1_790_000_000 * 10**9, 5)])
    with recording(directory) as tasks:
        one_task(tasks)
    text = run("stats", "--until", "2026-10-01").stdout
    assert "period    up to 2026-10-01 00:00:00 UTC" in text
    facts = json.loads(run("stats", "--json", "--until", "2026-10-01").stdout)
    assert facts["period"]["tasks"] == {"succeeded": 1}
    assert facts["period"]["tools"][0]["name"] == "t"
    assert facts["period"]["tools"][0]["failure_rate"] == 0.0
    assert facts["tasks"] == {"succeeded": 2}
    assert run("stats", "--since", "banana").exit_code == 2
    wrong = run("stats", "--since", "2h", "--until", "3h")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "is not after --since" in wrong.stderr


@pytest.mark.parametrize("columns", [20, 33, 60, 80, 120])
def test_the_sections_fit_any_screen(
    directory: Path, columns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Down to 20 columns, with long names, wide characters and control sequences."""
    names = ["ordinary", "日本語の道具" * 9, "\x1b[2J\x1b]0;pwned\x07\u202etool", "long " * 40]
    with recording(directory) as tasks:
        for name in names:
            with tasks.task(f"a goal {name}", agent=name) as task, task.step("s") as step:
                step.prompt("p", model=name)
                step.decision("d", usage={"input_tokens": 123_456_789, "output_tokens": 5})
                with step.tool_call(name, {}) as call:
                    call.fail("no")
    with TaskHistory(directory) as history:
        found = read_summaries(history, since=datetime(2020, 1, 1, tzinfo=UTC))
        print_summaries(Screen(columns=columns, colour=False), history, found)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(width, lines)) <= columns
    shown = "\n".join(lines)
    assert not any(character in shown for character in "\x1b\x07\u202e")
    assert "123,456,789" in shown


def test_more_than_can_be_shown_is_said(run: Run, directory: Path) -> None:
    """With the true total, of the text and of JSON."""
    with recording(directory) as tasks, tasks.task("g") as task, task.step("s") as step:
        for number in range(120):
            with step.tool_call(f"tool {number:03}", {}) as call:
                call.result("x")
    assert "… 15 of 120; --json has more" in run("stats").stdout
    period = json.loads(run("stats", "--json").stdout)["period"]
    assert (len(period["tools"]), period["tools_total"]) == (100, 120)


def test_an_empty_history_has_no_sections(run: Run, directory: Path) -> None:
    """And is no failure."""
    with recording(directory):
        pass
    result = run("stats")
    assert result.exit_code == 0
    assert not {"agents", "models", "tools", "largest tasks"} & set(result.stdout.splitlines())


def test_losses_are_told(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could not be stored is never silent."""
    with recording(directory) as tasks:
        one_task(tasks)
    with plain(directory) as connection, connection:
        connection.execute(
            "INSERT INTO _timeline (at_ns, event, detail) VALUES (?, 'loss', '{}')", (10**18,)
        )
    found = figures(directory)
    assert (found.losses.records, found.losses.last_at) == (1, "2001-09-09T01:46:40.000000Z")
    with TaskHistory(directory) as history:
        print_summaries(Screen(columns=100, colour=False), history, found)
    assert "lost      1 record of what could not be stored" in capsys.readouterr().out
