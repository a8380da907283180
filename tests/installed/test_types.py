# SPDX-License-Identifier: Apache-2.0
"""The types of the public API, as a type checker of somebody who installed the wheel sees them."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
from pathlib import Path

import pytest

import otel_taskhistory
from otel_taskhistory import Step, Task, TaskHistory, TaskTracer, ToolCall
from tests.installed.environment import built, installed

CLIENT = Path(__file__).parent / "client.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel."""
    pytest.importorskip("mypy", reason="mypy is only in the environment of make test")
    folder = tmp_path_factory.mktemp("typed")
    return installed(built("wheel", folder), folder / "environment")


def checked(python: Path, program: Path) -> tuple[int, str]:
    """Exit status and output of a strict check with what is installed for a Python."""
    done = subprocess.run(
        [*(str(python), "-m", "mypy", "--strict", "--no-incremental"), str(program)],
        cwd=python.parent,  # no configuration of ours, and not our sources
        env={key: value for key, value in os.environ.items() if key != "MYPYPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_typed_program_passes_the_strict_check(python: Path) -> None:
    """Nothing that the package gives or takes is untyped, or another type than is said."""
    where = "import otel_taskhistory; print(otel_taskhistory.__file__)"
    done = subprocess.run(
        [str(python), "-c", where], cwd=python.parent, capture_output=True, text=True, check=True
    )
    assert str(python.parent.parent) in done.stdout
    status, said = checked(python, CLIENT)
    assert (status, said.strip()) == (0, "Success: no issues found in 1 source file")


def test_the_check_finds_wrong_types(python: Path, tmp_path: Path) -> None:
    """Were the package untyped, everything would pass."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from otel_taskhistory import Retention, TaskHistory\n"
        "Retention(max_tasks='1')\n"
        "TaskHistory('x').task('latest').goals\n"
    )
    status, said = checked(python, wrong)
    assert status == 1
    assert said.count("error: ") == 2
    assert "[arg-type]" in said
    assert "[attr-defined]" in said


def test_the_program_uses_all_of_the_public_api() -> None:
    """Every public name, and every public method and property of what users hold in hand."""
    tree = ast.parse(CLIENT.read_text("utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set(otel_taskhistory.__all__) <= used
    public = {
        name
        for cls in (TaskHistory, TaskTracer, Task, Step, ToolCall)
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }
    assert public - used - NOT_FOR_USERS == set()
    assert public >= NOT_FOR_USERS


NOT_FOR_USERS = {"at", "enclosing", "ended_before", "entered", "is_here", "span_context"}
"""Between our own modules; they are not in the documentation."""
