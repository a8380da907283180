# SPDX-License-Identifier: Apache-2.0
"""Mark 11: the time of `import otel_taskhistory` against importing the OTel SDK and sqlite-utils.

Each import happens in a new process, which takes the time of the import itself; the files compiled
by Python are there. Our public names are loaded when they are used, so the table also shows what an
agent waits for in the end: the import of `configure` and all that is behind it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from bench import ours
from bench.harness import Benchmark, Check, Result, Side, measure, ratio

ABOUT: Final = Benchmark(11, "import otel_taskhistory, against the OTel SDK and sqlite-utils")

FLOOR: Final = "OTel SDK and sqlite-utils"
IMPORTS: Final = {
    "import otel_taskhistory": "import otel_taskhistory",
    "with all behind configure": "from otel_taskhistory import configure",
    FLOOR: "import opentelemetry.sdk.trace, opentelemetry.sdk.trace.export, sqlite_utils",
}
ONLY_WHEN_USED: Final = ("PIL", "datasette", "google.protobuf")

_TIMED: Final = """
import time
began = time.perf_counter()
{0}
print((time.perf_counter() - began) * 1000)
"""

_RECORDED: Final = """
import json, sys
import otel_taskhistory
tasks = otel_taskhistory.configure(sys.argv[1])
with tasks.task("a goal") as task, task.step() as step:
    step.prompt([{"role": "user", "content": "hello"}], model="large")
    step.decision("hello")
print(json.dumps([name for name in sys.argv[2:] if name in sys.modules]))
"""


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    sides = {name: _side(statement) for name, statement in IMPORTS.items()}
    series = measure(2 if quick else 25, sides, than=FLOOR)
    with ours.folder() as folder:
        loaded = json.loads(_python(_RECORDED, str(folder / "history"), *ONLY_WHEN_USED))
    checks = [Check("import otel_taskhistory, times the floor", ratio(series[0], series[-1]), 1.25)]
    names = ", ".join(ONLY_WHEN_USED)
    checks.append(Check(f"of {names}: loaded by recording a step", len(loaded), 0))
    return Result("import_time", ABOUT, quick, series, checks)


def _side(statement: str) -> Side:
    def side() -> Sequence[float]:
        return [float(_python(_TIMED.format(statement)))]

    return side


def _python(program: str, *arguments: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", program, *arguments]
    # The round that warms up is to leave compiled files behind, whatever is set here.
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    return done.stdout
