# SPDX-License-Identifier: Apache-2.0
"""Mark 5: steps a second of 32 agents in one process against one, with an fsync of 5 ms and as is.

The agents are threads, or asyncio tasks that leave their steps with ``async with``; each carries
out a task of its own, every step with a prompt, a decision, a tool call and a result, durable
(``full``). ``slow_fsync.c`` makes fsync slow where there is a C compiler; else strace does.
`bench.slow_disk_agents` is the process that is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench import ours
from bench.harness import Benchmark, Check, Result, measure, ratio, say

ABOUT: Final = Benchmark(5, "32 threads, and 32 asyncio tasks, of durable steps on a slow disk")

SLOW_MS: Final = 5
MANY: Final = 32
KINDS: Final = ("threads", "asyncio")
SHIM: Final = Path(__file__).parent / "slow_fsync.c"


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    rounds, seconds = (1, 0.3) if quick else (7, 2.0)
    result = Result("slow_disk", ABOUT, quick)
    with ExitStack() as stack:
        folder = stack.enter_context(ours.folder())
        how, command, variables = slowed(folder)
        slow = stack.enter_context(agents([*command, sys.executable], variables))
        bare = stack.enter_context(agents([sys.executable], {}))
        for disk, ask, mark in (
            (f"fsync of {SLOW_MS} ms", slow, 8.0),
            ("bare machine", bare, 1.5),
        ):
            names = {
                (kind, number): f"{disk}: {_who(number, kind)}"
                for kind in KINDS
                for number in (1, MANY)
            }
            sides = {
                name: _side(ask, kind, number, seconds) for (kind, number), name in names.items()
            }
            say(f"{disk} ...")
            series = measure(rounds, sides, unit="/s")
            result.series += series
            for kind in KINDS:
                one, many = (result.find(names[kind, number]) for number in (1, MANY))
                what = f"{disk}, {kind}: steps a second of {MANY}, times those of one"
                result.checks.append(Check(what, ratio(many, one), mark, at_most=False))
        for name, ask in (("slow", slow), ("bare", bare)):
            cost = ask("cpu", 1, seconds)[0]
            result.notes.append(f"CPU of a step, {name}, one thread: {cost:.2f} ms.")
    result.notes.append(f"fsync is made slow by {how}.")
    return result


Ask = Callable[[str, int, float], Sequence[float]]


@contextmanager
def agents(command: Sequence[str], variables: dict[str, str]) -> Iterator[Ask]:
    """A process with agents, and how to let some of them work for a while."""
    process = subprocess.Popen(
        [*command, "-m", "bench.slow_disk_agents"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answers = process.stdin, process.stdout

    def ask(kind: str, number: int, seconds: float) -> Sequence[float]:
        print(json.dumps([kind, number, seconds]), file=asked, flush=True)
        line = answers.readline()
        if not line:
            raise RuntimeError("the process with the agents has died")
        found: Sequence[float] = json.loads(line)
        return found

    try:
        yield ask
    finally:
        asked.close()
        process.wait()


def slowed(folder: Path) -> tuple[str, list[str], dict[str, str]]:
    """How fsync is made slow here: (in words, a command to put before, environment variables).

    Raises:
        SystemExit: there is neither a C compiler nor strace, or this is not Linux.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is not None:
        library = folder / "slow_fsync.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SHIM), "-ldl"]
        subprocess.run(command, check=True)
        micros = str(SLOW_MS * 1000)
        return "a preloaded shim", [], {"LD_PRELOAD": str(library), "SLOW_FSYNC_US": micros}
    if shutil.which("strace") is not None:
        delay = f"inject=fsync,fdatasync:delay_enter={SLOW_MS * 1000}"
        trace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fsync,fdatasync"]
        return "strace", [*trace, "-e", delay], {}
    sys.exit("this benchmark needs a C compiler (cc, or CC) or strace to make fsync slow")


def _side(ask: Ask, kind: str, number: int, seconds: float) -> Callable[[], Sequence[float]]:
    return lambda: ask(kind, number, seconds)


def _who(number: int, kind: str) -> str:
    if kind == "asyncio":
        return "one asyncio task" if number == 1 else f"{number} asyncio tasks"
    return "one thread" if number == 1 else f"{number} threads"
