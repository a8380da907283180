# SPDX-License-Identifier: Apache-2.0
"""What a history says of recorded runs is what was seen to be right, by eye, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.tables import GOLDEN, NAMES, family, table
from tests.store.deliveries import check


@cache
def golden(framework: str) -> dict[str, Any]:
    """The tables of a framework."""
    tables: dict[str, Any] = json.loads((GOLDEN / f"{framework}.json").read_text(encoding="utf-8"))
    return tables


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run(recorded: Callable[[str], Path], name: str) -> None:
    """Tasks, steps, tools, tokens, and the first and last words of what was said."""
    database = recorded(name)
    check(database)
    # As JSON: what cannot be told apart there is the same.
    assert json.loads(json.dumps(table(database))) == golden(family(name)).get(name)


def test_no_table_is_left_of_a_recording_that_is_gone() -> None:
    """Each golden table has its recording."""
    kept = {name for file in GOLDEN.glob("*.json") for name in golden(file.stem)}
    assert kept == set(NAMES)
