# SPDX-License-Identifier: Apache-2.0
"""What real instrumentations of the GenAI conventions wrote, read and checked by eye.

Each expected line is what the recorded run did, read off the file: role, agent or tool, status;
for a model call its model, the first and last words of its prompt and decision, the tools that it
asked for, and its tokens.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, genai_adk, strands
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts
from otel_taskhistory.conventions.genai_events import is_meant_for
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from tests.otlp import logs_in, logs_of, records_in

CORPUS = Path(__file__).parents[1] / "data" / "corpus"


def spans_of(name: str) -> list[SpanRecord]:
    """The spans of a recording in the order of their start."""
    records = records_in(CORPUS / f"{name}.jsonl")
    return sorted(records, key=lambda record: (record.start_ns, record.span_id))


def logs_for(name: str) -> list[LogRecord]:
    """The log records of a recording."""
    file = CORPUS / f"{name}.logs.jsonl"
    return list(logs_in(file)) if file.exists() else []


def facts_of(record: SpanRecord, logs: list[LogRecord]) -> SpanFacts | None:
    """What the dialects of this family say together."""
    own = logs_of(record, logs)
    said = [read(record, own) for read in (strands.read, genai_adk.read, genai.read)]
    return reduce(merge, [one for one in said if one is not None], None)


def first_line(text: str | None) -> str:
    """The first line of a text that has any."""
    return next(iter((text or "").strip().splitlines()), "")


def words(message: dict[str, Any]) -> str:
    """A message in a few words: its texts, its calls, its answers."""
    found = []
    for part in message["parts"]:
        match part["type"]:
            case "text" | "reasoning":
                found.append(first_line(part["content"]))
            case "tool_call":
                found.append(f"{part['name']}!")
            case "tool_call_response":
                found.append("<" + json.dumps(part.get("response"))[:12])
            case kind:
                found.append(f"[{kind}]")
    said = " ".join(found)
    return f"{message['role']}: {said if len(said) < 56 else f'{said[:26]}…{said[-26:]}'}"


def messages(said: Said | None) -> list[str]:
    """All messages of a prompt or decision, instructions first."""
    if said is None:
        return []
    assert said.structured
    listed = json.loads(said.raw)
    if said.system is not None:
        listed.insert(0, {"role": "system", "parts": json.loads(said.system)})
    return [words(message) for message in listed]


def lines(facts: SpanFacts) -> list[str]:
    """A span in a few lines."""
    status = (
        "" if facts.status == "succeeded" else f" {facts.status.upper()} {str(facts.error)[:48]}"
    )
    match facts.role:
        case "model":
            (call,) = facts.model_calls
            tokens = call.tokens
            counts = (tokens.input, tokens.output, tokens.cached, tokens.reasoning)
            ids = " ".join(call.call_ids) or "-"
            said = f"{call.model} {call.finish_reason} {ids} {counts}"
            prompt, decision = messages(call.prompt), messages(call.decision)
            ends = " … ".join(dict.fromkeys((prompt[0], prompt[-1]))) if prompt else ""
            more = [f"  {len(prompt)} {ends}"] if prompt else []
            more += [f"  => {message}" for message in decision]
        case "tool":
            tool = facts.tool_call
            assert tool is not None
            said = f"{tool.name}({tool.arguments}) {tool.call_id} -> {(tool.result or '')[:20]}"
            more = []
        case _:
            said = f"{facts.agent}: {first_line(facts.goal)} -> {first_line(facts.result)}"
            more = []
    return [line.rstrip() for line in (f"{facts.role}{status} {said}", *more)]


BE = "system: You are a support agent."
ASK = "user: Where is order A-17?"

EXPECTED = {
    "strands__native__tools": """
agent support_agent: Where is order A-17? -> Order A-17 has shipped.
model fake-model-1 tool_use tu_1 (120, 17, 40, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: I should look up Looking lookup_order!
tool lookup_order({"order_id": "A-17"}) tu_1 -> [{"json": {"order_id
model fake-model-1 tool_use tu_2 (120, 17, 40, None)
  4 system: You are a support agent. … tool: <[{"json": {"
  => assistant: boom!
tool FAILED disk on fire boom({}) tu_2 -> [{"text": "Error: di
model fake-model-1 end_turn - (120, 17, 40, None)
  6 system: You are a support agent. … tool: <[{"text": "E
  => assistant: Order A-17 has shipped.
agent support_agent: And again? -> Order A-17 has shipped.
model fake-model-1 end_turn - (120, 17, 40, None)
  8 system: You are a support agent. … user: And again?
  => assistant: Order A-17 has shipped.
""",
    "strands__native__image": """
agent support_agent: What is this? -> A red square
model fake-model-1 tool_use tu_s (120, 17, 40, None)
  2 system: You are a support agent. … user: What is this? [blob]
  => assistant: shot!
tool shot({}) tu_s -> [{"text": "here"}, {
model fake-model-1 end_turn - (120, 17, 40, None)
  4 system: You are a support agent. … tool: <[{"text": "h
  => assistant: A red square
""",
    "strands__native-latest__tools": """
agent support_agent: Where is order A-17? -> Order A-17 has shipped.
model fake-model-1 tool_use tu_1 (120, 17, 40, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: [reasoningContent] Looking lookup_order!
tool lookup_order({"order_id": "A-17"}) tu_1 -> [{"json": {"order_id
model fake-model-1 tool_use tu_2 (120, 17, 40, None)
  4 system: You are a support agent. … user: <[{"json": {"
  => assistant: boom!
tool FAILED disk on fire boom({}) tu_2 -> [{"text":"Error: dis
model fake-model-1 end_turn - (120, 17, 40, None)
  6 system: You are a support agent. … user: <[{"text": "E
  => assistant: Order A-17 has shipped.
agent support_agent: And again? -> Order A-17 has shipped.
model fake-model-1 end_turn - (120, 17, 40, None)
  8 system: You are a support agent. … user: And again?
  => assistant: Order A-17 has shipped.
""",
    "strands__native-latest__cancelled": """
agent CANCELLED None support_agent: be slow ->
model fake-model-1 tool_use tu_x (120, 17, 40, None)
  2 system: You are a support agent. … user: be slow
  => assistant: slow!
tool CANCELLED None slow({}) tu_x ->
""",
    "strands__native__graph-multiagent": """
agent None: Write about France ->
agent researcher: Write about France -> research done
model fake-model-1 end_turn - (120, 17, 40, None)
  2 system: You are a support agent. … user: Write about France
  => assistant: research done
agent writer: Original Task: Write about France -> written
model fake-model-1 end_turn - (120, 17, 40, None)
  2 system: You are a support agent. … user: Original Task: Write about…er: - Agent: research done
  => assistant: written
""",
    "strands__native__model-raises": """
agent FAILED model backend 503 support_agent: hi ->
model FAILED model backend 503 fake-model-1 None - (None, None, None, None)
  2 system: You are a support agent. … user: hi
""",
    "google-adk__native__tool-raises": """
agent FAILED disk on fire None:  ->
agent FAILED disk on fire support_agent:  ->
model fake-gemini-1 stop c3 (120, 23, 40, 6)
  2 system: You are a support agent. … user: do it
  => assistant: boom!
tool FAILED disk on fire boom(None) None ->
""",
    "google-adk__native-semconv__tools": """
agent None:  ->
agent support_agent:  ->
model fake-gemini-1 stop c1 (120, 23, 40, 6)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: I should look up Looking lookup_order!
tool lookup_order({"order_id": "A-17"}) c1 -> {"order_id": "A-17",
model fake-gemini-1 stop c2 (120, 23, 40, 6)
  4 system: You are a support agent. … user: <{"order_id":
  => assistant: soft!
tool FAILED not found soft({}) c2 -> {"error": "not found
model fake-gemini-1 stop - (120, 23, 40, 6)
  6 system: You are a support agent. … user: <{"error": "n
  => assistant: Order A-17 has shipped.
""",
    "google-adk__default__tools": """
agent None:  ->
agent support_agent:  ->
model fake-gemini-1 stop - (120, 23, 40, 6)
tool lookup_order(None) c1 ->
model fake-gemini-1 stop - (120, 23, 40, 6)
tool FAILED TOOL_ERROR soft(None) c2 ->
model fake-gemini-1 stop - (120, 23, 40, 6)
""",
    "openai__v2old-legacy__chat-loop-under-user-root": """
model gpt-fake-2026 tool_calls call_1 (120, 17, None, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: lookup_order!
model gpt-fake-2026 stop - (120, 17, None, None)
  4 system: You are a support agent. … tool: <"{\\"status\\"
  => assistant: Order A-17 has shipped. café 😀
""",
    "openai__v2old-legacy__chat-n2": """
model gpt-fake-2026 stop - (120, 17, None, None)
  1 user: hi
  => assistant: Order A-17 has shipped. café 😀
  => assistant: Order A-17 has shipped. café 😀
""",
    "openai__v2-eventonly__chat-loop-under-user-root": """
model gpt-fake-2026 tool_calls call_1 (120, 17, None, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: lookup_order!
model gpt-fake-2026 stop - (120, 17, None, None)
  4 system: You are a support agent. … tool: <"{\\"status\\"
  => assistant: Order A-17 has shipped. café 😀
""",
    "openai__v2-upload__chat-loop-under-user-root": """
model gpt-fake-2026 tool_calls - (120, 17, None, None)
  1 user: [uploaded]
  => assistant: [uploaded]
model gpt-fake-2026 stop - (120, 17, None, None)
  1 user: [uploaded]
  => assistant: [uploaded]
""",
    "openai__genai-spanonly__chat-stream-abandoned": """
model CANCELLED abandoned stream gpt-fake-2026 error - (None, None, None, None)
  1 user: hi
  => assistant:
""",
    "openai__v2-spanonly__chat-error": """
model FAILED Error code: 500 - backend exploded gpt-fake None - (None, None, None, None)
  1 user: hi
""",
    "openai__v2-spanonly__embeddings": "",
    "util-genai__spanonly__workflow-agent-tool": """
agent None: Where is order A-17? ->
agent support_agent: Where is order A-17? -> shipped
model gpt-fake-2026 tool_call call_1 (120, 17, 40, 6)
  1 user: Where is order A-17? [blob] [uri] [file]
  => assistant: I should look up lookup_order!
tool lookup_order({"order_id":"A-17"}) call_1 -> {"status":"shipped",
tool FAILED disk on fire boom({}) call_2 ->
""",
    "agent-framework__native__tools": """
agent support_agent: Where is order A-17? -> Order A-17 has shipped.
model fake-af-1 tool_calls c1 (120, 17, 40, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: lookup_order!
tool lookup_order({"order_id": "A-17"}) c1 -> {"order_id": "A-17",
model fake-af-1 tool_calls c2 (120, 17, 40, None)
  4 system: You are a support agent. … tool: <"{\\"order_id
  => assistant: boom!
tool FAILED disk on fire boom(None) c2 ->
model fake-af-1 stop - (120, 17, 40, None)
  6 system: You are a support agent. … tool: <"Error: Func
  => assistant: Order A-17 has shipped.
""",
    "langchain__genai-spanonly__interrupt-resume": """
agent support_agent: Pay ->
model fake-chat-1 stop call_i (120, 17, 40, 6)
  2 system: You are a support agent. … user: Pay
  => assistant: approve!
tool approve({"x":"pay"}) call_i ->
agent support_agent:  -> paid
tool approve({"x":"pay"}) call_i -> approved: yes
model fake-chat-1 stop - (120, 17, 40, 6)
  4 system: You are a support agent. … tool: <"approved: y
  => assistant: paid
""",
    "smolagents__genai-spanonly__managed-subagent": """
agent main_agent: Capital of France? -> It is Paris
agent geo_agent: You're a helpful agent named 'geo_agent'. -> Paris
""",
    "smolagents__genai-spanonly__stream-abandoned": """
agent CANCELLED generator ignored GeneratorExit ToolCallingAgent: Where? ->
""",
    "openai-agents__genai-spanonly__handoff-and-agent-as-tool": """
agent None:  ->
agent triage_agent:  ->
tool ask_geo({"input":"capital of France"}) None -> Paris
agent geo_agent:  ->
agent support_agent:  ->
""",
    "openai-agents__genai-spanonly__model-raises": """
agent None:  ->
agent FAILED {'message': 'Error in agent run', 'data': {'erro support_agent:  ->
""",
    "anthropic__native-content__messages-stream-abandoned": """
model CANCELLED abandoned stream claude-fake None - (125, None, 40, None)
  1 user: hi
""",
    "anthropic__native-content__messages-tool-result-image": """
model claude-fake end_turn - (125, 17, 40, None)
  3 user: screenshot … user: <[{"type": "t
  => assistant: Order A-17 has shipped.
""",
    "anthropic__native-metadata__messages-error": """
model FAILED None claude-fake None - (None, None, None, None)
""",
    "anthropic__genai-spanonly__messages-loop-under-user-root": """
model claude-fake tool_call toolu_1 (125, 17, 40, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: I should look it up Looking up. lookup_order!
model claude-fake tool_use - (125, 17, 40, None)
model claude-fake stop - (125, 17, 40, None)
  4 system: You are a support agent. … user: <"boom: not f
  => assistant: Order A-17 has shipped.
model claude-fake end_turn - (125, 17, 40, None)
""",
    "pydantic-ai1__native-v1-logs__tools-retry": """
agent support_agent:  ->
model fake-gpt-1 None call_1 (120, 17, 40, None)
  2 system: You are a support agent. … user: Where is order A-17?
  => assistant: think Looking up. lookup_order!
tool lookup_order(None) call_1 ->
model fake-gpt-1 None call_2 (120, 17, 40, None)
  4 system: You are a support agent. … tool: <{"order_id":
  => assistant: flaky!
tool FAILED bad n, try 2 flaky(None) call_2 ->
model fake-gpt-1 None call_3 (120, 17, 40, None)
  6 system: You are a support agent. … tool: <"bad n, try
  => assistant: flaky!
tool flaky(None) call_3 ->
model fake-gpt-1 None - (120, 17, 40, None)
  8 system: You are a support agent. … tool: <"ok"
  => assistant: Order A-17 has shipped.
""",
    "pydantic-ai1__native-v1-logs__image": """
agent support_agent:  ->
model fake-gpt-1 None - (120, 17, 40, None)
  2 system: You are a support agent. … user: What? [blob]
  => assistant: red
""",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_run(name: str) -> None:
    """Every span that the conventions know, in order."""
    logs = logs_for(name)
    facts = [facts_of(record, logs) for record in spans_of(name)]
    found = [line for one in facts if one is not None for line in lines(one)]
    assert found == EXPECTED[name].strip().splitlines()


def test_prompts_are_the_very_strings_of_the_span() -> None:
    """Nothing is written anew that an attribute says."""
    for name in ("agent-framework__native__tools", "strands__native-latest-spanattrs__tools"):
        seen = 0
        for record in spans_of(name):
            facts = facts_of(record, logs_for(name))
            for call in facts.model_calls if facts is not None else ():
                assert call.prompt is not None
                assert call.prompt.raw is record.attributes[semconv.GEN_AI_INPUT_MESSAGES]
                seen += 1
        assert seen == 3 + (name.startswith("strands"))


def test_ids_by_which_two_spans_are_one_call() -> None:
    """The SDK's own span and that of the instrumentation around it name the same response."""
    name = "anthropic__genai-spanonly__messages-loop-under-user-root"
    calls: dict[str | None, list[ModelCall]] = {}
    for record in spans_of(name):
        facts = facts_of(record, [])
        for call in facts.model_calls if facts is not None else ():
            calls.setdefault(call.response_id, []).append(call)
    assert {key: len(found) for key, found in calls.items()} == {"msg_fake1": 2, "msg_fake2": 2}


def test_uploaded_prompts_are_links() -> None:
    """The upload hook leaves only where the content is."""
    name = "util-genai__upload__workflow-agent-tool"
    found = [facts_of(record, []) for record in spans_of(name)]
    (call,) = (facts.model_calls[0] for facts in found if facts is not None and facts.model_calls)
    assert call.prompt is not None
    (message,) = json.loads(call.prompt.raw)
    assert message["parts"][0]["uri"].endswith("928f62c0-2aec-4401-97bf-2031c47c17db_inputs.json")
    assert [facts.goal for facts in found if facts is not None and facts.role == "agent"] == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        (
            "anthropic__traceloop-events__messages-loop-under-user-root",
            [BE, ASK],
            [
                BE,
                ASK,
                "assistant: I should look it up Looking up. lookup_order!",
                'user: <"boom: not f',
            ],
        ),
        (
            "langchain__traceloop-events__thread-id-2turns",
            [BE, ASK],
            None,
        ),
    ],
)
def test_records_that_were_written_into_the_parent_span(
    name: str, first: list[str], last: list[str] | None
) -> None:
    """Each belongs to one model call, which is then complete."""
    logs, spans = logs_for(name), spans_of(name)
    taken: list[LogRecord] = []
    prompts = []
    for record in spans:
        meant = [log for log in logs if is_meant_for(log, record)]
        if genai.role_of(record) != "model" or not meant:
            continue
        taken += meant
        facts = genai.read(record, meant)
        assert facts is not None
        prompts.append(messages(facts.model_calls[0].prompt))
        assert facts.model_calls[0].decision is not None
    assert len(taken) == len(logs)
    assert prompts[0] == first
    if last is not None:
        assert prompts[-1] == last
