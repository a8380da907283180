# SPDX-License-Identifier: Apache-2.0
"""Mark 10: resident memory of a process that records very many steps, against its first 10,000.

By default 100,000 steps; with ``BENCH_MILLION=1`` in the environment a million, which takes hours.
The history is kept within a limit meanwhile, as it would be. Linux only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import large, ours
from bench.harness import Benchmark, Check, Result, one, say
from bench.million_steps import MILLION
from bench.peers import workload
from otel_taskhistory import Retention

ABOUT: Final = Benchmark(10, "memory of a process that records many steps", slow=True)

FIRST: Final = 10_000
STEPS_PER_TASK: Final = 100
LIMITS: Final = Retention(None, 100, None)


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    if not Path("/proc/self/statm").exists():
        sys.exit("this benchmark reads /proc/self/statm, which is not there")
    first = 200 if quick else FIRST
    steps = 600 if quick else 1_000_000 if os.environ.get(MILLION) else 100_000
    found = dict(measured(steps, first))
    after = found[first]
    name = f"after {first:,} steps"
    result = Result("memory", ABOUT, quick)
    for count, resident in found.items():
        # The beginning, and then each tenth of the whole.
        if count in (0, first, steps) or count % (steps // 10) == 0:
            row = f"after {count:,} steps"
            result.series.append(one(row, resident, "B", than=None if row == name else name))
    what = f"after {steps:,} steps, times after {first:,}"
    result.checks.append(Check(what, found[steps] / after, 1.2))
    if not quick and steps < 1_000_000:
        result.notes.append(f"{steps:,} steps, not a million: {MILLION}=1 records that many.")
    return result


def measured(steps: int, every: int) -> Iterator[tuple[int, int]]:
    """(steps recorded, bytes of resident memory) after every so many, in a process of its own."""
    command = [sys.executable, "-m", "bench.memory", str(steps), str(every)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        count, resident = json.loads(line)
        say(f"{count:,} steps: {resident / 1e6:.1f} MB")
        yield count, resident
    if process.wait():
        raise RuntimeError("the process that records has failed")


def record(steps: int, every: int) -> None:
    """In that process."""
    texts = workload.Texts(10)
    with ours.recorder(durability="normal", retention=LIMITS) as recorded:
        _tell(0)
        for start in range(0, steps, STEPS_PER_TASK):
            large.task(recorded.tasks, texts, STEPS_PER_TASK)
            done = start + STEPS_PER_TASK
            if done % every == 0:
                ours.settle(recorded.exporter)
                _tell(done)


def _tell(done: int) -> None:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    print(json.dumps([done, pages * os.sysconf("SC_PAGE_SIZE")]), flush=True)


if __name__ == "__main__":
    record(int(sys.argv[1]), int(sys.argv[2]))
