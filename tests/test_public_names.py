# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

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
