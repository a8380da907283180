# SPDX-License-Identifier: Apache-2.0
"""An agent on gevent, whose threads and locks are no real ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.processes import check, rows, run


@pytest.mark.skipif(
    importlib.util.find_spec("gevent") is None,
    reason="gevent is not installed (pip install gevent)",
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_greenlets_record_at_once(tmp_path: Path, when: str) -> None:
    """Patched before the package is imported, as it should be, or after it: nothing hangs and
    every step is there.
    """
    directory = tmp_path / "history"
    assert run("patched", directory, when) == "done\n"
    whole = "SELECT count(*) FROM steps WHERE status = 'succeeded' AND prompt IS NOT NULL"
    assert rows(directory, whole) == [(8 * 5,)]
    assert rows(directory, "SELECT DISTINCT status FROM tasks") == [("succeeded",)]
    check(directory)
