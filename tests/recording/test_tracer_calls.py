# SPDX-License-Identifier: Apache-2.0
"""Prompts and decisions of a step, and what its sink sees of them while it runs."""

from __future__ import annotations

import json
from typing import Any

from otel_taskhistory import semconv

CALL = (
    semconv.GEN_AI_INPUT_MESSAGES,
    semconv.GEN_AI_OUTPUT_MESSAGES,
    semconv.GEN_AI_REQUEST_MODEL,
    semconv.GEN_AI_RESPONSE_MODEL,
    semconv.GEN_AI_RESPONSE_FINISH_REASONS,
    semconv.GEN_AI_USAGE_INPUT_TOKENS,
    semconv.GEN_AI_USAGE_OUTPUT_TOKENS,
    semconv.GEN_AI_SYSTEM_INSTRUCTIONS,
    semconv.GEN_AI_TOOL_DEFINITIONS,
    semconv.TASKHISTORY_PROMPT_FORMAT,
    semconv.TASKHISTORY_DECISION_FORMAT,
    semconv.TASKHISTORY_CALL_STARTED,
    semconv.TASKHISTORY_CALL_ENDED,
)


def present(span: Any) -> dict[str, Any]:
    """The facts of the last model call as a reader finds them: without those said to be absent."""
    absent = span.attributes.get(semconv.TASKHISTORY_CALL_ABSENT, ())
    return {
        name: span.attributes[name]
        for name in CALL
        if name in span.attributes and name not in absent
    }


def earlier_calls(span: Any) -> list[Any]:
    """The events of the model calls before the last."""
    return [event for event in span.events if event.name == semconv.GEN_AI_INFERENCE_DETAILS_EVENT]


def text(content: str) -> str:
    """A prompt of one string as GenAI messages."""
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": content}]}])


def test_one_model_call_is_attributes_of_the_step(kit: Any) -> None:
    """Messages, model, system, tools, usage, finish reason and both times."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt(
        [{"role": "user", "content": "hi"}],
        model="gpt-x",
        system="be brief",
        tools=[{"name": "click"}],
    )
    step.decision(
        {"role": "assistant", "content": "ok"},
        usage={"input_tokens": 812, "output_tokens": 40},
        model="gpt-x-2026",
        finish_reason="stop",
    )
    task.end()
    span = kit.one("s")
    facts = present(span)
    assert span.attributes[semconv.GEN_AI_OPERATION_NAME] == "chat"
    assert facts[semconv.GEN_AI_REQUEST_MODEL] == "gpt-x"
    assert facts[semconv.GEN_AI_RESPONSE_MODEL] == "gpt-x-2026"
    assert facts[semconv.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert facts[semconv.GEN_AI_USAGE_INPUT_TOKENS] == 812
    assert facts[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] == 40
    assert json.loads(facts[semconv.GEN_AI_INPUT_MESSAGES])[0]["role"] == "user"
    assert json.loads(facts[semconv.GEN_AI_OUTPUT_MESSAGES])[0]["role"] == "assistant"
    assert json.loads(facts[semconv.GEN_AI_SYSTEM_INSTRUCTIONS])[0]["content"] == "be brief"
    assert json.loads(facts[semconv.GEN_AI_TOOL_DEFINITIONS]) == [{"name": "click"}]
    started, ended = facts[semconv.TASKHISTORY_CALL_STARTED], facts[semconv.TASKHISTORY_CALL_ENDED]
    assert span.start_time <= started <= ended <= span.end_time
    assert semconv.TASKHISTORY_PROMPT_FORMAT not in facts
    assert semconv.TASKHISTORY_CALL_ABSENT not in span.attributes
    assert not earlier_calls(span)


def test_a_prompt_and_a_decision_of_one_string_are_marked_as_text(kit: Any) -> None:
    """So that they are read back as the strings they were."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt("hello")
    step.decision("world")
    task.end()
    facts = present(kit.one("s"))
    assert facts[semconv.TASKHISTORY_PROMPT_FORMAT] == "text"
    assert facts[semconv.TASKHISTORY_DECISION_FORMAT] == "text"
    assert json.loads(facts[semconv.GEN_AI_INPUT_MESSAGES]) == json.loads(text("hello"))


def test_a_further_prompt_moves_the_call_before_it_into_an_event(kit: Any) -> None:
    """All facts of the earlier call, at the time it ended; the attributes are those of the last."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt("one", model="m-1", system="sys", tools=[{"name": "t"}])
    step.decision("1", usage={"input_tokens": 5}, model="r-1", finish_reason="stop")
    first = present(step.span)
    step.prompt([{"role": "user", "content": "two"}])
    between = present(step.span)
    step.decision({"role": "assistant", "content": "2"}, usage={"output_tokens": 7})
    task.end()

    span = kit.one("s")
    (event,) = earlier_calls(span)
    assert dict(event.attributes) == {**first, semconv.GEN_AI_OPERATION_NAME: "chat"}
    assert event.timestamp == first[semconv.TASKHISTORY_CALL_ENDED]
    assert set(between) == {semconv.GEN_AI_INPUT_MESSAGES, semconv.TASKHISTORY_CALL_STARTED}
    last = present(span)
    assert "two" in last[semconv.GEN_AI_INPUT_MESSAGES]
    assert last[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] == 7
    for name in (
        semconv.GEN_AI_USAGE_INPUT_TOKENS,
        semconv.GEN_AI_REQUEST_MODEL,
        semconv.GEN_AI_RESPONSE_MODEL,
        semconv.GEN_AI_SYSTEM_INSTRUCTIONS,
        semconv.GEN_AI_TOOL_DEFINITIONS,
        semconv.GEN_AI_RESPONSE_FINISH_REASONS,
        semconv.TASKHISTORY_PROMPT_FORMAT,
        semconv.TASKHISTORY_DECISION_FORMAT,
    ):
        assert name not in last
        assert not span.attributes[name], "a reader that knows no absences sees nothing either"


def test_what_was_absent_may_come_back(kit: Any) -> None:
    """The list of absent attributes is that of the last call, and empty when it has them all."""
    task = kit.tasks.task("g")
    step = task.step("s")
    for _ in range(2):
        step.prompt("p", model="m")
        step.decision("d", usage={"input_tokens": 1})
    task.end()
    span = kit.one("s")
    assert span.attributes[semconv.TASKHISTORY_CALL_ABSENT] == ()
    assert present(span)[semconv.GEN_AI_USAGE_INPUT_TOKENS] == 1
    assert len(earlier_calls(span)) == 1


def test_a_prompt_without_a_decision_is_a_call_too(kit: Any) -> None:
    """A request that failed and was made anew: the first is an event that has no decision."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt("p")
    step.prompt("p")
    step.decision("d")
    task.end()
    (event,) = earlier_calls(kit.one("s"))
    assert semconv.GEN_AI_OUTPUT_MESSAGES not in event.attributes
    assert semconv.TASKHISTORY_CALL_ENDED not in event.attributes
    last = present(kit.one("s"))
    assert event.timestamp == last[semconv.TASKHISTORY_CALL_STARTED]


def test_a_further_decision_is_a_further_call_with_the_same_prompt(kit: Any) -> None:
    """The model was asked again with nothing new said; the call began when the first one ended."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt("p", model="m")
    step.decision("bad", usage={"input_tokens": 3}, finish_reason="length")
    step.decision("good")
    task.end()
    span = kit.one("s")
    (event,) = earlier_calls(span)
    last = present(span)
    assert "bad" in event.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert event.attributes[semconv.GEN_AI_USAGE_INPUT_TOKENS] == 3
    assert "good" in last[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert last[semconv.GEN_AI_INPUT_MESSAGES] == event.attributes[semconv.GEN_AI_INPUT_MESSAGES]
    assert last[semconv.GEN_AI_REQUEST_MODEL] == "m"
    assert (
        last[semconv.TASKHISTORY_CALL_STARTED] == event.attributes[semconv.TASKHISTORY_CALL_ENDED]
    )
    assert semconv.GEN_AI_USAGE_INPUT_TOKENS not in last


def test_decisions_without_a_prompt_are_kept(kit: Any) -> None:
    """Nobody said what was asked: the decisions are there all the same."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.decision("one")
    step.decision("two")
    task.end()
    (event,) = earlier_calls(kit.one("s"))
    assert "one" in event.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert "two" in present(kit.one("s"))[semconv.GEN_AI_OUTPUT_MESSAGES]


def test_what_is_reduced_belongs_to_its_call(kit: Any) -> None:
    """The names move into the event with the call; those of the last call are on the step."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.result("\ud83e")
    step.prompt("bad \ud83e")
    step.decision("bad \ud83e")
    assert set(step.span.attributes[semconv.TASKHISTORY_REDUCED]) == {
        semconv.TASKHISTORY_STEP_RESULT,
        semconv.GEN_AI_INPUT_MESSAGES,
        semconv.GEN_AI_OUTPUT_MESSAGES,
    }
    step.prompt("good")
    task.end()
    span = kit.one("s")
    assert span.attributes[semconv.TASKHISTORY_REDUCED] == (semconv.TASKHISTORY_STEP_RESULT,)
    assert set(earlier_calls(span)[0].attributes[semconv.TASKHISTORY_REDUCED]) == {
        semconv.GEN_AI_INPUT_MESSAGES,
        semconv.GEN_AI_OUTPUT_MESSAGES,
    }


def test_the_sink_sees_each_prompt_and_decision_at_once(kit: Any) -> None:
    """The open span already holds the news; the detail has counts and sizes, never content."""
    task = kit.tasks.task("g")
    step = task.step("s")
    step.prompt([{"role": "user", "content": "secret"}], system="hidden", tools=[{"name": "t"}])
    step.decision("private", usage={"input_tokens": 9})
    step.prompt("secret")
    asked, answered, again = kit.sink.checkpoints
    assert [one.event for one in kit.sink.checkpoints] == [
        "step.prompt",
        "step.decision",
        "step.prompt",
    ]
    assert "secret" in asked.attributes[semconv.GEN_AI_INPUT_MESSAGES]
    assert "private" in answered.attributes[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert again.events == [semconv.GEN_AI_INFERENCE_DETAILS_EVENT]
    assert (asked.detail["call"], asked.detail["messages"]) == (1, 1)
    assert asked.detail["chars"] == len(asked.attributes[semconv.GEN_AI_INPUT_MESSAGES])
    assert (answered.detail["call"], answered.detail["tool_calls"]) == (1, 0)
    assert answered.detail["input_tokens"] == 9
    assert again.detail["call"] == 2
    for one in kit.sink.checkpoints:
        assert all(isinstance(value, int) for value in one.detail.values())
    task.end()


def test_only_what_a_processor_does_not_see_is_a_checkpoint(kit: Any) -> None:
    """Starts, ends, tool calls and results come to the history with their spans."""
    with kit.tasks.task("g") as task, task.step() as step:
        with step.tool_call("t", {"a": 1}) as call:
            call.result(1)
        step.result("x")
        step.set_attribute("a", 1)
        task.result("y")
    assert kit.sink.checkpoints == []
