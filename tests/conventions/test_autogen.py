# SPDX-License-Identifier: Apache-2.0
"""AutoGen: runs of teams over many traces, and the messages between them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.conventions import autogen, genai
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from tests.otlp import records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
RUNTIME = OriginRecord("autogen SingleThreadedAgentRuntime")
TEAM = "7ba0524f-1818-4acf-9c59-e30ba13db8c1"


def run(name: str) -> list[tuple[SpanRecord, SpanFacts]]:
    """The spans of a recording and what they say to this dialect and the conventions."""
    found = []
    for record in records_in(CORPUS / f"autogen__native__{name}.jsonl"):
        own, general = autogen.read(record), genai.read(record)
        facts = merge(own, general) if general is not None else own
        assert facts is not None
        found.append((record, facts))
    return found


def test_a_run_of_a_team() -> None:
    """Twenty traces: two make agents ready, one has the goal, the rest deliver or answer."""
    said = run("team")
    assert len({record.trace_id for record, _ in said}) == 20
    assert Counter(facts.role for _, facts in said) == {
        "setup": 2,
        "agent": 4,
        "tool": 1,
        "other": 50,
    }
    agents = [(facts.agent, facts.goal, facts.status) for _, facts in said if facts.role == "agent"]
    assert agents == [
        ("RoundRobinGroupChatManager", "Write a line", "succeeded"),
        ("writer", None, "succeeded"),
        ("critic", None, "succeeded"),
        ("writer", None, "succeeded"),
    ]
    (tool,) = (facts.tool_call for _, facts in said if facts.tool_call is not None)
    assert (tool.name, tool.call_id) == ("lookup_order", "c1")


def test_every_trace_of_a_run_names_its_team() -> None:
    """But for those that only made an agent ready, before there was a team."""
    said = run("team")
    by_trace: dict[str, set[str | None]] = {}
    for record, facts in said:
        by_trace.setdefault(record.trace_id, set()).add(facts.conversation_id)
    ready = {record.trace_id for record, facts in said if facts.role == "setup"}
    assert all(TEAM in teams for trace, teams in by_trace.items() if trace not in ready)
    assert {team for teams in by_trace.values() for team in teams} == {TEAM, None}


def test_links_lead_to_the_cause() -> None:
    """All roots but the very first have one link, to the span that made the message."""
    said = run("team")
    made = {
        record.span_id: record for record, _ in said if record.name.startswith("autogen create")
    }
    roots = [r for r, facts in said if r.parent_span_id is None and facts.role != "setup"]
    first, *others = sorted(roots, key=lambda record: (len(record.links), record.start_ns))
    # The reply goes back to the span that sent, not to one that made a message.
    delivered = [record for record in others if record.name != "autogen ack"]
    assert not first.links
    assert all(len(record.links) == 1 for record in others)
    for record in delivered:
        cause = made[record.links[0].span_id]
        assert cause.trace_id == record.links[0].trace_id != record.trace_id
        assert cause.start_ns <= record.start_ns


def test_a_team_whose_model_raises() -> None:
    """The agent's span fails and says why; the one that asked it has no part in that."""
    said = run("team-model-raises")
    failed = [
        (record.name.partition("_fa")[0], facts.role, facts.error_type, facts.error)
        for record, facts in said
        if facts.status == "failed"
    ]
    assert failed == [
        ("invoke_agent writer", "agent", "RuntimeError", "model backend 503"),
        ("autogen process writer", "other", "RuntimeError", "model backend 503"),
    ]
    (goal,) = (facts.goal for _, facts in said if facts.goal is not None)
    assert goal == "Write a line"


def test_an_agent_by_itself() -> None:
    """``create_agent`` is no work."""
    (_, ready), (_, agent) = run("model-raises")
    assert (ready.role, ready.agent, ready.status) == ("setup", "support_agent", "succeeded")
    assert (agent.role, agent.status, agent.error) == ("agent", "failed", "model backend 503")


def processed(message: Any, **said: Any) -> SpanFacts:
    """What a span says that processes a message from outside."""
    attributes = {
        "messaging.operation": "process",
        "messaging.destination": f"desk_{TEAM}.({TEAM})-A",
        "recipient_agent_type": f"desk_{TEAM}",
        "message": message if isinstance(message, str | bytes) else json.dumps(message),
    }
    facts = autogen.read(span(1, scope=RUNTIME, attributes=attributes | said))
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("message", "goal"),
    [
        ({"messages": [{"source": "user", "content": "one"}]}, "one"),
        ({"messages": [{"content": "one"}, {"content": "two"}]}, "one\ntwo"),
        ({"messages": [{"content": ["look", {"data": "iVBORw0KGgo"}, "here"]}]}, "look\nhere"),
        ({"content": "do it", "source": "me"}, "do it"),
        ({"city": "Graz"}, '{"city": "Graz"}'),
        ({}, None),
        ({"messages": []}, None),
        ({"messages": [7, None, {"content": 3}]}, None),
        ([1], None),
        ("No Message", None),
        ("Message could not be serialized", None),
        ('{"messages": [{"content": "cu', None),
        (b"\xff", None),
    ],
)
def test_what_a_message_from_outside_asks(message: Any, goal: str | None) -> None:
    """Its texts; of a message of the application's own, all of it; a command asks nothing."""
    facts = processed(message)
    assert facts.goal == goal
    assert (facts.role, facts.agent) == (("other", None) if goal is None else ("agent", "desk"))
    assert facts.conversation_id == TEAM


def test_messages_between_agents_are_no_goals() -> None:
    """Only what nobody in the runtime sent begins something."""
    message = {"messages": [{"source": "user", "content": "one"}]}
    assert processed(message, sender_agent_type="manager").goal is None
    assert processed(message, **{"messaging.operation": "publish"}).role == "other"


def test_agents_with_keys_of_the_applications_own() -> None:
    """``default`` would tie everything together, and is no conversation."""
    facts = processed(
        {"content": "x"},
        **{
            "messaging.destination": "desk.(default)-A",
            "recipient_agent_type": "desk",
        },
    )
    assert (facts.conversation_id, facts.agent) == (None, "desk")


@pytest.mark.parametrize(
    "record",
    [
        span(1, attributes={"messaging.operation": "process"}),  # any message queue
        span(1, scope=RUNTIME),
        span(1, scope=OriginRecord("autogen-core"), attributes={"gen_ai.operation.name": "chat"}),
        span(1, attributes={"gen_ai.operation.name": "create_agent"}),
    ],
)
def test_nothing_special(record: SpanRecord) -> None:
    """What the conventions say as well, and spans of others."""
    assert autogen.read(record) is None
