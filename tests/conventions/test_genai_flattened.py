# SPDX-License-Identifier: Apache-2.0
"""Messages flattened into attributes: ``gen_ai.prompt.N.role`` and its neighbours."""

from __future__ import annotations

import json
import random
from typing import Any

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import ModelCall
from tests.store.deliveries import span


def call_of(attributes: dict[str, Any]) -> ModelCall:
    """The model call that a span with these attributes is."""
    facts = genai.read(span(1, attributes=attributes))
    assert facts is not None
    return facts.model_calls[0]


def test_a_conversation_with_a_tool() -> None:
    """In whichever order the keys come: by number, calls among the parts, answers with their id."""
    attributes = {
        "gen_ai.prompt.10.role": "tool",
        "gen_ai.prompt.10.content": '{"status": "shipped"}',
        "gen_ai.prompt.10.tool_call_id": "c1",
        "gen_ai.prompt.2.role": "user",
        "gen_ai.prompt.2.content": "Where is it?",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.3.role": "assistant",
        "gen_ai.prompt.3.tool_calls.0.id": "c1",
        "gen_ai.prompt.3.tool_calls.0.name": "look_up",
        "gen_ai.prompt.3.tool_calls.0.arguments": '{"order": "A-17"}',
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.1.id": "c3",
        "gen_ai.completion.0.tool_calls.1.function.name": "look_up",
        "gen_ai.completion.0.tool_calls.1.function.arguments": "no json",
        "gen_ai.completion.0.tool_calls.0.id": "c2",
        "gen_ai.completion.0.tool_calls.0.name": "look_up",
    }
    keys = list(attributes)
    random.Random(1).shuffle(keys)
    for order in (list(attributes), keys):
        call = call_of({key: attributes[key] for key in order})
        assert call.prompt is not None
        assert json.loads(call.prompt.raw) == [
            {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
            {"role": "user", "parts": [{"type": "text", "content": "Where is it?"}]},
            {
                "role": "assistant",
                "parts": [
                    {
                        "type": "tool_call",
                        "id": "c1",
                        "name": "look_up",
                        "arguments": {"order": "A-17"},
                    }
                ],
            },
            {
                "role": "tool",
                "parts": [
                    {
                        "type": "tool_call_response",
                        "id": "c1",
                        "response": '{"status": "shipped"}',
                    }
                ],
            },
        ]
        assert (call.call_ids, call.finish_reason) == (("c2", "c3"), "tool_calls")


def test_pictures_and_strange_keys() -> None:
    """Blocks in a content are parts; what nobody knows is kept; roles are guessed by side."""
    blocks = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.invalid/a.png"}},
    ]
    call = call_of(
        {
            "gen_ai.prompt.0.content": json.dumps(blocks),
            "gen_ai.prompt.0.mood": "curious",
            "gen_ai.completion.0.content": "A square",
        }
    )
    assert call.prompt is not None
    assert call.decision is not None
    (asked,), (answered,) = json.loads(call.prompt.raw), json.loads(call.decision.raw)
    assert (asked["role"], asked["mood"], answered["role"]) == ("user", "curious", "assistant")
    assert [part["type"] for part in asked["parts"]] == ["text", "uri"]


def test_ten_thousand_keys_and_impossible_numbers() -> None:
    """Each key is looked at once; what is no number of a message is left in the span."""
    attributes: dict[str, Any] = {semconv.GEN_AI_OPERATION_NAME: "chat"}
    for number in reversed(range(5000)):
        attributes[f"gen_ai.prompt.{number}.role"] = "user"
        attributes[f"gen_ai.prompt.{number}.content"] = f"message {number}"
    for odd in ("x", "-1", "1" * 5000, "²", "", "1"):
        attributes[f"gen_ai.prompt.{odd}"] = "odd"
    attributes["gen_ai.prompt.variable.q"] = "odd"
    attributes["gen_ai.prompt.7.tool_calls.x.id"] = "kept"
    call = call_of(attributes)
    assert call.prompt is not None
    messages = json.loads(call.prompt.raw)
    assert [one["parts"][0]["content"] for one in messages] == [f"message {n}" for n in range(5000)]
    assert messages[7]["tool_calls.x.id"] == "kept"
    assert "odd" not in call.prompt.raw


def test_messages_win_over_flattened_ones() -> None:
    """Where a span says both, its newest generation is believed."""
    call = call_of(
        {
            semconv.GEN_AI_INPUT_MESSAGES: '[{"role":"user","parts":[]}]',
            "gen_ai.prompt.0.content": "older",
        }
    )
    assert call.prompt is not None
    assert "older" not in call.prompt.raw
