# SPDX-License-Identifier: Apache-2.0
"""Tasks that are taken to another history as OTLP: nothing is lost, nothing is made up."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory import TaskHistory
from otel_taskhistory.cli import cli
from otel_taskhistory.spans.otlp_write import logs_document, spans_document, to_line
from otel_taskhistory.spans.record import LogRecord
from otel_taskhistory.transport import otlp_lines
from tests.corpus.tables import RECORDINGS
from tests.recorded import PICTURES, chat, data_url, one_task, recording
from tests.store.deliveries import TRACE, check, public, rows, span, span_id, store, write

OTLP = Path(__file__).parents[1] / "data" / "otlp"

DIES = """
import os, signal, sys
import otel_taskhistory
tasks = otel_taskhistory.configure(directory=sys.argv[1], set_global=False)
task = tasks.task("begun and never ended", agent="desk").__enter__()
with task.step("whole") as step:
    step.prompt("what next?", model="m")
    step.decision("this")
step = task.step("cut").__enter__()
step.prompt("and then?", model="m")
call = step.tool_call("look", {"at": 1}).__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(*arguments: str | Path) -> Result:
    """Run the command; it must succeed."""
    result = CliRunner().invoke(cli, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result


def exported(directory: Path, *what: str) -> bytes:
    """What `export` writes."""
    target = directory.parent / f"{directory.name}.jsonl"
    run("export", *(what or ("--all",)), "-o", target, "--directory", directory, "--force")
    return target.read_bytes()


def moved(directory: Path, to: Path) -> Path:
    """The database of a new history with all that the other exports."""
    exported(directory)
    run("import", directory.parent / f"{directory.name}.jsonl", "--directory", to)
    check(to / "history.db")
    return to / "history.db"


def tables(database: Path) -> dict[str, Any]:
    """Everything public but what depends on when and by whom it was committed here."""
    found = public(database)
    tasks = [json.loads(row) for row in found["tasks"]]
    return found | {
        "tasks": [{key: row[key] for key in row if key != "process"} for row in tasks],
        "logs": rows(database, "SELECT * FROM logs ORDER BY span_id, body"),
    }


def test_real_recordings_come_through_whole(tmp_path: Path) -> None:
    """Of every instrumentation: the same rows elsewhere, and the same bytes when exported again."""
    here, there = tmp_path / "here", tmp_path / "there"
    files = [*RECORDINGS.glob("*.jsonl"), *OTLP.glob("*.jsonl")]
    CliRunner().invoke(cli, ["import", *map(str, files), "--directory", str(here)])
    database = moved(here, there)
    assert tables(database) == tables(here / "history.db")
    assert exported(there) == exported(here)
    assert len(rows(database, "SELECT 1 FROM spans")) > 800


def test_our_own_tasks_come_through_whole(tmp_path: Path) -> None:
    """Prompts with pictures, attempts, failures and what was left open, with its time."""
    here, there = tmp_path / "here", tmp_path / "there"
    killed = subprocess.run([sys.executable, "-c", DIES, str(here)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with recording(here) as tasks:
        one_task(tasks, "a growing conversation", steps=4)
        with tasks.task("pictures", agent="desk", conversation_id="c") as task, task.step() as step:
            image = {"type": "image_url", "image_url": {"url": data_url("png_ok.png")}}
            step.prompt([*chat("look"), {"role": "user", "content": [image]}], model="m")
            step.screenshot(PICTURES / "png_rgba.png", caption="before")
            step.fail("cannot see")
        cut = "SELECT task_id FROM tasks WHERE status = 'interrupted'"
        (left,) = rows(here / "history.db", cut)
        with tasks.task("again", resume=left["task_id"]) as task, task.step("more"):
            pass
    database = moved(here, there)
    mine, others = tables(here / "history.db"), tables(database)
    shots = [json.loads(row) for row in others.pop("screenshots")]
    assert {shot["status"] for shot in shots if shot["role"] == "screenshot"} == {"not_stored"}
    assert len(shots) == len(mine.pop("screenshots"))
    for name, own in mine.items():
        theirs = others[name]
        if name == "steps":  # the picture's file did not come
            theirs, own = ([_without_shot(row) for row in one] for one in (theirs, own))
        assert theirs == own, name
    assert exported(there) == exported(here)
    statuses = {row["status"] for row in rows(database, "SELECT status FROM steps")}
    assert statuses == {"succeeded", "failed", "interrupted"}


def _without_shot(row: str) -> dict[str, Any]:
    return {**json.loads(row), "screenshot": None}


def test_to_import_again_changes_nothing(tmp_path: Path) -> None:
    """Also into the history from which it came."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        one_task(tasks, steps=3)
    before, text = tables(directory / "history.db"), exported(directory)
    for _ in range(2):
        run("import", tmp_path / "history.jsonl", "--directory", directory)
    assert tables(directory / "history.db") == before
    assert exported(directory) == text


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of many spans makes many lines, each an export request of its own."""
    directory = tmp_path / "history"
    monkeypatch.setattr(otlp_lines, "SPANS", 3)
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=5)
    whole = [json.loads(line) for line in exported(directory, task_id).splitlines()]
    sizes = [
        sum(
            len(scope["spans"]) for around in one["resourceSpans"] for scope in around["scopeSpans"]
        )
        for one in whole
    ]
    assert sizes == [3, 3, 3, 2]


def test_some_tasks_to_standard_output(tmp_path: Path) -> None:
    """By any name that a task has; the rest stays here."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        one_task(tasks, "first")
        second = one_task(tasks, "second")
    args = ["export", second[:12], "-o", "-", "--format", "otlp-jsonl"]
    result = CliRunner().invoke(cli, [*args, "--directory", str(directory)])
    assert result.exit_code == 0
    assert b"second" in result.stdout_bytes
    assert b"first" not in result.stdout_bytes


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    """A file with prompts has mode 0600, and is not written over."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        one_task(tasks)
    exported(directory)
    target = tmp_path / "history.jsonl"
    assert os.stat(target).st_mode & 0o777 == 0o600
    again = CliRunner().invoke(
        cli, ["export", "--all", "-o", str(target), "--directory", str(directory)]
    )
    assert again.exit_code == 1
    assert "--force" in str(again.output) + str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "x.jsonl"], "which TASK"),
        (["latest", "--all", "-o", "x.jsonl"], "name tasks, or say --all"),
        (["latest", "--redact", "-o", "x.jsonl"], "--redact"),
        (["--all", "-o", "x.html"], "holds one task"),
        (["--all", "-o", "x.txt"], "does not say as what"),
    ],
)
def test_wrong_usage_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    """In one sentence, and nothing is written."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    where = ["--directory", str(tmp_path / "history")]
    result = CliRunner().invoke(cli, ["export", *arguments, *where])
    assert result.exit_code == 2
    assert told in result.output
    assert list(Path.cwd().iterdir()) == []


def test_a_task_that_goes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """Retention may remove a task between two lines: the others are written."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        ids = [one_task(tasks, f"goal {number}") for number in range(3)]
    file = io.BytesIO()
    with TaskHistory(directory) as history:
        gone = ["f" * 32, *ids]
        done = otlp_lines.write_otlp_lines(history, gone, file, lambda done, total: None)
    assert done.spans == 9
    assert file.getvalue().count(b"\n") == 3


def test_a_pinned_task_stays_pinned(tmp_path: Path) -> None:
    """Also when it is the oldest of more tasks than the other history keeps."""
    here, there = tmp_path / "here", tmp_path / "there"
    with recording(here) as tasks:
        ids = [one_task(tasks, f"goal {number}") for number in range(6)]
    with TaskHistory(here) as history:
        history.pin(ids[0])
        history.pin(ids[3])
    text = exported(here)
    result = CliRunner().invoke(
        cli,
        ["import", str(tmp_path / "here.jsonl"), "--directory", str(there)],
        env={"OTEL_TASKHISTORY_MAX_TASKS": "2"},
    )
    assert result.exit_code == 0, result.output
    assert "2 tasks past the limits" in result.output
    kept = rows(there / "history.db", "SELECT task_id, pinned FROM tasks ORDER BY started_ns")
    assert [row["task_id"] for row in kept] == [ids[0], *ids[3:]]
    assert [row["pinned"] for row in kept] == [1, 1, 0, 0]
    assert exported(moved(here, tmp_path / "all").parent) == text


def test_a_pin_goes_to_a_task_that_is_there(tmp_path: Path) -> None:
    """Whichever of the two came first."""
    here, there = tmp_path / "here", tmp_path / "there"
    with recording(here) as tasks:
        task_id = one_task(tasks)
    moved(here, there)
    with TaskHistory(here) as history:
        history.pin(task_id)
    (task,) = rows(moved(here, there), "SELECT pinned FROM tasks")
    assert task["pinned"] == 1


def test_log_records_come_with_what_is_known_of_them(tmp_path: Path) -> None:
    """Their marks; and those whose span never came, in whichever trace."""
    here, there = tmp_path / "here", tmp_path / "there"
    odd = {"key\ud83e": "n\ud83e", "number": 10**5_000}
    logs = [
        log("of the span", span_id(1), attributes=odd, body=odd),
        log("within a line", span_id(1), attributes={"bad": "x"}),
        log("waits", span_id(2)),
        log("waits alone", span_id(3), trace_id="e" * 32),
    ]
    document = logs_document(logs)
    (around,) = document["resourceLogs"]
    (bad,) = around["scopeLogs"][0]["logRecords"][1]["attributes"]
    bad["value"] = {"intValue": "no number"}
    lines = to_line(spans_document([span(1)])) + to_line(document)
    (tmp_path / "given.jsonl").write_bytes(lines)
    run("import", tmp_path / "given.jsonl", "--directory", here)
    found = rows(here / "history.db", "SELECT marks FROM logs WHERE marks IS NOT NULL")
    assert [json.loads(row["marks"]) for row in found] == [["attributes", "body"], ["attributes"]]
    assert tables(moved(here, there)) == tables(here / "history.db")
    assert exported(there) == exported(here)
    assert len(rows(there / "history.db", "SELECT 1 FROM logs")) == 4


def log(name: str, of: str, **said: Any) -> LogRecord:
    """A log record within a span."""
    return LogRecord(said.pop("trace_id", TRACE), of, name, **said)


def test_many_log_records_make_many_lines(tmp_path: Path) -> None:
    """Bounded by number and by size."""
    here, there = tmp_path / "here", tmp_path / "there"
    logs = [log(f"event {number}", span_id(1), time_ns=number + 1) for number in range(250)]
    large = [log("large", span_id(1), body="x" * 3_000_000 + str(n), time_ns=n) for n in (1, 2, 3)]
    (tmp_path / "given.jsonl").write_bytes(
        to_line(spans_document([span(1)])) + to_line(logs_document([*logs, *large]))
    )
    run("import", tmp_path / "given.jsonl", "--directory", here)
    lines = exported(here).splitlines()
    assert len(lines) == 1 + 4
    assert max(map(len, lines)) < 7_000_000
    assert tables(moved(here, there)) == tables(here / "history.db")


def test_a_span_that_ended_at_the_beginning_of_time_has_ended(tmp_path: Path) -> None:
    """A time of 0 stands for none in OTLP, so that it is said beside."""
    here, there = tmp_path / "here", tmp_path / "there"
    with store(here) as writer:
        write(writer, [replace(span(1), start_ns=0, end_ns=0)])
    assert tables(moved(here, there)) == tables(here / "history.db")
    (found,) = rows(there / "history.db", "SELECT status FROM tasks")
    assert found["status"] == "succeeded"


def test_a_task_that_is_named_twice_is_written_once(tmp_path: Path) -> None:
    """By its id and by its beginning."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        task_id = one_task(tasks)
    assert exported(directory, task_id, task_id[:9], "latest") == exported(directory)


def test_others_files_cannot_pin(tmp_path: Path) -> None:
    """A pin is one of the task that the span names itself, or none."""
    given = spans_document([span(1)], [{"pinnedTaskId": "f" * 32}])
    (tmp_path / "given.jsonl").write_bytes(to_line(given))
    run("import", tmp_path / "given.jsonl", "--directory", tmp_path / "history")
    assert rows(tmp_path / "history" / "history.db", "SELECT * FROM _pins") == []
