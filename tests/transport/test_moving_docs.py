# SPDX-License-Identifier: Apache-2.0
"""``docs/moving.md``: commands and programs run as they are printed, and say what stands below."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from otel_taskhistory import TaskHistory
from otel_taskhistory.spans import otlp_file
from otel_taskhistory.spans.otlp_write import known_of
from otel_taskhistory.store import importing
from otel_taskhistory.transport import otlp_lines
from otel_taskhistory.transport.parquet import write_parquet
from otel_taskhistory.transport.parquet_folder import _NAME_MOST, NO_AGENT
from otel_taskhistory.transport.parquet_tables import _ORIGIN, TABLES
from tests.recorded import one_task, recording
from tests.transport.forwarding import ROOT, environ

PAGE = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")


def test_commands_say_what_the_page_says(tmp_path: Path) -> None:
    """All of them in one shell, one after the other, on a history of two tasks."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks, steps=2)
        one_task(tasks, steps=2)
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for line in "".join(blocks).splitlines() if "pip install" not in line]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert len(commands) > 12
    # The command of this tree, whichever one is installed.
    program = tmp_path / "bin" / "otel-taskhistory"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m otel_taskhistory "$@"\n')
    program.chmod(0o700)
    done = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(commands)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=tmp_path,
        env=environ(
            OTEL_TASKHISTORY_DIRECTORY=str(tmp_path / "history"),
            PATH=f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
        ),
    )
    assert done.stdout.splitlines() == [line for line in lines if not line.startswith("$ ")]


def test_programs_read_what_was_written(tmp_path: Path) -> None:
    """As they are printed, in the folder that the commands before them have made."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks, steps=2)
        with tasks.task("nobody's"):
            pass
    with TaskHistory(tmp_path / "history") as history:
        write_parquet(history, None, tmp_path / "tables", lambda done, total: None)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    for text in programs:
        kept = re.sub(r"^(duckdb\.sql|ds\.dataset)", r"found = \1", text, flags=re.MULTILINE)
        assert kept != text
        done = subprocess.run(
            [sys.executable, "-c", f"{kept}\nprint(len(found))"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environ(),
        )
        assert (done.stdout, done.stderr) == ("2\n", "")


def test_what_is_added_is_named() -> None:
    """Tables, columns and limits."""
    text = " ".join(PAGE.split())
    assert f"At most {otlp_lines.SPANS} spans or log records and about" in text
    assert f"about {otlp_lines.BYTES // 2**20} MiB stand in one" in text
    assert f"may have {otlp_file.LONGEST // 2**20} MiB" in text
    assert f"at most {importing.RECORDS} records at a time" in text
    fields = known_of(["name"], interrupted_ns=1, ended=True, pinned="x")
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(fields)
    assert f"More than {_NAME_MOST} characters" in text
    assert NO_AGENT in text
    for name in (*_ORIGIN, "agent_name", "step_agent", *(table.name for table in TABLES)):
        assert f"`{name}`" in text
