# SPDX-License-Identifier: Apache-2.0
"""Mark 4: 20,000 spans of 2 KB in batches of 512, against Google ADK, MLflow and Arize Phoenix.

Ours is the time of `export` and, in a row of its own, that until the search index has caught up
too. ADK and MLflow write to SQLite in their own process (MLflow by the call that its server makes
for spans that arrive over OTLP); Phoenix gets them over OTLP on loopback, and counts when the rows
are there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench import ours
from bench.harness import Benchmark, Check, Result, Series, measure, ratio
from bench.peer import peer
from bench.peers import workload
from otel_taskhistory import TaskHistoryExporter

ABOUT: Final = Benchmark(
    4, "20,000 spans in batches of 512, against ADK, MLflow and Phoenix", slow=True
)

BATCH: Final = 512
BATCHES_PER_ROUND: Final = 4
ROUNDS: Final = 10  # of 2,048 spans each
SLOW_PEERS: Final = {"MLflow": ("mlflow", "mlflow_store"), "Phoenix": ("arize-phoenix", "phoenix")}


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    spans = BATCH if quick else BATCH * BATCHES_PER_ROUND
    seeds = iter(range(10**6))
    with ExitStack() as stack:
        folder = stack.enter_context(ours.folder())
        exporter = TaskHistoryExporter(folder / "history")
        adk = stack.enter_context(peer("google-adk", "adk"))
        slow = {name: stack.enter_context(peer(*where)) for name, where in SLOW_PEERS.items()}
        indexed: list[tuple[float, ...]] = []

        def round_of_ours() -> Sequence[float]:
            took = []
            made = workload.collected(workload.tasks, workload.said(spans, next(seeds)))
            began = time.perf_counter()
            for batch in workload.batches(made, BATCH):
                start = time.perf_counter()
                exporter.export(batch)
                took.append((time.perf_counter() - start) * 1000 / len(batch))
            ours.settle(exporter)
            indexed.append(((time.perf_counter() - began) * 1000 / spans,))
            return took

        def round_of_adk() -> Sequence[float]:
            found: Sequence[float] = adk.ask(
                "in_batches", spans=spans, seed=next(seeds), size=BATCH
            )
            return found

        rounds = 1 if quick else ROUNDS
        sides = {"ours, per span": round_of_ours, "Google ADK": round_of_adk}
        series = measure(rounds, sides, than="Google ADK")
        whole = Series("ours, indexed too", tuple(indexed[1:]), than="Google ADK")
        series.insert(1, whole)
        mine, theirs = series[0], series[2]
        checks = [Check("ADK's time, times ours", ratio(theirs, mine), 1.0, at_most=False)]
        checks += [Check("ADK's time, times ours with the index", ratio(theirs, whole), 1.0, False)]
        for name, other in slow.items():

            def round_of_it(other: object = other) -> Sequence[float]:
                return other.ask("in_batches", spans=BATCH, seed=next(seeds), size=BATCH)

            found = measure(1 if quick else 3, {"ours": round_of_ours, name: round_of_it})
            series.append(found[1])
            checks.append(
                Check(f"{name}'s time, times ours", ratio(found[1], found[0]), 10.0, False)
            )
        exporter.shutdown()
        ours.check(exporter)
        versions = dict(adk.versions)
        for other in slow.values():
            versions |= other.versions
    return Result("batches", ABOUT, quick, series, checks, versions=versions)
