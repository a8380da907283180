# SPDX-License-Identifier: Apache-2.0
"""The dialect of our own tracer, as it writes it and as others might."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions import taskhistory
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts
from otel_taskhistory.spans.record import EventRecord
from tests.store.deliveries import (
    NOON,
    SECOND,
    asks,
    earlier_call,
    message,
    own_step,
    own_task,
    own_tool,
    span,
)

NAMES = [
    value
    for name, value in vars(semconv).items()
    if name.isupper() and isinstance(value, str) and "." in value
]


def read(record: Any) -> SpanFacts:
    """The facts of a span of ours."""
    facts = taskhistory.read(record)
    assert facts is not None
    return facts


def text_of(said: Said | None) -> str | None:
    """What was said, if anything."""
    return None if said is None else said.raw


def test_roles() -> None:
    """A span names its role itself; any other span is none of ours."""
    assert read(own_task()).role == "task"
    assert read(own_step(2)).role == "step"
    assert read(own_tool(3, 2)).role == "tool"
    for odd in ("model", "", 7, None, ["task"]):
        assert taskhistory.read(span(1, attributes={semconv.TASKHISTORY_ROLE: odd})) is None


def test_a_task() -> None:
    """All that its attributes say; empty texts are kept."""
    facts = read(
        own_task(
            attributes={
                semconv.TASKHISTORY_TASK_GOAL: "",
                semconv.TASKHISTORY_TASK_RESULT: "",
                semconv.TASKHISTORY_TASK_KEY: "key",
                semconv.TASKHISTORY_TASK_PARENT_ID: "p" * 32,
                semconv.TASKHISTORY_TASK_ATTEMPT: 3,
                semconv.GEN_AI_CONVERSATION_ID: "c",
            }
        )
    )
    assert (facts.goal, facts.result, facts.key, facts.attempt) == ("", "", "key", 3)
    assert (facts.parent_task_id, facts.conversation_id, facts.agent) == ("p" * 32, "c", "desk")
    assert facts.model_calls == ()


def calls(record: Any) -> tuple[ModelCall, ...]:
    """The model calls of a step."""
    return read(record).model_calls


def test_the_calls_of_a_step() -> None:
    """Earlier ones from events, the last one from the attributes of the step, in order."""
    record = own_step(
        2,
        prompt=[message("third")],
        decision=asks("c3"),
        events=(
            earlier_call([message("first")], asks("c1"), 1),
            EventRecord("something else", 1),
            earlier_call([message("second")], None, 1.5),
        ),
    )
    first, second, third = calls(record)
    assert [call.ordinal for call in (first, second, third)] == [0, 1, 2]
    assert [call.call_ids for call in (first, second, third)] == [("c1",), (), ("c3",)]
    assert first.started_ns == NOON + SECOND
    assert first.ended_ns == NOON + SECOND + SECOND // 10
    assert (first.status, second.status, third.status) == ("succeeded", "failed", "succeeded")
    assert second.ended_ns == NOON + SECOND * 16 // 10


def test_a_call_without_its_answer() -> None:
    """It runs while its step does; then it shares the step's fate."""
    prompt = [message("x")]
    (running,) = calls(own_step(2, prompt=prompt, end=None))
    assert (running.status, running.ended_ns) == ("running", None)
    record = own_step(2, prompt=prompt, status_code="ERROR", status_message="down")
    (failed,) = calls(record)
    assert (failed.status, failed.error, failed.ended_ns) == ("failed", "down", record.end_ns)
    (answered,) = calls(own_step(2, prompt=prompt, decision=asks(), status_code="ERROR"))
    assert (answered.status, answered.error) == ("succeeded", None)


def test_a_step_that_asked_nobody() -> None:
    """Has no calls."""
    assert calls(own_step(2)) == ()


def test_what_is_absent_is_not_there() -> None:
    """A span cannot forget: attributes of an earlier call that are named are not the last one's."""
    absent = {
        semconv.GEN_AI_OUTPUT_MESSAGES: "",
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 0,
        semconv.GEN_AI_REQUEST_MODEL: "",
        semconv.TASKHISTORY_CALL_ABSENT: (
            semconv.GEN_AI_OUTPUT_MESSAGES,
            semconv.GEN_AI_USAGE_INPUT_TOKENS,
        ),
    }
    (call,) = calls(own_step(2, prompt=[message("x")], attributes=absent, end=None))
    assert (call.decision, call.tokens.input, call.status) == (None, None, "running")
    everything = {**absent, semconv.TASKHISTORY_CALL_ABSENT: (semconv.GEN_AI_INPUT_MESSAGES,)}
    del everything[semconv.GEN_AI_OUTPUT_MESSAGES]
    assert calls(own_step(2, prompt=[message("x")], attributes=everything)) == ()


@pytest.mark.parametrize("odd", ["gen_ai.input.messages", 7, b"x", {"a": 1}, [7, None]])
def test_an_odd_list_of_absent_names(odd: Any) -> None:
    """Is none; the call is there."""
    record = own_step(2, prompt=[message("x")], attributes={semconv.TASKHISTORY_CALL_ABSENT: odd})
    (call,) = calls(record)
    assert call.prompt is not None


def test_a_prompt_that_was_one_string() -> None:
    """Is shown as that string, and so is a decision; with instructions it is a list."""
    text = {
        semconv.TASKHISTORY_PROMPT_FORMAT: "text",
        semconv.TASKHISTORY_DECISION_FORMAT: "text",
    }
    prompt, decision = [message("what?")], [message("that", "assistant")]
    (call,) = calls(own_step(2, prompt=prompt, decision=decision, attributes=text))
    assert call.prompt == Said("what?", structured=False)
    assert call.decision == Said("that", structured=False)
    system = {**text, semconv.GEN_AI_SYSTEM_INSTRUCTIONS: '[{"type":"text","content":"s"}]'}
    (call,) = calls(own_step(2, prompt=prompt, attributes=system))
    assert call.prompt is not None
    assert call.prompt.structured


@pytest.mark.parametrize(
    "cut", ["[{", '[{"parts":[]}]', "[]", "[1]", '[{"parts":[{"content":7}]}]']
)
def test_a_string_that_was_cut(cut: str) -> None:
    """Is shown as what is left of it."""
    text = {semconv.TASKHISTORY_PROMPT_FORMAT: "text"}
    (call,) = calls(own_step(2, prompt=cut, attributes=text))
    assert text_of(call.prompt) == cut


def test_indexes_and_attempts() -> None:
    """Any whole number may be an index; an attempt is at least the first."""
    for given_index in (0, -3, 7, 2**63 - 1):
        assert read(own_step(2, index=given_index)).step_index == given_index
    for odd in ("1", 1.5, True, 2**63):
        attributes = {semconv.TASKHISTORY_STEP_INDEX: odd}
        assert read(own_step(2, attributes=attributes)).step_index is None
    for odd in (0, -1, "2", None):
        attributes = {semconv.TASKHISTORY_TASK_ATTEMPT: odd}
        assert read(own_task(attributes=attributes)).attempt == 1


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from(["[{", "[", json.dumps([message("x")]), json.dumps(asks("c")), "text", "step"])
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=8)


@given(
    ATTRIBUTES,
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    semconv.GEN_AI_INFERENCE_DETAILS_EVENT,
                    semconv.TASKHISTORY_SCREENSHOT_EVENT,
                    semconv.EXCEPTION_EVENT,
                ]
            ),
            ATTRIBUTES,
        ),
        max_size=3,
    ),
    st.sampled_from(["task", "step", "tool_call", None]),
    st.booleans(),
)
def test_nothing_that_a_span_says_raises(
    attributes: dict[str, Any], events: list[tuple[str, Any]], role: str | None, ended: bool
) -> None:
    """Values of any type under every name we read give facts, whole in their own types."""
    if role is not None:
        attributes = {**attributes, semconv.TASKHISTORY_ROLE: role}
    record = span(
        2,
        1,
        end=3 if ended else None,
        attributes=attributes,
        events=tuple(EventRecord(name, NOON, said) for name, said in events),
    )
    facts = conventions.read(record)
    for name in ("error", "agent", "goal", "result", "key", "conversation_id"):
        value = getattr(facts, name)
        assert value is None or isinstance(value, str)
    for call in facts.model_calls:
        assert isinstance(call.started_ns, int)
        assert all(isinstance(one, str) for one in call.call_ids)
    for shot in facts.screenshots:
        assert shot.bytes >= 0
        assert shot.path is None or shot.path.startswith(shot.sha256[:2] + "/" + shot.sha256)
