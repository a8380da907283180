# SPDX-License-Identifier: Apache-2.0
"""Mark 1: what an agent waits for in a durable step, against raw sqlite3 with the same commits.

A task of 200 steps by our own tracer, with all checkpoints: start, prompt, decision, tool call and
its end, end. A step brings 2 KB of new text; the prompt is the system message and as many of the
last messages as fit into 20 KB. The floor commits the same new bytes into a table of its own, as
often, the last time with an fsync, and makes JSON of the prompt once, as any agent must.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import ours
from bench.harness import Benchmark, Check, Result, measure, ratio
from bench.peers.workload import Texts
from otel_taskhistory import Task

ABOUT: Final = Benchmark(1, "a durable step against raw sqlite3 with the same commits and bytes")

STEPS: Final = 200
"""Of a task."""
STEPS_PER_ROUND: Final = 20
PROMPT_BYTES: Final = 20_000

Messages = list[dict[str, Any]]
Turn = tuple[Messages, str, dict[str, str], str]
"""(prompt, decision, arguments of the tool, its result)"""


class Talk:
    """An agent's conversation that is trimmed to fit; 2 KB come with each step."""

    def __init__(self, seed: int) -> None:
        self._texts = Texts(seed)
        self._messages: Messages = [{"role": "system", "content": self._texts.text(1000)}]
        self.step = 0

    def next(self) -> Turn:
        """(prompt, decision, arguments of the tool, its result) of the next step."""
        self.step += 1
        answer, result = self._texts.text(500), self._texts.text(1300)
        arguments = {"page": self._texts.text(200)}
        prompt = list(self._messages)
        call = {"id": f"c{self.step}", "type": "function"}
        function = {"name": "open", "arguments": json.dumps(arguments)}
        said = {
            "role": "assistant",
            "content": answer,
            "tool_calls": [{**call, "function": function}],
        }
        shown = {"role": "tool", "tool_call_id": f"c{self.step}", "content": result}
        self._messages += [said, shown]
        while sum(len(json.dumps(message)) for message in self._messages) > PROMPT_BYTES:
            del self._messages[1:3]
        return prompt, answer, arguments, result


class Agent:
    """Our side: takes the steps of one task after another."""

    def __init__(self, recorded: ours.Recorder) -> None:
        self._recorded = recorded
        self._rounds = self._all_rounds()
        self.rested: list[float] = []
        """After each round, the ms a step that indexing took while the agent rested."""

    def round(self) -> Sequence[float]:
        """Some steps without a pause between them, then a rest; ms of each step."""
        took = next(self._rounds)
        began = time.perf_counter_ns()
        # Else it would be done while the floor is measured.
        ours.settle(self._recorded.exporter)
        self.rested.append((time.perf_counter_ns() - began) / 1e6 / STEPS_PER_ROUND)
        return took

    def _all_rounds(self) -> Iterator[Sequence[float]]:
        seed = 0
        while True:
            talk = Talk(seed)
            with self._recorded.tasks.task(f"goal {seed}") as task:
                for _ in range(STEPS // STEPS_PER_ROUND):
                    turns = [talk.next() for _ in range(STEPS_PER_ROUND)]
                    yield [self._step(task, turn) for turn in turns]
            seed += 1

    def _step(self, task: Task, turn: Turn) -> float:
        prompt, answer, arguments, result = turn
        began = time.perf_counter_ns()
        with task.step("look") as step:
            step.prompt(prompt, model="large")
            step.decision(answer, usage={"input_tokens": 5000, "output_tokens": 100})
            with step.tool_call("open", arguments, call_id="c") as call:
                call.result(result)
            step.result("looked")
        return (time.perf_counter_ns() - began) / 1e6


class Floor:
    """The same commits with the same new bytes, by sqlite3 itself."""

    def __init__(self, connection: sqlite3.Connection, commits: int) -> None:
        self._connection = connection
        self._commits = commits
        self._talk = Talk(0)

    def round(self) -> Sequence[float]:
        """Some steps; ms of each."""
        turns = [self._talk.next() for _ in range(STEPS_PER_ROUND)]
        return [self._step(turn) for turn in turns]

    def _step(self, turn: Turn) -> float:
        prompt, answer, arguments, result = turn
        new = "".join((answer, arguments["page"], result))
        size = len(new) // self._commits + 1
        pieces = [new[at : at + size] for at in range(0, len(new), size)]
        execute = self._connection.execute
        began = time.perf_counter_ns()
        json.dumps(prompt)
        execute("PRAGMA synchronous = NORMAL")
        for number, piece in enumerate(pieces, 1):
            if number == len(pieces):
                execute("PRAGMA synchronous = FULL")
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO pieces (text) VALUES (?)", (piece,))
            execute("COMMIT")
        return (time.perf_counter_ns() - began) / 1e6


def floor(path: Path) -> sqlite3.Connection:
    """A database for the floor, its WAL as large as it gets."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE pieces (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
    connection.execute("PRAGMA synchronous = NORMAL")
    for _ in range(ours.WARM_BYTES // 16_000):
        connection.execute("INSERT INTO pieces (text) VALUES (?)", ("warm up " * 2000,))
    return connection


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    with ours.recorder(durability="full") as recorded, ours.folder() as folder:
        ours.warm(recorded)
        agent = Agent(recorded)
        agent.round()
        recorded.exporter.force_flush()
        before = recorded.exporter.stats()["commits"]
        agent.round()
        recorded.exporter.force_flush()
        commits = round((recorded.exporter.stats()["commits"] - before) / STEPS_PER_ROUND)
        with closing(floor(folder / "floor.db")) as connection:
            sides = {"a step": agent.round, "floor": Floor(connection, commits).round}
            series = measure(2 if quick else 40, sides, than="floor")
    return Result(
        "durable_step",
        ABOUT,
        quick,
        series,
        [Check("median of a step, times the floor", ratio(*series), 2.0)],
        [
            f"A step makes {commits} commits, one of them with an fsync.",
            f"Indexing a step, while the agent rests: {median(agent.rested):.2f} ms.",
        ],
    )
