# SPDX-License-Identifier: Apache-2.0
"""Mark 9: recording at the limit, where each new task removes an old one, against no limit.

Both agents record the same tasks without a pause. A sample is a step; what retention costs also
shows in the time of whole tasks, their beginning and end included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench import large, ours
from bench.harness import Benchmark, Check, Result, Series, measure, one, ratio
from bench.peers import workload
from otel_taskhistory import Retention, TaskHistory

ABOUT: Final = Benchmark(9, "recording while each new task removes an old one", slow=True)

KEPT: Final = 20
STEPS: Final = 25
TASKS_PER_ROUND: Final = 2


class Agent:
    """Records tasks of `STEPS` steps."""

    def __init__(self, recorded: ours.Recorder) -> None:
        self._recorded = recorded
        self._texts = workload.Texts(9)
        self.whole: list[tuple[float, ...]] = []
        """Per round: ms a step of each task, its begin and end in it."""

    def round(self) -> Sequence[float]:
        """Some tasks; ms of each step."""
        took: list[float] = []
        whole: list[float] = []
        for _ in range(TASKS_PER_ROUND):
            messages = large.beginning()
            began = time.perf_counter_ns()
            with self._recorded.tasks.task(self._texts.text(60), agent="desk") as task:
                for index in range(STEPS):
                    start = time.perf_counter_ns()
                    large.step(task, messages, self._texts, index)
                    took.append((time.perf_counter_ns() - start) / 1e6)
            whole.append((time.perf_counter_ns() - began) / 1e6 / STEPS)
        self.whole.append(tuple(whole))
        # Else what is left to be done would be done while the other side is measured.
        ours.settle(self._recorded.exporter)
        return took


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    kept = 2 if quick else KEPT
    limits = Retention(None, kept, None)
    with (
        ours.recorder(durability="full", retention=limits) as limited,
        ours.recorder(durability="full", retention=large.NO_LIMITS) as free,
    ):
        ours.warm(limited)
        ours.warm(free)
        at_limit, without = Agent(limited), Agent(free)
        for _ in range(kept // TASKS_PER_ROUND + 1):
            at_limit.round()
            without.round()
        at_limit.whole.clear()
        without.whole.clear()
        names = ("a step at the limit", "a step without limits")
        sides = {names[0]: at_limit.round, names[1]: without.round}
        series = measure(2 if quick else 40, sides, than=names[1])
        wholes = [
            Series(f"a task, per step, {name}", tuple(agent.whole[1:]))
            for name, agent in (("at the limit", at_limit), ("without limits", without))
        ]
        wholes[0] = Series(wholes[0].name, wholes[0].rounds, than=wholes[1].name)
        with TaskHistory(limited.directory) as history:
            left = history.count_tasks()
    return Result(
        "steady_retention",
        ABOUT,
        quick,
        [*series, *wholes, one("tasks kept", left, "tasks")],
        [
            Check("a step, times one without limits", ratio(series[0], series[1]), 1.5),
            Check("a whole task, times one without limits", ratio(wholes[0], wholes[1]), 1.5),
            Check("p99 of a step, times its median", _spread(series[0]), 5),
            Check("tasks kept, beyond the limit", left - kept, 1),
        ],
        [f"Without limits p99 is {_spread(series[1]):.1f} times the median."],
    )


def _spread(series: Series) -> float:
    return series.percentile(99) / series.median
