# SPDX-License-Identifier: Apache-2.0
"""Parquet: many histories in one folder, read by DuckDB and pyarrow, whatever is in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from otel_taskhistory import TaskHistory
from otel_taskhistory.cli import cli
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.transport import parquet, parquet_tables
from otel_taskhistory.transport.parquet import write_parquet
from otel_taskhistory.transport.parquet_folder import MARK, only_writer, partition_name
from otel_taskhistory.transport.parquet_tables import TABLES
from tests.recorded import PICTURES, one_task, recording

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "data" / "corpus"
TYPES = "hive_types = {'day': DATE, 'agent': VARCHAR}"
HIVE = ds.partitioning(pa.schema([("day", pa.date32()), ("agent", pa.string())]), flavor="hive")

LONG = ("x" * 5000, "x" * 4999 + "y", "😀" * 300, "/" + "x" * 500)
AGENTS = (
    *("desk", "a/b", "..", ".", "a=b", "100%", "%2F", "x\ny", "tab\there", "😀 agent", " lead "),
    *("nul\0inside", "null", "NULL", "007", "true", "2026-01-01", "a+b", "*?[x]", "é", "e\u0301"),
    *("quote'\"", "\\", "lone \ud83d surrogate", "C:\\x", "agent=other/day=1999-01-01", "_x", "~"),
    *("__HIVE_DEFAULT_PARTITION__", *LONG),
)


def invoke(*arguments: str | Path, of: Path) -> Result:
    """What the command says."""
    return CliRunner().invoke(cli, [*map(str, arguments), "--directory", str(of)])


def export(history: Path, folder: Path, *tasks: str, prompts: bool = False) -> None:
    """All tasks, or some, into a folder."""
    with TaskHistory(history) as opened:
        write_parquet(opened, tasks or None, folder, lambda done, total: None, prompts=prompts)


def query(folder: Path, table: str, select: str, hive: str = TYPES) -> list[Any]:
    """What DuckDB finds in a table; `T` stands for it."""
    files = f"read_parquet('{folder}/{table}/*/*/*.parquet', hive_partitioning = true, {hive})"
    with duckdb.connect() as connection:
        return connection.execute(select.replace("FROM T", f"FROM {files}")).fetchall()


def dataset(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table as pyarrow reads them."""
    found: list[dict[str, Any]] = (
        ds.dataset(folder / table, partitioning=HIVE).to_table().to_pylist()
    )
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks of ours, one that failed, one of a framework, one without agent, a web request."""
    directory = tmp_path_factory.mktemp("parquet") / "history"
    with recording(directory) as tasks:
        one_task(tasks, "first", steps=3)
        with tasks.task("pictures", agent="screen", conversation_id="talk-1") as task:
            with task.step("look") as step:
                step.screenshot(PICTURES / "png_ok.png")
                step.fail(ValueError("nothing there"))
            task.fail("no luck")
    recordings = (CORPUS / "openai__v2-eventonly__chat-loop-under-user-root.jsonl",)
    assert invoke("import", *recordings, of=directory).exit_code == 0
    return directory


@pytest.fixture(scope="module")
def folder(history: Path) -> Path:
    """All of it as Parquet, prompts too."""
    target = history.parent / "parquet"
    result = invoke("export", "--all", "--format", "parquet", "--prompts", "-o", target, of=history)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("3 tasks in ")
    return target


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_value_is_that_of_the_public_table(history: Path, folder: Path, table: Any) -> None:
    """Column by column, with times as times; and nothing is left out or double."""
    key = ("task_id", "span_id", "ordinal", "step_id")
    with TaskHistory(history) as opened:
        rows = opened.read(
            lambda c: [
                dict(zip([d[0] for d in cursor.description], row, strict=True))
                for cursor in [c.execute(f"SELECT * FROM {table.name}")]
                for row in cursor.fetchall()
            ]
        )
    written = dataset(folder, table.name)
    assert len(written) == len(rows) > 0
    order = [name for name in key if name in rows[0]]
    rows.sort(key=lambda row: [str(row[name]) for name in order])
    written.sort(key=lambda row: [str(row[name]) for name in order])
    names = {"tasks": {"agent_name": "agent"}, "steps": {"step_agent": "agent"}}.get(table.name, {})
    compared = 0
    for row, found in zip(rows, written, strict=True):
        for column, kind in table.columns:
            name = names.get(column, column)
            if name not in row:
                continue
            value = found[column]
            if kind == "time" and value is not None:
                value = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            elif kind == "number" and value is not None:
                assert value == pytest.approx(row[name])
                value = row[name]
            assert value == row[name], column
            compared += 1
    # All public columns are there.
    internal = {"id", "bytes", "started_ns", "ended_ns", "committed_ns", "trace", "process", "root"}
    assert compared == len(rows) * len(set(rows[0]) - internal)


def test_columns_have_types(folder: Path) -> None:
    """So that queries need no casts."""
    found = dict(
        query(folder, "tasks", "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM T)")
    )
    assert found["started_at"] == "TIMESTAMP WITH TIME ZONE"
    assert found["day"] == "DATE"
    assert (found["agent"], found["pinned"]) == ("VARCHAR", "BOOLEAN")
    assert (found["duration_ms"], found["input_tokens"]) == ("DOUBLE", "BIGINT")
    schema = pq.read_schema(next((folder / "steps").rglob("*.parquet")))
    assert schema.field("started_at").type == pa.timestamp("us", tz="UTC")


def test_where_a_row_comes_from(history: Path, folder: Path) -> None:
    """History, owner and resource stand in each row of each table, for joining."""
    with TaskHistory(history) as opened:
        identity = opened.identity
    for table in TABLES:
        for row in dataset(folder, table.name):
            assert (row["history_id"], row["owner"]) == (identity.history_id, "host-agent")
            resource = json.loads(row["resource"])
            assert row["service_name"] == resource["service.name"]
            assert row["service_instance_id"] == resource.get("service.instance.id")
            assert row["host_name"] == resource.get("host.name")
            assert row["agent_name"] == row["agent"]


def test_prompts_only_when_they_are_asked_for(history: Path, folder: Path, tmp_path: Path) -> None:
    """The conversation would be in the file once for each step."""
    export(history, tmp_path / "without")
    for table in ("steps", "model_calls"):
        assert query(folder, table, "SELECT count(prompt) > 0 FROM T") == [(True,)]
        without = query(tmp_path / "without", table, "SELECT count(prompt), count(decision) FROM T")
        assert without[0][0] == 0
        assert without[0][1] > 0


# --- agents -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str | None]]:
    """(folder, agent by task) of agents whose names are hostile."""
    directory = tmp_path_factory.mktemp("called") / "history"
    with recording(directory) as tasks:
        for agent in (*AGENTS, None):
            with tasks.task("a goal", agent=agent) as task, task.step() as step:
                step.decision("yes")
    with TaskHistory(directory) as opened:
        stored = dict(
            opened.read(lambda c: c.execute("SELECT task_id, agent FROM tasks").fetchall())
        )
    assert len(set(stored.values())) == len(AGENTS) + 1
    export(directory, directory.parent / "folder")
    return directory.parent / "folder", stored


@pytest.mark.parametrize("hive", [TYPES, "hive_types_autocast = true"])
def test_duckdb_gives_agents_back(called: tuple[Path, dict[str, str | None]], hive: str) -> None:
    """Exactly as they are called; those that are too long by another column."""
    folder, stored = called
    for table in ("tasks", "steps"):
        found = query(folder, table, "SELECT task_id, agent, agent_name FROM T", hive)
        assert {task: name for task, _, name in found} == stored
        short = {task: name for task, name in stored.items() if name not in LONG}
        assert {task: agent for task, agent, _ in found if task in short} == short
        assert len({agent for _, agent, _ in found}) == len(AGENTS) + 1


def test_pyarrow_gives_agents_back(called: tuple[Path, dict[str, str | None]]) -> None:
    """Likewise; one that is called as Hive calls nobody is nobody there."""
    folder, stored = called
    for row in dataset(folder, "tasks"):
        name = stored[row["task_id"]]
        assert row["agent_name"] == name
        if name == "__HIVE_DEFAULT_PARTITION__":
            assert row["agent"] is None
        elif name not in LONG:
            assert row["agent"] == name


def test_no_name_leads_out_of_the_folder(called: tuple[Path, dict[str, str | None]]) -> None:
    """Each agent is one folder below one day, and one short name."""
    folder, _ = called
    for path in (folder / "tasks").rglob("*.parquet"):
        day, agent, _ = path.relative_to(folder / "tasks").parts
        assert day == f"day={datetime.now(UTC).date()}"
        assert agent.isascii()
        assert len(agent) < 200
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        table.name for table in TABLES if table.name != "tool_calls"
    }


@pytest.mark.parametrize("value", ["😀" * 100, "%" * 300, "a/" + "b" * 400, "é" * 90])
def test_a_long_name_is_cut_between_characters(value: str) -> None:
    """It decodes, begins as the agent does, and another long one stays another one."""
    from urllib.parse import unquote

    name = partition_name(value)
    start, _, digest = unquote(name, errors="strict").rpartition("~")
    assert len(name) <= 180
    assert value.startswith(start)
    assert len(start) * 12 > 120
    assert len(digest) == 16
    assert partition_name(value + "!") != name


# --- values -------------------------------------------------------------------------------------


def test_values_that_no_column_has_a_type_for(tmp_path: Path) -> None:
    """Numbers beyond 64 bit, NUL, lone surrogates, times before 1970 and after 2262, no start."""
    beyond = {"intValue": str(2**70)}

    def attribute(key: str, value: dict[str, Any]) -> dict[str, Any]:
        return {"key": key, "value": value}

    def span(number: int, start: str | None, end: str) -> dict[str, Any]:
        found = {
            "traceId": f"{number:032x}",
            "spanId": f"{number:016x}",
            "name": "chat \0 m",
            "endTimeUnixNano": end,
            "attributes": [
                attribute("gen_ai.operation.name", {"stringValue": "chat"}),
                attribute("gen_ai.request.model", {"stringValue": "m\0\ud83d"}),
                attribute("gen_ai.usage.input_tokens", beyond),
                attribute("gen_ai.usage.output_tokens", {"doubleValue": "Infinity"}),
            ],
        }
        return found | ({} if start is None else {"startTimeUnixNano": start})

    resource = {
        "attributes": [
            attribute("service.name", {"intValue": "7"}),
            attribute("host.name", {"stringValue": "h\ud83d"}),
            attribute("service.instance.id", beyond),
        ]
    }
    spans = [span(1, "0", "5"), span(2, None, "7"), span(3, str(2**64 - 1), str(2**64 - 1))]
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    (tmp_path / "in.jsonl").write_text(json.dumps(document))
    directory = tmp_path / "history"
    invoke("import", tmp_path / "in.jsonl", of=directory)
    export(directory, tmp_path / "out")
    rows = {row["task_id"]: row for row in dataset(tmp_path / "out", "model_calls")}
    assert len(rows) >= 2
    with TaskHistory(directory) as opened:
        for task in opened.tasks(kind=None):
            (call,) = opened.model_calls(task.task_id)
            row = rows[task.task_id]
            assert (row["model"], row["input_tokens"]) == (call.model, call.input_tokens)
            assert row["output_tokens"] == call.output_tokens
            assert row["day"].isoformat() == task.started_at[:10]
            assert (row["service_name"], row["host_name"]) == ("7", "h\\ud83d")
            assert str(2**70) in row["service_instance_id"]
    assert {row["day"].isoformat() for row in rows.values()} >= {"1970-01-01"}


def test_large_rows_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many, pages and row groups have a bound; every row is there once."""
    with recording(tmp_path / "history") as tasks, tasks.task("much", agent="desk") as task:
        for number in range(30):
            with task.step(f"{number}") as step, step.tool_call("look", {}) as call:
                call.result(f"{number} " * 500)
    monkeypatch.setattr(parquet_tables, "BYTES", 4000)
    monkeypatch.setattr(parquet, "_ROWS", 7)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 5000)
    for _ in range(2):  # the second time, all that is there is replaced
        export(tmp_path / "history", tmp_path / "out")
        found = query(tmp_path / "out", "tool_calls", "SELECT result FROM T")
        assert sorted(found) == sorted([(f"{number} " * 500,) for number in range(30)])
    (file,) = (tmp_path / "out" / "tool_calls").rglob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups > 5


def test_what_died_is_interrupted(tmp_path: Path) -> None:
    """Also before any writer has noted it: task, step and call."""
    directory = tmp_path / "history"
    program = f"""
import os, signal
from pathlib import Path
from tests.recorded import recording
with recording(Path({str(directory)!r})) as tasks, tasks.task("die", agent="desk") as task:
    with task.step("last") as step:
        step.prompt("what now?", model="m")
        with step.tool_call("look", {{}}):
            os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    export(directory, tmp_path / "out")
    for table in TABLES:
        ended = query(tmp_path / "out", table.name, "SELECT status, ended_at IS NULL FROM T")
        assert ended == [("interrupted", False)], table.name


# --- again, and together ------------------------------------------------------------------------


def test_to_export_again_makes_nothing_double(history: Path, folder: Path, tmp_path: Path) -> None:
    """All or one task; the same files with the same rows."""
    target = tmp_path / "out"
    export(history, target, prompts=True)
    with TaskHistory(history) as opened:
        latest = opened.task("latest").task_id
    before = {table.name: sorted(map(str, dataset(target, table.name))) for table in TABLES}
    export(history, target, latest, prompts=True)
    export(history, target, prompts=True)
    assert {t.name: sorted(map(str, dataset(target, t.name))) for t in TABLES} == before
    assert sorted(files(target)) == sorted(files(folder))


def test_what_retention_removed_stays(tmp_path: Path) -> None:
    """The folder is the longer memory; a task that is named again is written anew."""
    with recording(tmp_path / "history") as tasks:
        old = one_task(tasks, "old", steps=2)
        one_task(tasks, "new")
    export(tmp_path / "history", tmp_path / "out")
    with TaskHistory(tmp_path / "history") as opened:
        opened.remove(old)
    export(tmp_path / "history", tmp_path / "out")
    assert query(tmp_path / "out", "tasks", "SELECT goal FROM T ORDER BY 1") == [("new",), ("old",)]
    assert query(tmp_path / "out", "steps", "SELECT count(*) FROM T") == [(3,)]


def test_what_is_removed_meanwhile_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that goes while it is read does not take its earlier rows along, nor half of them."""
    with recording(tmp_path / "history") as tasks:
        ids = [one_task(tasks, name, steps=3) for name in ("a", "b", "c")]
    export(tmp_path / "history", tmp_path / "out")
    before = {table.name: dataset(tmp_path / "out", table.name) for table in TABLES}
    real = parquet.rows_of
    gone: list[str] = []

    def rows_of(connection: Any, **how: Any) -> Any:
        found = real(connection, **how)
        if how["table"].name == "steps" and how["task_id"] == ids[1] and not gone:
            gone.append(ids[1])
        return found

    def origin_of(connection: Any, task_id: str) -> Any:
        return {} if task_id in gone else parquet_tables.origin_of(connection, task_id)

    def places_of(connection: Any, task_ids: Any) -> Any:
        found = parquet_tables.places_of(connection, task_ids)
        return {task: place for task, place in found.items() if task not in gone}

    monkeypatch.setattr(parquet, "rows_of", rows_of)
    monkeypatch.setattr(parquet, "origin_of", origin_of)
    monkeypatch.setattr(parquet, "places_of", places_of)
    export(tmp_path / "history", tmp_path / "out")
    assert gone
    for table in TABLES:
        after = dataset(tmp_path / "out", table.name)
        assert sorted(map(str, after)) == sorted(map(str, before[table.name]))


def test_a_task_moves_when_its_agent_becomes_known(tmp_path: Path) -> None:
    """It is in one place only, also when nothing else is left in the other."""
    directory, target = tmp_path / "history", tmp_path / "out"
    with recording(directory) as tasks, tasks.task("a goal") as task:
        with task.step("one") as step:
            step.decision("yes")
        export(directory, target)
        assert query(target, "tasks", "SELECT agent, status FROM T") == [(None, "running")]
        task.set_attribute("gen_ai.agent.name", "desk")
    export(directory, target)
    assert query(target, "tasks", "SELECT agent, status FROM T") == [("desk", "succeeded")]
    assert query(target, "steps", "SELECT agent FROM T") == [("desk",)]


def test_histories_share_a_folder(history: Path, tmp_path: Path) -> None:
    """Each replaces its own only."""
    target = tmp_path / "out"
    with recording(tmp_path / "other", owner="other") as tasks:
        one_task(tasks, "of the other")
    export(history, target)
    alone = files(target)
    export(tmp_path / "other", target)
    both = files(target)
    assert {name: both[name] for name in alone} == alone
    export(history, target)
    counted = query(target, "tasks", "SELECT owner, count(*) FROM T GROUP BY 1 ORDER BY 1")
    assert counted == [("host-agent", 3), ("other", 1)]


def test_only_its_user_can_read_it(folder: Path) -> None:
    """Folders 0700, files 0600."""
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["other files", "a file", "another version", "no mark", "deep"])
def test_a_folder_that_is_not_ours_is_refused(history: Path, tmp_path: Path, kind: str) -> None:
    """One sentence with the next move; not a byte is changed."""
    target = tmp_path / "out"
    if kind == "a file":
        target.write_text("mine")
    else:
        target.mkdir()
        content = {
            "other files": ("notes.txt", "mine"),
            "another version": (MARK, '{"format": "otel-taskhistory parquet", "version": 2}'),
            "no mark": (MARK, "[]"),
            "deep": (MARK, "[" * 100_000),
        }[kind]
        (target / content[0]).write_text(content[1])
    before = files(tmp_path)
    result = invoke("export", "--all", "--format", "parquet", "-o", target, of=history)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert str(target) in result.stderr
    assert "folder" in result.stderr
    assert files(tmp_path) == before


def test_without_the_package(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says what to install; nothing is made."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = invoke("export", "--all", "--format", "parquet", "-o", tmp_path / "out", of=history)
    assert result.exit_code == 1
    assert "pip install 'otel-taskhistory[parquet]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_usage(history: Path, tmp_path: Path) -> None:
    """Parquet is a folder; prompts are an option of it alone."""
    wrong = invoke("export", "--all", "--format", "parquet", "-o", "-", of=history)
    assert (wrong.exit_code, "-o FOLDER" in wrong.stderr) == (2, True)
    wrong = invoke("export", "--all", "--prompts", "-o", tmp_path / "x.zip", of=history)
    assert (wrong.exit_code, "--prompts is for parquet" in wrong.stderr) == (2, True)
    assert not (tmp_path / "x.zip").exists()


def test_two_exports_of_one_history_at_a_time(history: Path, tmp_path: Path) -> None:
    """The second is refused: each would undo what the other writes."""
    export(history, tmp_path / "out")
    with (
        TaskHistory(history) as opened,
        only_writer(tmp_path / "out", opened.identity.history_id),
        pytest.raises(TaskHistoryError, match="another export of this history"),
    ):
        export(history, tmp_path / "out")
    export(history, tmp_path / "out")


def test_a_damaged_file_is_named(history: Path, tmp_path: Path) -> None:
    """Nothing that is in it is written over."""
    target = tmp_path / "out"
    export(history, target)
    file = min((target / "steps").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    damaged = file.read_bytes()
    with pytest.raises(TaskHistoryError, match="move it elsewhere"):
        export(history, target)
    assert file.read_bytes() == damaged
    file.rename(tmp_path / "elsewhere")
    export(history, target)
    assert pq.read_table(file).num_rows > 0


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Every file is whole, old or new; the next export puts all in order and tidies up."""
    directory, target = tmp_path / "history", tmp_path / "out"
    with recording(directory) as tasks:
        for _ in range(3):
            one_task(tasks, "early", steps=2)
    export(directory, target)
    with recording(directory) as tasks:
        one_task(tasks, "late", steps=2)
    program = """
import os, signal, sys
from otel_taskhistory.cli import cli
from otel_taskhistory.transport import parquet
real, calls = parquet.rows_of, []
def rows_of(connection, **how):
    calls.append(how["table"].name)
    if calls.count("model_calls") == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(connection, **how)
parquet.rows_of = rows_of
parquet._GROUP_ROWS = 1
cli(sys.argv[1:])
"""
    arguments = ["export", "--all", "--format", "parquet", "-o", target, "--directory", directory]
    command = [sys.executable, "-c", program, *map(str, arguments)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert list(target.rglob(".*.parquet.*")), "it died while it wrote"
    told = [query(target, t.name, "SELECT count(*) FROM T") for t in TABLES]
    assert told == [[(4,)], [(8,)], [(6,)], [(6,)]]
    export(directory, target)
    assert [query(target, t.name, "SELECT count(*) FROM T") for t in TABLES[1:]] == [[(8,)]] * 3
    assert not list(target.rglob(".*.parquet.*"))


def test_a_claimed_folder_is_shared_by_all_who_come_at_once(tmp_path: Path) -> None:
    """Many processes that find it empty do not refuse each other."""
    target = tmp_path / "out"
    program = (
        "import sys; from pathlib import Path\n"
        "from otel_taskhistory.transport.parquet_folder import claim\n"
        "sys.stdin.readline(); claim(Path(sys.argv[1]))"
    )
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(target)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ,
        )
        for _ in range(4)
    ]
    for process in racing:
        process.communicate(b"\n")
    assert [process.returncode for process in racing] == [0] * 4
    assert [path.name for path in target.iterdir()] == [MARK]


def test_no_page_is_read_by_looking_at_every_row(history: Path) -> None:
    """The rows of a task are found by an index."""
    with TaskHistory(history) as opened:
        values = {"task_id": "x", "task": 1, "after": 0, "limit": 10}
        for name, (_, sql) in parquet_tables._QUERIES.items():
            plan = opened.read(
                lambda c, sql=sql: [
                    row[3] for row in c.execute(f"EXPLAIN QUERY PLAN {sql}", values)
                ]
            )
            assert not [line for line in plan if line.startswith("SCAN")], (name, plan)


def test_the_sentence_of_the_lock_is_of_this_history_only(tmp_path: Path) -> None:
    """Other histories may write at the same time."""
    with only_writer(tmp_path, "a"), only_writer(tmp_path, "b"):
        pass
