# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli import cli

Run = Callable[..., Result]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


@pytest.fixture
def run(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on that history, on a screen of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TZ", "UTC")

    def command(*arguments: str, columns: int = 100) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        return CliRunner().invoke(cli, [*arguments, "--directory", str(directory)])

    return command
