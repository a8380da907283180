# SPDX-License-Identifier: Apache-2.0
"""Another process that reads a history: its tasks and steps as JSON, by plain SQL.

Argument: the directory of the history.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path


def main() -> None:
    """Print what is there."""
    uri = f"{(Path(sys.argv[1]) / 'history.db').as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=30)
    connection.row_factory = sqlite3.Row
    found = {
        name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
        for name in ("tasks", "steps", "model_calls", "tool_calls", "screenshots")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
