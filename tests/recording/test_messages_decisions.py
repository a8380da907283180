# SPDX-License-Identifier: Apache-2.0
"""A response of any model API becomes output messages with the facts beside them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_taskhistory.recording.messages import (
    Decision,
    convert_decision,
    convert_usage,
    restore_prompt,
)

REPLIES = sorted((Path(__file__).parent / "replies").glob("*.json"))


def load(path: Path) -> tuple[Any, dict[str, Any]]:
    """A response as its API documents it, and what is expected of the decision."""
    case = json.loads(path.read_text("utf-8"))
    return case["reply"], case["expected"]


def namespaces(value: Any) -> Any:
    """The same response as objects with attributes, as an SDK gives it."""
    if isinstance(value, dict) and value:
        return SimpleNamespace(**{key: namespaces(item) for key, item in value.items()})
    return [namespaces(item) for item in value] if isinstance(value, list) else value


def strings(value: Any) -> set[Any]:
    """All scalars within a value that could be lost."""
    if isinstance(value, dict):
        return {item for inner in value.values() for item in strings(inner)}
    if isinstance(value, list):
        return {item for inner in value for item in strings(inner)}
    return set() if value is None else {str(value)}


@pytest.mark.parametrize("as_objects", [False, True], ids=["dict", "objects"])
@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.stem)
def test_a_response_is_taken_apart(path: Path, as_objects: bool) -> None:
    """Parts, reasons, model, id, tokens and tool calls are found in each API's response."""
    reply, expected = load(path)
    decision = convert_decision(namespaces(reply) if as_objects else reply)
    messages = json.loads(decision.messages)
    assert [message["parts"] for message in messages] == expected.pop("parts")
    assert {message["role"] for message in messages} == {"assistant"}
    reasons = expected["finish_reasons"]
    assert [m["finish_reason"] for m in messages] == (
        reasons if len(reasons) == len(messages) else reasons * len(messages)
    )
    assert list(decision.finish_reasons) == expected.pop("finish_reasons")
    for name, value in expected.items():
        assert getattr(decision, name) == value, name
    assert (decision.text, decision.reduced) == (False, ())


def taken_apart(reply: Any) -> tuple[list[Any], list[Any], set[str]]:
    """The messages in a response, what is beside each, and the keys of what is taken."""
    if isinstance(reply, list):
        return reply, [{}] * len(reply), set()
    if "choices" in reply:
        choices = reply["choices"]
        rest = [without(c, "message", "finish_reason", "index") for c in choices]
        return [c["message"] for c in choices], rest, {"choices", "id", "model"}
    if "candidates" in reply:
        keys = ("content", "finishReason", "finish_reason", "index")
        blocked = {"role": "assistant", "parts": [], "finish_reason": "SAFETY"}
        contents = [c.get("content", blocked) for c in reply["candidates"]]
        return contents, [without(c, *keys) for c in reply["candidates"]], GEMINI_TAKEN
    if "stop_reason" in reply:
        keys = ("role", "content")
        return [{key: reply[key] for key in keys}], [{}], {*keys, "id", "model", "stop_reason"}
    if isinstance(reply.get("output"), dict):
        return [reply["output"]["message"]], [{}], {"output", "stopReason"}
    if "output" in reply:
        return reply["output"], [{}] * len(reply["output"]), {"output", "id", "model"}
    if "message" in reply:
        return [reply["message"]], [{}], {"message", "model", "done_reason"}
    return [reply], [{}], set(reply)


GEMINI_TAKEN = {
    "candidates",
    "modelVersion",
    "model_version",
    "responseId",
    "response_id",
}


def without(source: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The dict without these keys and without what is None."""
    return {key: item for key, item in source.items() if key not in keys and item is not None}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.stem)
def test_nothing_of_a_response_is_lost(path: Path) -> None:
    """Its messages can be restored; log probabilities, ratings, raw counts are kept beside."""
    reply, _ = load(path)
    originals, beside, taken = taken_apart(reply)
    messages = json.loads(convert_decision(reply).messages)
    left = messages[0].pop("taskhistory.response", {})
    assert [message.pop("taskhistory.choice", {}) for message in messages] == (beside or [{}])
    for message in messages:
        if "taskhistory.format" in message:
            del message["finish_reason"]
    if originals:
        assert restore_prompt(json.dumps(messages)) == originals
    if isinstance(reply, dict):
        assert left == {key: item for key, item in reply.items() if key not in taken}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.stem)
def test_what_the_agent_says_wins(path: Path) -> None:
    """Usage, model and reason given beside the response replace those in it, which are kept."""
    reply, _ = load(path)
    found = convert_decision(reply)
    decision = convert_decision(
        reply, usage={"prompt_tokens": 1}, model="mine", finish_reason="enough"
    )
    assert decision.usage == {"input_tokens": 1}
    assert decision.model == "mine"
    assert decision.finish_reasons == ("enough",)
    messages = json.loads(decision.messages)
    assert {message["finish_reason"] for message in messages} == {"enough"}
    left = messages[0].get("taskhistory.response", {})
    assert found.model in (None, left.get("model"))
    assert list(found.finish_reasons) == left.get("finish_reasons", [])


def test_a_text_is_a_decision() -> None:
    """A str is one message of one text part; its reason is empty unless it was told."""
    part = {"type": "text", "content": "Done: “x”"}
    assert convert_decision("Done: “x”") == Decision(
        messages=json.dumps(
            [{"role": "assistant", "parts": [part], "finish_reason": ""}], ensure_ascii=False
        ),
        text=True,
        finish_reasons=(),
        model=None,
        response_id=None,
        usage={},
        tool_calls=0,
        reduced=(),
    )
    decision = convert_decision("x", finish_reason="stop", model="m", usage={"total_tokens": 3})
    assert json.loads(decision.messages)[0]["finish_reason"] == "stop"
    assert (decision.model, decision.usage) == ("m", {"total": 3})


def test_pieces_of_a_response_are_a_decision() -> None:
    """A message, its content or its items are enough: agents often hand over just that."""
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    chat = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for reply, messages in (
        ({"role": "assistant", "content": [call]}, 1),
        ([call], 1),
        (call, 1),
        ([{"type": "reasoning", "summary": []}, item], 1),
        ([item, {"type": "message", "role": "assistant", "content": "x"}], 2),
        ({"role": "assistant", "content": None, "tool_calls": [chat]}, 1),
        ({"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}, 1),
        ({"message": {"role": "assistant", "tool_calls": [chat]}}, 1),
    ):
        decision = convert_decision(reply)
        recorded = json.loads(decision.messages)
        assert len(recorded) == messages
        assert recorded[0]["role"] == "assistant"
        assert decision.tool_calls == 1
        calls = [p for m in recorded for p in m["parts"] if p["type"] == "tool_call"]
        assert (calls[0]["name"], calls[0]["arguments"]) == ("f", {})


def test_a_reply_of_no_known_form_is_kept_whole() -> None:
    """A parsed object, nothing, or nonsense is one message that has all of it."""
    for reply in ({"action": "click", "index": 3}, None, 5, [], {}, [1, "a"], {"choices": 3}):
        decision = convert_decision(reply)
        (message,) = json.loads(decision.messages)
        assert message["role"] == "assistant"
        assert strings(reply) <= strings(message)
        assert (decision.tool_calls, decision.reduced) == (0, ())


def test_broken_responses_are_recorded() -> None:
    """Fields of a known response that hold something else do not cost the rest."""
    for reply in (
        {"choices": [None, "x", {}], "usage": "none", "model": 5, "id": None},
        {"candidates": [{"content": None}, 7], "usageMetadata": []},
        {"output": [None], "status": None},
        {"content": None, "stop_reason": None},
    ):
        decision = convert_decision(reply)
        assert json.loads(decision.messages)
        assert (decision.usage, decision.model, decision.reduced) == ({}, None, ())


def test_lone_surrogates_in_a_decision_are_escaped() -> None:
    """Half an emoji at the end of a cut reply is escaped and reported, in a text too."""
    for reply in ("cut \ud83e", {"role": "assistant", "content": "cut \ud83e"}):
        decision = convert_decision(reply)
        assert json.loads(decision.messages.encode())[0]["parts"][0]["content"] == "cut \\ud83e"
        assert decision.reduced == ("gen_ai.output.messages",)


def test_usage_in_every_dialect() -> None:
    """Counts are found by every API's names, in dicts and objects; the total only if alone."""
    full = {"input_tokens": 8, "output_tokens": 5, "cached_tokens": 3, "reasoning_tokens": 2}
    for usage in (
        full,
        full | {"total_tokens": 13},
        {
            "prompt_tokens": 8,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        {
            "promptTokenCount": 8,
            "candidatesTokenCount": 3,
            "cachedContentTokenCount": 3,
            "thoughtsTokenCount": 2,
        },
        {"inputTokens": 8.0, "outputTokens": 5, "cachedInputTokens": 3, "reasoningTokens": 2},
    ):
        assert convert_usage(usage) == full
        assert convert_usage(namespaces(usage)) == full
    assert convert_usage({"input_tokens": 1, "cache_creation_input_tokens": 4}) == {
        "input_tokens": 5
    }
    assert convert_usage({"totalTokens": 9}) == {"total": 9}
    assert convert_usage({"input_tokens": 0, "output_tokens": None}) == {"input_tokens": 0}
