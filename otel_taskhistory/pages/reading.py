# SPDX-License-Identifier: Apache-2.0
"""The one way from the pages to the queries of `otel_taskhistory.store.overview`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from otel_taskhistory.history import TaskHistory

T = TypeVar("T")


def read(history: TaskHistory, query: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query within one short read transaction.

    Raises:
        TaskHistoryError: the history is gone, damaged, or cannot be read now.
    """
    return history.read(query)
