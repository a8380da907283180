# SPDX-License-Identifier: Apache-2.0
"""Kill an agent at random moments, many times, and look at its history after each.

    python -m tests.crash.torture --rounds 200 --seed 1

An agent with four threads records tasks with prompts, tools and screenshots, and says after each
call that it has returned. It is killed (SIGKILL) after a random time, after a random number of
calls, by itself right after a call, or while it opens the history. What must hold then is in
`checks`; the next round goes on in the same history. Exit status 1 and the seed when something
does not hold; the history is kept then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.crash.checks import (
    CHECKPOINTS_WAIT,
    INTERRUPTED_IS_MARKED,
    ORPHANS_ARE_SWEPT,
    Broken,
    Checker,
    hold,
)
from tests.crash.reports import Seen, read

_ROOT: Final = Path(__file__).resolve().parents[2]
_STUCK_SECONDS: Final = 60.0  # an agent that has said nothing for so long will never
WAYS = ("time", "time", "count", "count", "itself", "itself", "opening", "new")
_SUMMARY_EVERY: Final = 20


@dataclass(slots=True)
class Summary:
    """What happened in all rounds so far."""

    ways: Counter[str] = field(default_factory=Counter)
    """How the agents were killed."""
    steps: int = 0
    """Steps whose end had returned."""
    open_steps: int = 0
    """Steps that were running when their agent was killed."""
    checkpoints: int = 0
    """Checkpoints that had returned and were there."""
    unconfirmed: int = 0
    """Checkpoints that had returned while others were being committed, just before the kill."""

    def add(self, seen: Seen) -> None:
        """Count a round."""
        self.steps += sum(step.ended for step in seen.steps)
        self.open_steps += sum(not step.ended for step in seen.steps)
        returned = sum(len(step.returned) for step in seen.steps)
        self.checkpoints += returned - seen.unconfirmed
        self.unconfirmed += seen.unconfirmed


class Agent:
    """An agent process that has imported everything and waits for its orders."""

    def __init__(self, errors: Path) -> None:
        self._errors_path = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.torture_agent"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._said = b""

    def order(self, **orders: Any) -> None:
        """Let it begin."""
        self._stdin.write(json.dumps(orders).encode() + b"\n")
        self._stdin.close()

    def listen(
        self, *, until: Callable[[bytes], bool] | None = None, seconds: float | None = None
    ) -> None:
        """Hear it until what it said is enough, the time is over, or it has nothing more to say.

        Raises:
            Broken: it says nothing any more.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while until is None or not until(self._said):
            left = _STUCK_SECONDS if deadline is None else max(deadline - time.monotonic(), 0)
            if not select.select([self._stdout], [], [], left)[0]:
                hold(deadline is not None, "the agent is stuck")
                return
            said = os.read(self._stdout.fileno(), 1 << 16)
            if not said:
                return
            self._said += said

    def kill(self) -> list[str]:
        """Kill it; all it said before.

        Raises:
            Broken: it had trouble of its own.
        """
        self._process.send_signal(signal.SIGKILL)
        self.listen()
        status = self._process.wait()
        self.close()
        errors = self._errors_path.read_text()
        hold(not errors, "the agent had trouble:", errors)
        hold(status in (0, -signal.SIGKILL), "the agent left with", status)
        # Killed within a write, the last line may be cut.
        return self._said.decode().rpartition("\n")[0].splitlines()

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


def torture(
    directory: Path,
    rounds: int,
    seed: int,
    tell: Callable[[str], None] = print,
    *,
    threads: int = 4,
) -> Summary:
    """Torture a new history in `directory`; what happened.

    Raises:
        Broken: a promise does not hold.
    """
    chance = random.Random(seed)
    deck: list[str] = []
    summary = Summary()
    checker = Checker(directory / "history")
    errors = directory / "stderr"
    agent = Agent(errors)
    try:
        for number in range(rounds):
            if not deck:
                deck = chance.sample(WAYS, len(WAYS))
            way = deck.pop()
            alone = chance.random() < 0.25
            lines = _one_round(
                agent, checker.directory, number, way, chance, 1 if alone else threads
            )
            # The next one imports while we look.
            agent = Agent(directory / f"stderr-{number % 2}")
            summary.ways[way] += 1
            if way == "new":
                agent = _go_on(agent, _place(checker.directory, number, way), number, errors)
            else:
                seen = read(lines, alone=alone or CHECKPOINTS_WAIT)
                checker.check(seen)
                summary.add(seen)
            if (number + 1) % _SUMMARY_EVERY == 0 and checker.begun:
                checker.check_all()
                tell(f"round {number + 1}: {_text(summary, checker)}")
        checker.make_orphans_old()
        agent.order(**_orders(checker.directory, rounds, threads=threads, tasks=3))
        agent.listen()
        seen = read(agent.kill(), alone=False)
        hold(seen.closed, "the last agent could not end")
        checker.check(seen)
        checker.check_all()
        summary.add(seen)
        tell(f"all {rounds} rounds and a clean end, seed {seed}: {_text(summary, checker)}")
        return summary
    finally:
        agent.close()


def _one_round(
    agent: Agent, history: Path, number: int, way: str, chance: random.Random, threads: int
) -> list[str]:
    """Let the agent work, and kill it; what it had said."""
    count = chance.randrange(1, 300)
    orders = _orders(_place(history, number, way), number, threads=threads)
    orders["durability"] = chance.choice(("full", "normal"))
    if way == "itself":
        agent.order(**orders, kill_at=count)
        agent.listen()
    elif way == "count":
        agent.order(**orders)
        agent.listen(until=lambda said: said.count(b"\n") >= count)
    elif way == "time":
        agent.order(**orders)
        agent.listen(until=lambda said: b"open\n" in said)
        agent.listen(seconds=chance.uniform(0, 0.8))
    else:
        agent.order(**orders)
        agent.listen(until=lambda said: b"opening\n" in said)
        agent.listen(seconds=chance.uniform(0, 0.1 if way == "opening" else 0.4))
    return agent.kill()


def _go_on(agent: Agent, history: Path, number: int, errors: Path) -> Agent:
    """A history whose first agent was killed while making it must be good for the next.

    Returns:
        A new agent.
    """
    agent.order(**_orders(history, number, threads=2, tasks=2))
    agent.listen()
    seen = read(agent.kill(), alone=False)
    agent = Agent(errors)
    hold(seen.closed, "the agent could not go on in a history that was being made")
    Checker(history).check(seen)
    shutil.rmtree(history)
    return agent


def _place(history: Path, number: int, way: str) -> Path:
    return history.with_name(f"new-{number}") if way == "new" else history


def _orders(
    history: Path, number: int, *, threads: int, tasks: int | None = None
) -> dict[str, Any]:
    return {
        "directory": str(history),
        "round": number,
        "threads": threads,
        "durability": "full",
        "tasks": tasks,
    }


def _text(summary: Summary, checker: Checker) -> str:
    ways = ", ".join(f"{count} by {way}" for way, count in sorted(summary.ways.items()))
    size = (checker.directory / "history.db").stat().st_size
    return (
        f"{summary.steps} steps ended and whole, {summary.open_steps} were running,"
        f" {summary.checkpoints + summary.unconfirmed} checkpoints had returned,"
        f" {checker.late} of them while another commit was in progress at the kill;"
        f" killed {ways}; {len(checker.hashed)} pictures, {checker.orphans} files without rows"
        f"{'' if ORPHANS_ARE_SWEPT else ' (sweep not checked)'};"
        f" {checker.interrupted} steps interrupted, {checker.left_running} rows left running"
        f"{'' if INTERRUPTED_IS_MARKED else ' (not checked)'}; {size / 2**20:.1f} MiB"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--directory", type=Path, help="default: a temporary one")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="torture-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"{chosen.rounds} rounds with seed {seed} in {directory}", flush=True)
    try:
        torture(
            directory,
            chosen.rounds,
            seed,
            lambda line: print(line, flush=True),
            threads=chosen.threads,
        )
    except Broken as error:
        print(f"BROKEN: {error}", file=sys.stderr)
        print(
            f"again: python -m tests.crash.torture --rounds {chosen.rounds} --seed {seed};"
            f" the history is in {directory}",
            file=sys.stderr,
        )
        return 1
    if chosen.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
