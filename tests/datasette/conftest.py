# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Datasette plugin share; they run on Datasette 0.65 and on 1.0."""

from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasette", reason="an extra")

from datasette.app import Datasette
from datasette.plugins import pm

from otel_taskhistory import datasette_plugin
from otel_taskhistory.datasette_plugin.server import _close

from .recorded_here import Recorded, record_everything

if not pm.is_registered(datasette_plugin):  # where the package is not installed
    pm.register(datasette_plugin, name="taskhistory")

Open = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def _datasettes_own_connections() -> Iterator[None]:
    """Datasette closes few of its connections, of which Python warns since 3.13."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same while a test runs, as pytest sets its own filters then."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(r"ignore:unclosed database:ResourceWarning"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


@pytest.fixture(scope="session")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A history with a task that shows everything, and one that failed; nobody writes to it."""
    return record_everything(tmp_path_factory.mktemp("recorded") / "history")


@pytest.fixture
def recorded(recorded_once: Recorded, directory: Path) -> Recorded:
    """A copy of it, which the test may change."""
    shutil.copytree(recorded_once.directory, directory)
    return replace(recorded_once, directory=directory)


@pytest.fixture
async def open_datasette() -> AsyncIterator[Open]:
    """Opens files as ``datasette FILE…`` does; closed when the test ends."""
    opened: list[Datasette] = []

    async def start(*files: Path, **options: Any) -> Datasette:
        datasette = Datasette([str(file) for file in files], **options)
        opened.append(datasette)
        await datasette.invoke_startup()
        return datasette

    yield start
    for datasette in opened:
        _close(datasette)


@pytest.fixture
async def datasette(recorded: Recorded, open_datasette: Open) -> Datasette:
    """Datasette with that history, as somebody starts it himself."""
    return await open_datasette(recorded.database)
