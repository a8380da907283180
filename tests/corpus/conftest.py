# SPDX-License-Identifier: Apache-2.0
"""A history of each recording, made once for all tests that only read it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.corpus.tables import entries, history


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the database of a history of a recording that came all at once."""

    @cache
    def made(name: str) -> Path:
        return history(tmp_path_factory.mktemp(name[:40]), [entries(name)])

    return made
