# SPDX-License-Identifier: Apache-2.0
"""Writes the golden tables anew: ``python -m tests.corpus.make_golden``.

What it writes is what the code says now. Read each difference against what the recorded program
did before it is committed: the tables are worth what that reading was.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.corpus.tables import GOLDEN, NAMES, entries, family, history, table


def main() -> None:
    """Write the tables of all recordings, a file for each framework."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in NAMES:
        with tempfile.TemporaryDirectory() as directory:
            found[family(name)][name] = table(history(Path(directory), [entries(name)]))
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.json"):
        old.unlink()
    for framework, tables in found.items():
        text = json.dumps(tables, ensure_ascii=False, indent=1)
        (GOLDEN / f"{framework}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
