# SPDX-License-Identifier: Apache-2.0
"""Mark 2: `export` of step 400 of a conversation against step 40, all of it sent each time.

By step 400 a prompt has grown to a megabyte, of which 2.4 KB are new. Measured with the spans of
our own tracer and with those of an instrumentation that follows the GenAI conventions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from bench import ours
from bench.harness import Benchmark, Check, Result, Series, ratio
from bench.peers import workload
from otel_taskhistory import TaskHistoryExporter, TaskTracer

ABOUT: Final = Benchmark(2, "a long conversation: export() of step 400 against step 40")

EARLY: Final = 40
LATE: Final = 400
AROUND: Final = 5
"""So many steps before and after are taken too."""


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    late = 80 if quick else LATE
    series: list[Series] = []
    checks = []
    for name, make in (("our tracer", _ours), ("GenAI spans", _foreign)):
        rounds = [_exported(make, seed, late) for seed in range(1 if quick else 6)][not quick :]
        early = Series(f"{name}, step {EARLY}", tuple(each[0] for each in rounds))
        then = Series(f"{name}, step {late}", tuple(each[1] for each in rounds), than=early.name)
        series += [early, then]
        checks.append(Check(f"{name}: step {late}, times step {EARLY}", ratio(then, early), 1.5))
    return Result("long_conversation", ABOUT, quick, series, checks)


def _exported(
    make: Callable[[int, int, Callable[[ReadableSpan], None]], None], seed: int, late: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """How many ms `export` takes for the spans of steps about `EARLY`, and about `late`."""
    took: list[float] = []
    with ours.folder() as folder:
        exporter = TaskHistoryExporter(folder / "history")

        def export(span: ReadableSpan) -> None:
            began = time.perf_counter_ns()
            exporter.export([span])
            took.append((time.perf_counter_ns() - began) / 1e6)

        make(seed, late + AROUND + 1, export)
        exporter.shutdown()
        ours.check(exporter)
    return _about(took, EARLY), _about(took, late)


def _about(took: list[float], step: int) -> tuple[float, ...]:
    return tuple(took[step - AROUND : step + AROUND])


def _foreign(seed: int, steps: int, export: Callable[[ReadableSpan], None]) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    collector = workload.Collector()
    provider.add_span_processor(collector)
    talk = workload.Conversation(seed)
    for _ in workload.conversation(provider.get_tracer("bench.agent"), steps, talk):
        export(collector.spans.pop())


def _ours(seed: int, steps: int, export: Callable[[ReadableSpan], None]) -> None:
    provider = TracerProvider(shutdown_on_exit=False, span_limits=ours.WHOLE)
    collector = workload.Collector()
    provider.add_span_processor(collector)
    texts = workload.Texts(seed)
    tasks = TaskTracer(provider, exporter=ours.NoSink())
    messages: list[dict[str, Any]] = [{"role": "system", "content": texts.text(1000)}]
    with tasks.task("talk") as task:
        for _ in range(steps):
            messages.append({"role": "user", "content": texts.text(1600)})
            with task.step() as step:
                step.prompt(messages, model="large")
                answer = texts.text(800)
                step.decision(answer, usage={"input_tokens": 5000})
            messages.append({"role": "assistant", "content": answer})
            export(collector.spans.pop())
