# SPDX-License-Identifier: Apache-2.0
"""Which receivers are tried: those that ``RECEIVERS`` names, and none when it is not set.

Each wants an environment of its own, made with the network. `make test-receivers` sets the
variable.
"""

from __future__ import annotations

import os

import pytest

from tests.receivers.environments import NAMES

_ASKED_FOR = os.environ.get("RECEIVERS", "").split()

if set(_ASKED_FOR) - {*NAMES, "all"}:
    raise pytest.UsageError(f"RECEIVERS: {' '.join(_ASKED_FOR)}: there are {', '.join(NAMES)}")

collect_ignore = [f"test_{name}.py" for name in NAMES if not {name, "all"} & set(_ASKED_FOR)]
