# SPDX-License-Identifier: Apache-2.0
"""``examples/fleet_parquet``, with three agents; and ``docs/fleet.md``, which asks the same."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from examples.fleet_parquet.__main__ import run
from examples.fleet_parquet.questions import QUESTIONS, opened
from examples.fleet_parquet.simulated import FIRST_DAY
from otel_taskhistory import TaskHistory
from otel_taskhistory.redaction import NAMES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
AGENTS, DAYS, TASKS = 3, 2, 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories and tables of three machines."""
    folder = tmp_path_factory.mktemp("fleet")
    run(folder, AGENTS, DAYS, TASKS)
    return folder


@pytest.fixture
def tables(fleet: Path) -> duckdb.DuckDBPyConnection:
    """The tables, to be asked."""
    return opened(fleet / "parquet")


def test_the_answers_are_those_of_the_histories(
    fleet: Path, tables: duckdb.DuckDBPyConnection
) -> None:
    """What each history says by itself, added up."""
    failed: dict[str, list[int]] = {}
    tokens: dict[tuple[str, str], int] = {}
    calls: dict[str, int] = {}
    for directory in (fleet / "histories").iterdir():
        with TaskHistory(directory) as history:
            for task in history.tasks(limit=1000):
                count = failed.setdefault(str(task.agent), [0, 0])
                count[0] += 1
                count[1] += task.status == "failed"
                for call in history.model_calls(task.task_id):
                    key = (task.started_at[:10], str(call.model))
                    tokens[key] = tokens.get(key, 0) + (call.input_tokens or 0)
                for used in history.tool_calls(task.task_id):
                    calls[used.name] = calls.get(used.name, 0) + 1
    rate, slow, used_up, *_ = (tables.sql(sql).fetchall() for sql in QUESTIONS.values())
    assert {agent: (total, percent) for agent, total, percent in rate} == {
        agent: (total, round(100 * bad / total, 1)) for agent, (total, bad) in failed.items()
    }
    assert {name: number for name, number, *_ in slow} == calls
    assert {(str(day), model): given for day, model, _, given, _ in used_up} == tokens
    assert sum(total for total, _ in failed.values()) == AGENTS * DAYS * TASKS


def test_every_question_has_an_answer_and_is_on_the_page(
    tables: duckdb.DuckDBPyConnection,
) -> None:
    """As it is printed there."""
    shown = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert shown == list(QUESTIONS.values())
    for question, sql in QUESTIONS.items():
        assert question in PAGE
        tables.sql(sql).fetchall()


def test_machines_and_days_are_told_apart(tables: duckdb.DuckDBPyConnection) -> None:
    """By what their resources say, and by the simulated clock."""
    hosts = tables.sql("SELECT DISTINCT host_name FROM steps ORDER BY 1").fetchall()
    assert hosts == [(f"machine-{number:03}",) for number in range(AGENTS)]
    days = tables.sql("SELECT DISTINCT day FROM tasks ORDER BY 1").fetchall()
    assert days == [(FIRST_DAY + timedelta(number),) for number in range(DAYS)]
    assert tables.sql("SELECT count(DISTINCT history_id) FROM tasks").fetchall() == [(AGENTS,)]
    late = "SELECT count(*) FROM model_calls WHERE CAST(started_at AS DATE) > day + 1"
    assert tables.sql(late).fetchall() == [(0,)]


def test_the_page_names_what_there_is() -> None:
    """Policies, variables and commands that it tells to set."""
    for name in ("OTEL_TASKHISTORY_REMOTE_POLICY", "taskhistory,taskhistory_otlp", "--follow"):
        assert name in PAGE
    assert set(re.findall(r"--policy (\w+)", PAGE)) <= set(NAMES)
    assert "ids_only" in PAGE
