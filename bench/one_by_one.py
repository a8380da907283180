# SPDX-License-Identifier: Apache-2.0
"""Mark 3: spans one by one under the SDK's SimpleSpanProcessor, against Google ADK's exporter.

The time is that of making, ending and exporting a span. The floor is the same with an exporter
that does nothing. ADK keeps name, times, parent and attributes of a span; we keep all of it, and
what it means, and wait for the disk as well (``durability="full"``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from bench import ours
from bench.harness import Benchmark, Check, Result, measure, ratio
from bench.peer import peer
from bench.peers import workload
from otel_taskhistory import TaskHistoryExporter

ABOUT: Final = Benchmark(3, "spans one by one under SimpleSpanProcessor, against Google ADK")

SPANS_PER_ROUND: Final = 41 * 2


class NoExporter(SpanExporter):
    """Does nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Nothing."""
        return SpanExportResult.SUCCESS


class Side:
    """Takes rounds of spans of 2 KB behind a SimpleSpanProcessor."""

    def __init__(self, exporter: SpanExporter) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        self._tracer = provider.get_tracer("bench.agent")
        self._seed = 0

    def round(self) -> Sequence[float]:
        """Ms a span, as a list of one."""
        self._seed += 1
        made = workload.said(SPANS_PER_ROUND, self._seed)
        began = time.perf_counter()
        workload.tasks(self._tracer, made)
        return [(time.perf_counter() - began) * 1000 / SPANS_PER_ROUND]


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    with ours.folder() as folder, peer("google-adk", "adk") as adk:
        exporter = TaskHistoryExporter(folder / "history")
        side, nothing = Side(exporter), Side(NoExporter())
        seeds = iter(range(10**6))

        def round_of_ours() -> Sequence[float]:
            took = side.round()
            ours.settle(exporter)
            return took

        sides = {
            "ours": round_of_ours,
            "Google ADK": lambda: adk.ask("one_by_one", spans=SPANS_PER_ROUND, seed=next(seeds)),
            "null exporter": nothing.round,
        }
        series = measure(2 if quick else 25, sides, than="Google ADK")
        exporter.shutdown()
        ours.check(exporter)
    faster = ratio(series[1], series[0])
    return Result(
        "one_by_one",
        ABOUT,
        quick,
        series,
        [Check("ADK's time for a span, times ours", faster, 3.0, at_most=False)],
        ["A sample is the mean of a round of 82 spans: two tasks of 41."],
        adk.versions,
    )
