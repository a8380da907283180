# SPDX-License-Identifier: Apache-2.0
"""Which frameworks are run: those that ``FRAMEWORKS`` names, and none when it is not set.

Each wants an environment of its own, made with the network. `make test-frameworks` sets the
variable; what else is in this folder is part of `make test`.
"""

from __future__ import annotations

import os

import pytest

from tests.frameworks.environments import NAMES
from tests.frameworks.expected import FRAMEWORKS

_ASKED_FOR = os.environ.get("FRAMEWORKS", "").split()

collect_ignore = [] if _ASKED_FOR else ["test_runs.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a `framework` is run once for each that was asked for."""
    if "framework" in metafunc.fixturenames:
        unknown = set(_ASKED_FOR) - {*NAMES, "all"}
        if unknown:
            raise pytest.UsageError(f"FRAMEWORKS: {', '.join(sorted(unknown))}: not one of {NAMES}")
        wanted = [f for f in FRAMEWORKS if f.name in _ASKED_FOR or "all" in _ASKED_FOR]
        metafunc.parametrize("framework", wanted, ids=[f.name for f in wanted], scope="module")
