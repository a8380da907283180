# SPDX-License-Identifier: Apache-2.0
"""``python -m examples.fleet_parquet [FOLDER]``: record a fleet, export it, ask it questions."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from examples.fleet_parquet.questions import QUESTIONS, opened
from examples.fleet_parquet.simulated import record_machine
from otel_taskhistory import TaskHistory
from otel_taskhistory.transport.parquet import write_parquet


def main(arguments: list[str] | None = None) -> None:
    """Do it, and print the answers."""
    parser = argparse.ArgumentParser(prog="python -m examples.fleet_parquet", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="keep everything there")
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4, help="a day and agent")
    given = parser.parse_args(arguments)
    if given.folder is not None:
        run(given.folder, given.agents, given.days, given.tasks)
        return
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        run(Path(folder), given.agents, given.days, given.tasks)


def run(folder: Path, agents: int, days: int, tasks: int) -> None:
    """Record, export and ask; histories and tables are in `folder` then."""
    tables = folder / "parquet"
    for number in range(agents):
        history = folder / "histories" / f"machine-{number:03}"
        record_machine(history, number, days=days, tasks_a_day=tasks)
        # On each machine: otel-taskhistory export --all --format parquet -o FOLDER
        with TaskHistory(history) as recorded:
            write_parquet(recorded, None, tables, lambda done, total: None)
        print(f"\r{number + 1} of {agents} machines", end="", file=sys.stderr, flush=True)
    files = [path for path in tables.rglob("*.parquet") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"\r{agents} machines: {len(files)} files, {size / 1e6:.1f} MB\n", file=sys.stderr)
    with opened(tables) as connection:
        for question, sql in QUESTIONS.items():
            print(question)
            print(connection.sql(sql))


if __name__ == "__main__":
    main()
