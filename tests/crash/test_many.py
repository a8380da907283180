# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import many


def test_four_agents_one_history_readers_and_datasette(tmp_path: Path) -> None:
    """All steps are there, no process has trouble, the write-ahead log stays bounded.

    ``python -m tests.crash.many`` does 4 × 500 steps.
    """
    pytest.importorskip("datasette", reason="Datasette is not installed (the test group has it)")
    summary = many.run(tmp_path, agents=4, steps=40)
    assert summary.steps == 160
    assert summary.reads > 0
    assert summary.pages > 0
