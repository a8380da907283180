# SPDX-License-Identifier: Apache-2.0
"""Opens a history as a user who may write nowhere; for tests that run as root.

Argument: the directory.
"""

from __future__ import annotations

import os
import sys

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.exporter import TaskHistoryExporter

NOBODY = 65534


def main() -> None:
    """Print what the error says."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        TaskHistoryExporter(sys.argv[1])
    except TaskHistoryError as error:
        print(f"{type(error).__name__}: {error}")
        return
    sys.exit("it was opened")


if __name__ == "__main__":
    main()
