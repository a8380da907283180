# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: no test meets the histories or settings of whoever runs it."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# Time is no measure on a machine that others use too; in CI the same examples every time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

# pytest-xdist tells its workers the width of its own screen.
os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def _environment_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Give the test, and programs it starts, no ``OTEL_*`` settings and an empty home."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    home: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
