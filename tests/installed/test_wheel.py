# SPDX-License-Identifier: Apache-2.0
"""The wheel and the source distribution, used as users use them: installed, outside a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.installed.environment import ROOT, built, installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", folder)) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Its eight goals are in the history afterwards; nothing of the checkout is used."""
    python = installed(wheel, tmp_path / "environment")
    history = tmp_path / "history"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "PYTHON"))}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(python), "-W", "error", "-m", "otel_taskhistory", *arguments],
            cwd=tmp_path,
            env=environment | {"OTEL_TASKHISTORY_DIRECTORY": str(history)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    run("demo")
    tasks = json.loads(run("tasks", "--json"))
    assert len(tasks) == 8
    assert {task["status"] for task in tasks} == {"succeeded", "failed"}
    assert str(ROOT) not in run("show", "latest")
    assert json.loads(run("stats", "--json"))["screenshots"] > 8


def test_the_source_distribution_makes_the_same_wheel(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    """Who builds it himself gets what we ship, file by file."""
    (again,) = [built("wheel", tmp_path, unpacked)]
    contents = []
    for path in (wheel, again):
        with zipfile.ZipFile(path) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]


def test_the_source_distribution_has_what_distributors_need(unpacked: Path) -> None:
    """Tests, documentation, examples and licence; nothing that tools leave behind."""
    names = {path.name for path in unpacked.iterdir()}
    assert {"tests", "docs", "examples", "LICENSE", "CHANGELOG.md", "Makefile"} <= names
    assert not names & {".venv", ".cache", "dist", ".git"}
    assert not list(unpacked.rglob("__pycache__"))
