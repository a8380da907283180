# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: no test meets the histories or settings of whoever runs it."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from otel_taskhistory.recording import sink

# Time is no measure on a machine that others use too; in CI the same examples every time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

# pytest-xdist tells its workers the width of its own screen.
os.environ.pop("COLUMNS", None)

# What a shell starts in the background ignores Ctrl-C, and so would the programs that tests start
# and end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: no garbage collection has to look at it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders in one of their own: pytest looks through all there are for each one it makes."""
    parent = tmp_path_factory.mktemp("homes")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _environment_of_its_own(monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]) -> None:
    """Give the test, and programs it starts, no ``OTEL_*`` settings and an empty home."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    home = next(_homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_exporter_of_another_test() -> Iterator[None]:
    """A test that fails before it closes its exporter must not fail the next ones too."""
    before = set(sink._live)
    yield
    for left in set(sink._live) - before:
        sink._live.pop(left, None)
