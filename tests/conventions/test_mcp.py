# SPDX-License-Identifier: Apache-2.0
"""MCP: what client and server tell of a tool call, and of everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.conventions import genai, mcp
from otel_taskhistory.conventions.facts import SpanFacts, ToolCall
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import SpanRecord
from tests.otlp import records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"


def facts_of(record: SpanRecord) -> SpanFacts | None:
    """What this dialect and the conventions together say of a span, this one believed more."""
    own, general = mcp.read(record), genai.read(record)
    return merge(own, general) if own is not None and general is not None else own


def test_a_server_in_the_same_process() -> None:
    """Only ``tools/call`` is a tool call; one that answers with an error has failed."""
    said = [
        (record.name, facts.role, facts.status, facts.error_type)
        for record in records_in(CORPUS / "mcp__native__client-server.jsonl")
        if (facts := facts_of(record)) is not None
    ]
    assert said == [
        ("server/discover", "other", "succeeded", None),
        ("tools/list", "other", "succeeded", None),
        ("tools/call lookup_order", "tool", "succeeded", None),
        ("tools/call boom", "tool", "failed", "tool_error"),
        ("tools/call shot", "tool", "succeeded", None),
    ]


def test_a_server_in_another_process() -> None:
    """Its span's parent is remote, and what it does within the call is not the protocol's."""
    records = {r.name: r for r in records_in(CORPUS / "mcp__native__stdio-server-process.jsonl")}
    call = records["tools/call lookup_order"]
    assert call.parent_remote
    facts = facts_of(call)
    assert facts is not None
    assert facts.tool_call == ToolCall("lookup_order")
    assert facts_of(records["db query"]) is None


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("MCP send tools/call look up", {}, ToolCall("look up")),
        ("MCP send tools/call", {}, ToolCall("tools/call")),
        ("x", {}, ToolCall("tools/call")),
        ("tools/call a", {"gen_ai.tool.name": "b", "mcp.tool.name": "c"}, ToolCall("b")),
        ("tools/call a", {"mcp.tool.name": "c"}, ToolCall("c")),
        (
            "tools/call a",
            {
                "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"n": 1}',
                "gen_ai.tool.call.result": {"ok": True},
            },
            ToolCall("a", "c1", '{"n": 1}', '{"ok":true}'),
        ),
        (
            "look.mcp",
            {
                "mcp.request.argument": '{"params": {"name": "look", "arguments": {"n": 1}}}',
                "mcp.response.value": "found",
            },
            ToolCall("look", None, '{"n":1}', "found"),
        ),
        ("look.mcp", {"mcp.request.argument": '{"params": {"na'}, None),
    ],
)
def test_names_and_values(name: str, attributes: dict[str, Any], expected: ToolCall | None) -> None:
    """The client says the tool by the span's name; older instrumentations by keys of their own."""
    said = {"mcp.method.name": "tools/call"} | attributes
    facts = mcp.read(span(1, name=name, attributes=said, kind="CLIENT"))
    assert facts is not None
    assert facts.role == "tool"
    cut = ToolCall("tools/call", arguments='{"params": {"na')
    assert facts.tool_call == (cut if expected is None else expected)


def test_a_session_is_a_conversation_only_at_the_server() -> None:
    """There it ties calls together; at the client the agent's conversation is another."""
    attributes = {"mcp.method.name": "tools/call", "mcp.session.id": "s1"}
    at = {
        kind: mcp.read(span(1, attributes=attributes, kind=kind)) for kind in ("SERVER", "CLIENT")
    }
    assert {kind: facts.conversation_id for kind, facts in at.items() if facts is not None} == {
        "SERVER": "s1",
        "CLIENT": None,
    }


@pytest.mark.parametrize("method", [None, "", 7, ["tools/call"]])
def test_spans_of_others(method: Any) -> None:
    """Without a method it is not this dialect."""
    assert mcp.read(span(1, name="tools/call x", attributes={"mcp.method.name": method})) is None
