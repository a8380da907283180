# SPDX-License-Identifier: Apache-2.0
"""The axis: true proportions, parallel bars in lanes, agents below those that called them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor
from otel_taskhistory.pages import axis, steps_fragment
from otel_taskhistory.pages.axis import KINDS
from otel_taskhistory.pages.links import Links
from otel_taskhistory.store.overview import axis as queries
from tests.pages.conftest import FAILED, STEPS, Recorded

WIDE = 8
START = 1_700_000_000 * 10**9


class Agents:
    """Records spans of agents as an instrumentation would, at given seconds."""

    def __init__(self, directory: Path) -> None:
        self.provider = TracerProvider()
        exporter = TaskHistoryExporter(directory=directory, durability="normal")
        self.provider.add_span_processor(TaskHistoryProcessor(exporter))
        self._tracer = self.provider.get_tracer("agents")

    def span(self, above: Any, begin: float, end: float, name: str, **said: Any) -> Any:
        """A span that is ended already, except for its parents' sake."""
        context = trace.set_span_in_context(above) if above is not None else None
        attributes = {f"gen_ai.{key.replace('__', '.')}": value for key, value in said.items()}
        span = self._tracer.start_span(
            name, context, start_time=START + int(begin * 1e9), attributes=attributes
        )
        span.end(START + int(end * 1e9))
        return span

    def agent(self, above: Any, begin: float, end: float, name: str) -> Any:
        return self.span(
            above, begin, end, f"invoke_agent {name}",
            operation__name="invoke_agent", agent__name=name,
        )  # fmt: skip

    def chat(self, above: Any, begin: float, end: float, name: str, *calls: str) -> Any:
        parts = [{"type": "tool_call", "id": call, "name": "t", "arguments": {}} for call in calls]
        return self.span(
            above, begin, end, "chat m",
            operation__name="chat", request__model="m", agent__name=name,
            output__messages=json.dumps([{"role": "assistant", "parts": parts}]),
        )  # fmt: skip

    def tool(self, above: Any, begin: float, end: float, name: str, call_id: str) -> Any:
        return self.span(
            above, begin, end, f"execute_tool {name}",
            operation__name="execute_tool", tool__name=name, tool__call__id=call_id,
        )  # fmt: skip


@pytest.fixture
def nested(tmp_path: Path) -> dict[str, Any]:
    """A planner that calls two researchers at the same time."""
    agents = Agents(tmp_path / "history")
    root = agents.agent(None, 0, 20, "planner")
    agents.chat(root, 1, 3, "planner", "a", "b")
    for call, name, begin in (("a", "red", 4.0), ("b", "blue", 5.0)):
        tool = agents.tool(root, begin, begin + 6, "delegate", call)
        inner = agents.agent(tool, begin + 1, begin + 5, name)
        agents.chat(inner, begin + 2, begin + 4, name)
    agents.chat(root, 12, 18, "planner")
    agents.provider.shutdown()
    history = TaskHistory(tmp_path / "history")
    return axis(history, "latest")


def bars(found: dict[str, Any]) -> list[list[float]]:
    """The bars one by one."""
    flat = found["bars"]
    return [flat[at : at + WIDE] for at in range(0, len(flat), WIDE)]


def test_agents_stand_below_those_that_called_them(nested: dict[str, Any]) -> None:
    """The planner first, the two that its tools ran one level deeper."""
    assert [(name, depth) for name, depth, *_ in nested["agents"]] == [
        ("planner", 0),
        ("red", 1),
        ("blue", 1),
    ]


def test_bars_have_their_real_proportions(nested: dict[str, Any]) -> None:
    """Begin and length are those of the spans, in ms after the begin of the task."""
    steps = [(at, long) for kind, _, _, _, at, long, *_ in bars(nested) if kind == 0]
    assert steps == [(1000, 2000), (6000, 2000), (7000, 2000), (12000, 6000)]
    assert (nested["start"], nested["length"], nested["now"]) == (START / 1e6, 20_000, None)


def test_parallel_calls_lie_in_lanes_of_their_own(nested: dict[str, Any]) -> None:
    """Two tools at the same time do not cover each other; what follows uses the first lane."""
    tools = [bar for bar in bars(nested) if KINDS[int(bar[0])] == "tool"]
    assert [(bar[4], bar[7]) for bar in tools] == [(4000, 0), (5000, 1)]
    assert nested["agents"][0][2:] == [1, 2]


def test_a_step_in_the_list_names_its_agent_when_it_is_another_one(
    nested: dict[str, Any], tmp_path: Path
) -> None:
    """Whoever scans the list sees whose step it is."""
    page = steps_fragment(TaskHistory(tmp_path / "history"), "latest", None, Links())
    assert page.count('class="agent">red<') == page.count('class="agent">blue<') == 1
    assert 'class="agent">planner<' not in page


def test_failures_are_told(recorded: Recorded) -> None:
    """The status of each step is with its bar."""
    found = axis(recorded.history(), recorded.booking)
    failed = [found["indexes"][int(bar[6])] for bar in bars(found) if (bar[0], bar[3]) == (0, 2)]
    assert failed == [FAILED, STEPS]
    assert len(found["ids"]) == STEPS


def test_what_is_left_out_is_told(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap on bars or pictures comes with the number of those that are missing."""
    monkeypatch.setattr(queries, "MOST_CALLS", 10)
    monkeypatch.setattr(queries, "MOST_PICTURES", 2)
    found = axis(recorded.history(), recorded.booking)
    calls = sum(bar[0] > 0 for bar in bars(found))
    shots = len(found["shots"]["sha256"])
    assert (calls, shots) == (10, 2)
    assert found["left_out"] == [2 * STEPS - 10, 1 + STEPS // 2 - 2]


def test_more_than_a_few_parallel_bars_share_the_last_lane(tmp_path: Path) -> None:
    """A hundred calls at once do not make the axis a hundred lanes high."""
    agents = Agents(tmp_path / "history")
    root = agents.agent(None, 0, 20, "planner")
    agents.chat(root, 1, 2, "planner", *(f"c{number}" for number in range(40)))
    for number in range(40):
        agents.tool(root, 3, 9, "look", f"c{number}")
    agents.provider.shutdown()
    found = axis(TaskHistory(tmp_path / "history"), "latest")
    assert found["agents"][0][3] == queries.MOST_LANES
