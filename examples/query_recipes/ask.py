# SPDX-License-Identifier: Apache-2.0
"""``python ask.py FILE.sql``: the answer to a question in SQL, with nothing but Python.

``mode=ro`` opens the history without the right to change anything, while an agent writes.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path


def main() -> None:
    """Print the rows, one a line."""
    history = Path(os.environ["OTEL_TASKHISTORY_DIRECTORY"], "history.db").resolve()
    sql = Path(sys.argv[1]).read_text(encoding="utf-8")
    with closing(sqlite3.connect(f"{history.as_uri()}?mode=ro", uri=True)) as connection:
        answer = connection.execute(sql)
        print(" | ".join(column[0] for column in answer.description))
        for row in answer:
            print(" | ".join(str(value) for value in row))


if __name__ == "__main__":
    main()
