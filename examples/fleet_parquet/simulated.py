# SPDX-License-Identifier: Apache-2.0
"""Machines whose agents have worked for some days, recorded by our own tracer.

Work takes no time here: a clock of the machine's own says how late it is, and `Clock` puts its
times onto the spans. Everything comes from the number of the machine, so it is always the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    Event,
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
)

from otel_taskhistory import TaskHistoryExporter, TaskTracer
from otel_taskhistory.semconv import (
    TASKHISTORY_CALL_ENDED,
    TASKHISTORY_CALL_STARTED,
)

FIRST_DAY = date(2026, 3, 2)
MODELS = ("small-1", "large-1")

GOALS = {
    "booking": ("book a table for {}", "browser.click"),
    "invoices": ("file invoice {}", "files.read"),
    "inbox": ("answer letter {}", "mail.send"),
    "orders/returns": ("take back parcel {}", "http.post"),
}
"""By agent: what it is asked, and the tool it uses beside the browser."""

TOOL_MS = {
    "browser.open": 900.0,
    "browser.click": 250.0,
    "files.read": 12.0,
    "mail.send": 600.0,
    "http.post": 2400.0,
}
"""What each tool takes on average."""

FAILING = {"booking": 0.05, "invoices": 0.02, "inbox": 0.1, "orders/returns": 0.3}
"""How often each agent fails."""


class Clock(SpanProcessor):
    """Hands ended spans to an exporter, with this clock's times instead of the real ones."""

    def __init__(self, exporter: TaskHistoryExporter) -> None:
        self.ns = 0
        self._exporter = exporter
        self._started: dict[int, int] = {}
        self._spans: list[ReadableSpan] = []

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.ns += int(ms * 1e6)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note what time it is."""
        self._started[span.get_span_context().span_id] = self.ns

    def on_end(self, span: ReadableSpan) -> None:
        """Make it a span of this time; a task that ends is written with all its spans."""
        times = (TASKHISTORY_CALL_STARTED, TASKHISTORY_CALL_ENDED)
        self._spans.append(
            ReadableSpan(
                span.name,
                span.context,
                span.parent,
                span.resource,
                {key: value for key, value in span.attributes.items() if key not in times},
                [Event(event.name, event.attributes, self.ns) for event in span.events],
                span.links,
                span.kind,
                status=span.status,
                start_time=self._started.pop(span.context.span_id),
                end_time=self.ns,
                instrumentation_scope=span.instrumentation_scope,
            )
        )
        if span.parent is None:
            self._exporter.export(self._spans)
            self._spans = []

    def shutdown(self) -> None:
        """Close the history."""
        self._exporter.shutdown()


@contextmanager
def _recording(directory: Path, number: int) -> Iterator[tuple[TaskTracer, Clock]]:
    resource = Resource(
        {
            "service.name": "host-agent",
            "service.instance.id": f"agent-{number:03}",
            "host.name": f"machine-{number:03}",
            "deployment.environment.name": "test" if number % 10 == 9 else "production",
        }
    )
    clock = Clock(TaskHistoryExporter(directory, durability="normal"))
    provider = TracerProvider(resource=resource, span_limits=SpanLimits(max_attribute_length=None))
    provider.add_span_processor(clock)
    try:
        yield TaskTracer(provider), clock
    finally:
        provider.shutdown()


def record_machine(directory: Path, number: int, *, days: int, tasks_a_day: int) -> None:
    """Write the history of one machine.

    Args:
        directory: of the history.
        number: of the machine; another one has another agent, and does other work.
    """
    chance = random.Random(number)
    agent = list(GOALS)[number % len(GOALS)]
    midnight = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC)
    with _recording(directory, number) as (tasks, clock):
        for day in range(days):
            clock.ns = int(midnight.timestamp() + day * 86_400 + 8 * 3_600) * 10**9
            for turn in range(tasks_a_day):
                _task(tasks, clock, chance, agent, f"{number}-{day}-{turn}")
                clock.wait(chance.uniform(60_000, 900_000))


def _task(tasks: TaskTracer, clock: Clock, chance: random.Random, agent: str, what: str) -> None:
    goal, own_tool = GOALS[agent]
    fails = chance.random() < FAILING[agent]
    model = chance.choices(MODELS, (3, 1))[0]
    messages = [{"role": "user", "content": goal.format(what)}]
    steps = chance.randint(2, 5)
    with tasks.task(goal.format(what), agent=agent, conversation_id=f"talk-{what}") as task:
        for number in range(1, steps + 1):
            tool = "browser.open" if number == 1 else own_tool
            with task.step(f"step {number}") as step:
                step.prompt(messages, model=model)
                clock.wait(chance.uniform(400, 4000))
                usage = {"input_tokens": 400 * number, "output_tokens": chance.randint(20, 200)}
                step.decision(f"I use {tool}", usage=usage)
                with step.tool_call(tool, {"number": number}) as call:
                    clock.wait(chance.expovariate(1 / TOOL_MS[tool]))
                    if fails and number == steps:
                        call.fail("timed out")
                    else:
                        call.result({"ok": True})
                if fails and number == steps:
                    step.fail(f"{tool} timed out")
            messages = [
                *messages,
                {"role": "assistant", "content": f"I use {tool}"},
                {"role": "user", "content": f"what {tool} said at step {number}"},
            ]
        if fails:
            task.fail("gave up")
        else:
            task.result("done")
