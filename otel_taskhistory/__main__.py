# SPDX-License-Identifier: Apache-2.0
"""``python -m otel_taskhistory`` is the command ``otel-taskhistory``."""

from __future__ import annotations

from otel_taskhistory.cli import main

if __name__ == "__main__":
    main()
