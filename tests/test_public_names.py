# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import otel_taskhistory


@pytest.mark.parametrize("name", otel_taskhistory.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Each name in `__all__` can be imported from the package, and `dir` shows it."""
    assert getattr(otel_taskhistory, name) is not None
    assert name in dir(otel_taskhistory)


def test_configure_is_the_function_whatever_was_imported_before() -> None:
    """The submodule of the same name, imported first, does not hide the function."""
    program = (
        "import otel_taskhistory.configure\n"
        "import otel_taskhistory\n"
        "from otel_taskhistory import configure\n"
        "assert callable(configure) and callable(otel_taskhistory.configure)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        otel_taskhistory.no_such_name  # noqa: B018


def test_reading_commands_do_not_load_the_sdk() -> None:
    """A command that only reads loads neither OpenTelemetry nor sqlite-utils nor Pillow."""
    program = (
        "import sys\n"
        "from otel_taskhistory.cli import cli\n"
        "cli.main(['path'], standalone_mode=False)\n"
        "heavy = {'opentelemetry', 'sqlite_utils', 'PIL', 'datasette'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_history_that_is_there_is_written_without_sqlite_utils(tmp_path: Path) -> None:
    """Which takes a third of the time of all that an agent imports, and is for making schemas."""
    program = (
        "import sys\n"
        "from otel_taskhistory import configure\n"
        "with configure(sys.argv[1]).task('a goal') as task, task.step() as step:\n"
        "    step.prompt('hello')\n"
        "print('sqlite_utils' in sys.modules)\n"
    )
    loaded = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    assert loaded == ["True\n", "False\n"]
