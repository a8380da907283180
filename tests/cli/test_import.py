# SPDX-License-Identifier: Apache-2.0
"""``import``."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli import cli
from tests.otlp import bottomless

Run = Callable[..., Result]
DATA = Path(__file__).parents[1] / "data"
OTLP = DATA / "otlp"
CORPUS = DATA / "corpus"
GOOD = (
    *("ok", "duplicate_same", "missing_root", "out_of_order", "root_first", "two_roots"),
    *("unsampled", "nul", "numbers", "bytes", "nested", "lone_surrogate", "bare_nan"),
)


def counted(directory: Path) -> tuple[int, int, int]:
    """(tasks, spans, log records) of a history."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        return tuple(  # type: ignore[return-value]
            connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("tasks", "spans", "logs")
        )


def test_a_recording_is_a_history(run: Run, directory: Path) -> None:
    """With its tasks and steps, in the history that is named."""
    done = run("import", str(OTLP / "ok.jsonl"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "imported 2 spans and 0 log records" in done.stdout
    assert counted(directory) == (1, 2, 0)
    assert run("tasks", "--all").exit_code == 0


def test_again_changes_nothing(run: Run, directory: Path) -> None:
    """In whichever order the files come."""
    files = [str(OTLP / f"{name}.jsonl") for name in GOOD]
    assert run("import", *files).exit_code == 0
    once = counted(directory)
    assert run("import", *files[::-1], *files[:3]).exit_code == 0
    assert counted(directory) == once


@pytest.mark.parametrize("first", [".jsonl", ".logs.jsonl"])
def test_spans_and_log_records_in_any_order(run: Run, directory: Path, first: str) -> None:
    """Their content meets, whichever file came first."""
    name = "openai__v2-eventonly__chat-loop-under-user-root"
    files = [str(CORPUS / f"{name}{kind}") for kind in (".jsonl", ".logs.jsonl")]
    for file in files if first == ".jsonl" else files[::-1]:
        assert run("import", file).exit_code == 0
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        prompts = [row[0] for row in connection.execute("SELECT prompt FROM steps")]
    assert prompts
    assert all(prompts)


def test_what_is_wrong_is_told_by_file_and_line(run: Run, directory: Path, tmp_path: Path) -> None:
    """Exit status 1, and the rest is in."""
    cut, deep = OTLP / "truncated_last_line.jsonl", tmp_path / "deep.jsonl"
    deep.write_bytes(bottomless())
    done = run("import", str(cut), str(deep), str(OTLP / "ok.jsonl"))
    assert done.exit_code == 1
    told = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{cut}:2", f"{deep}:1"]
    assert "2 could not be kept" in done.stdout
    assert counted(directory)[1] == 3


def test_what_belongs_to_no_span_is_told(run: Run, directory: Path) -> None:
    """Metrics and log lines outside of spans are no failure."""
    done = run("import", str(OTLP / "mixed_signals.jsonl"))
    assert done.exit_code == 0
    assert "metrics: passed over" in done.stdout
    assert "log record outside of a span: passed over" in done.stdout
    assert counted(directory)[1:] == (1, 0)


def test_json(run: Run) -> None:
    """One document, with the same numbers."""
    done = run("import", "--json", str(OTLP / "mixed_signals.jsonl"), str(OTLP / "ok.jsonl"))
    assert json.loads(done.stdout) == {
        "spans": 3,
        "logs": 0,
        "rejected": 0,
        "late": 0,
        "passed_over": {"metrics": 1, "log record outside of a span": 1},
    }


def test_compressed_and_pretty(run: Run, directory: Path, tmp_path: Path) -> None:
    """Read without being told what they are."""
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress((OTLP / "ok.jsonl").read_bytes()))
    done = run("import", str(packed), str(OTLP / "pretty_multiline.json"))
    assert done.exit_code == 0
    assert counted(directory)[1] == 3


def test_standard_input(directory: Path) -> None:
    """By the name of ``-``; a pipe of the shell is a file like any other."""
    data = (OTLP / "ok.jsonl").read_bytes()
    done = CliRunner().invoke(cli, ["import", "-", "--directory", str(directory)], input=data)
    assert done.exit_code == 0
    assert counted(directory)[1] == 2
    real = subprocess.run(
        [
            *(sys.executable, "-m", "otel_taskhistory", "import", "/dev/stdin", "-", "--json"),
            *("--directory", str(directory)),
        ],
        input=data,
        capture_output=True,
        check=False,
    )
    assert (real.returncode, real.stderr) == (0, b"")
    assert json.loads(real.stdout)["spans"] == 2


def test_a_file_that_is_not_there(run: Run, directory: Path, tmp_path: Path) -> None:
    """Is told before anything is made or written."""
    for wrong in (tmp_path / "missing.jsonl", tmp_path):
        done = run("import", str(OTLP / "ok.jsonl"), str(wrong))
        assert done.exit_code == 1
        assert str(wrong) in done.stderr
    assert run("import").exit_code == 2
    assert not directory.exists()


def test_a_run_that_was_killed_is_interrupted(run: Run, directory: Path, tmp_path: Path) -> None:
    """Nothing runs for ever that was only imported."""
    span = {
        "traceId": "1" * 32,
        "spanId": "2" * 16,
        "name": "invoke_agent",
        "startTimeUnixNano": "1760000000000000000",
        "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}],
    }
    file = tmp_path / "killed.jsonl"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert run("import", str(file)).exit_code == 0
    (task,) = json.loads(run("tasks", "--json").stdout)
    assert task["status"] == "interrupted"


def test_names_of_files_are_safe_to_print(run: Run, tmp_path: Path) -> None:
    """On a terminal a file's name does nothing."""
    evil = tmp_path / "a\x1b[31m.jsonl"
    shutil.copy(OTLP / "truncated_last_line.jsonl", evil)
    done = run("import", str(evil))
    assert done.exit_code == 1
    assert "\x1b" not in done.stderr
