# SPDX-License-Identifier: Apache-2.0
"""``python -m host_agent [GOAL…]``: run the demo's goals, or yours, and record them."""

from __future__ import annotations

import sys

from otel_taskhistory import TaskHistoryError

from .demo import run_demo

try:
    ids = run_demo(out=sys.stdout, goals=sys.argv[1:] or None)
except TaskHistoryError as error:
    sys.exit(f"host_agent: {error}")
print("\nSee what happened with:  otel-taskhistory show", ids[-1])
