# SPDX-License-Identifier: Apache-2.0
"""Policies: what of a span leaves; ``ids_only`` is a list of what passes, in narrow shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.redaction import NAMES, allowed, policy_named, shapes
from otel_taskhistory.redaction.policies import IdsOnly
from otel_taskhistory.spans.record import EventRecord, LogRecord, OriginRecord, SpanRecord

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
SPAN = SpanRecord("ab" * 16, "cd" * 8, None, "chat model-1", 1, 2)


def by_ids_only(**parts: Any) -> SpanRecord:
    """A span with some parts, as it leaves by default."""
    return IdsOnly().span(replace(SPAN, **parts))


def test_every_name_is_a_policy_and_others_are_refused() -> None:
    """In one sentence that says which there are."""
    for name in NAMES:
        assert policy_named(name).span(SPAN) == SPAN  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="ids_only, no_images, scrub, everything"):
        policy_named("all")  # type: ignore[arg-type]


def test_the_page_shows_what_passes() -> None:
    """Each key of the list is in docs/privacy.md, and no other is in its tables."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index("<!-- passes -->"), text.index("<!-- /passes -->")
    shown = set(re.findall(r"`([a-z_]+(?:\.[a-z0-9_]+)*\.?)`", text[begin:end]))
    assert shown == {*allowed.ATTRIBUTES, *allowed.COUNTS, *allowed.RESOURCE}


SENTENCE = "Please book a table for two in Berlin, tonight at eight."


@pytest.mark.parametrize(
    "value",
    [
        SENTENCE,
        [SENTENCE],
        {"a": SENTENCE},
        SENTENCE.encode(),
        SENTENCE.replace(" ", "_") * 9,
        "/home/alice/secret.txt",
        "C:\\Users\\alice\\secret.txt",
        "https://user:word@example.org/a?b=c",
        "alice@example.org said",
        '{"a": 1}',
        "one\ntwo",
        "\u202etxet",
        ["a"] * 1000,
        None,
    ],
)
def test_no_key_lets_contents_pass(value: Any) -> None:
    """Wherever a framework may put them."""
    keys = {*allowed.ATTRIBUTES, *allowed.RESOURCE, *(f"{count}x" for count in allowed.COUNTS)}
    attributes = dict.fromkeys(keys, value)
    left = by_ids_only(attributes=attributes, resource=OriginRecord(attributes=attributes))
    assert left.attributes == left.resource.attributes == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (semconv.GEN_AI_AGENT_NAME, "Reise-Büro (Wien)"),
        (semconv.GEN_AI_REQUEST_MODEL, "openai/gpt-4o:free"),
        (semconv.GEN_AI_REQUEST_MODEL, "meta-llama/Llama-3.1-70B-Instruct"),
        (semconv.GEN_AI_REQUEST_MODEL, "arn:aws:bedrock:us-east-1:12:model/x"),
        (semconv.GEN_AI_TOOL_NAME, "browser.click"),
        (semconv.GEN_AI_TOOL_CALL_ID, "toolu_01A09q90qw90lq917835lq9"),
        (semconv.GEN_AI_CONVERSATION_ID, "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        (semconv.GEN_AI_RESPONSE_FINISH_REASONS, ("stop", "tool_calls")),
        (semconv.GEN_AI_RESPONSE_FINISH_REASONS, ()),
        (semconv.GEN_AI_RESPONSE_ID, ""),
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, 812),
        ("llm.token_count.prompt_details.cache_read", 40),
        ("gen_ai.usage.cost", 0.002),
        (semconv.ERROR_TYPE, "app.errors.NotFound"),
        (semconv.ERROR_TYPE, "429"),
        (semconv.TASKHISTORY_SCREENSHOT_SHA256, "ab" * 32),
        (semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE, "image/svg+xml"),
        (semconv.TASKHISTORY_CALL_ABSENT, (semconv.GEN_AI_RESPONSE_ID,)),
    ],
)
def test_what_the_list_names_passes(key: str, value: Any) -> None:
    """Names, ids, counts, hashes, statuses."""
    assert by_ids_only(attributes={key: value}).attributes == {key: value}


@pytest.mark.parametrize(
    ("name", "attributes", "left"),
    [
        ("chat model-1", {}, "chat model-1"),
        ("handoff to agent", {}, "handoff to agent"),
        ("GET /orders/{id}", {}, "GET /orders/{id}"),
        ("read /home/alice/x", {}, "span"),
        ("GET /home/../etc?q=1", {}, "span"),
        (SENTENCE, {}, "span"),
        (SENTENCE, {semconv.GEN_AI_OPERATION_NAME: "chat"}, "chat"),
        (
            SENTENCE,
            {semconv.GEN_AI_OPERATION_NAME: "execute_tool", semconv.GEN_AI_TOOL_NAME: "click"},
            "execute_tool click",
        ),
        (
            "execute_tool rm -rf / now please",
            {
                semconv.GEN_AI_OPERATION_NAME: "execute_tool",
                semconv.GEN_AI_TOOL_NAME: "rm -rf / now please",
            },
            "execute_tool",
        ),
        ("look at the long list", {}, "span"),
        ("look at the long list", {semconv.TASKHISTORY_ROLE: "step"}, "look at the long list"),
        (SENTENCE, {semconv.TASKHISTORY_ROLE: "step"}, "step"),
        ("say sk-" + "abcdefghijklmnop0123", {}, "span"),
        ("", {}, "span"),
    ],
)
def test_a_name_of_a_span_leaves_when_it_is_one(
    name: str, attributes: dict[str, Any], left: str
) -> None:
    """Else what the attributes that pass say of it."""
    assert by_ids_only(name=name, attributes=attributes).name == left


def test_names_of_events_leave_when_they_are_ones() -> None:
    """A sentence becomes "event"."""
    events = (EventRecord("gen_ai.user.message", 1), EventRecord(SENTENCE, 2))
    assert [e.name for e in by_ids_only(events=events).events] == ["gen_ai.user.message", "event"]


@pytest.mark.parametrize(
    ("state", "left"),
    [
        ("", ""),
        ("vendor=a", ""),
        ("ot=th:8", "ot=th:8"),
        ("a=b,ot=rv:0123456789abcd;th:0,c=d", "ot=rv:0123456789abcd;th:0"),
        ("ot=th:8;p:words", ""),
        ("xot=th:8", ""),
    ],
)
def test_of_the_trace_state_only_sampling_leaves(state: str, left: str) -> None:
    """What vendors put there is not ours to let out."""
    assert by_ids_only(trace_state=state).trace_state == left


def test_a_registered_secret_never_leaves() -> None:
    """Not as a name either."""
    policy = policy_named("ids_only", secrets=["desk-pass-1"])
    record = replace(
        SPAN,
        name="chat desk-pass-1",
        attributes={semconv.GEN_AI_AGENT_NAME: "desk-pass-1", semconv.GEN_AI_TOOL_NAME: "ok"},
        scope=OriginRecord("desk-pass-1"),
        resource=OriginRecord(attributes={semconv.SERVICE_NAME: "desk-pass-1"}),
    )
    left = policy.span(record)
    assert left is not None
    assert "desk-pass" not in repr(left)
    assert left.attributes == {semconv.GEN_AI_TOOL_NAME: "ok"}


def test_of_log_records_the_same_leaves() -> None:
    """Their body does not."""
    record = LogRecord(
        "ab" * 16,
        "cd" * 8,
        "gen_ai.choice",
        body={"content": SENTENCE},
        attributes={"gen_ai.system": "openai", "other": SENTENCE},
        severity_text=SENTENCE,
    )
    left = policy_named("ids_only").log(record)
    assert SENTENCE not in repr(left)
    assert (left.event_name, left.attributes) == ("gen_ai.choice", {"gen_ai.system": "openai"})


ALL_SHAPES = [
    *(shapes.is_number, shapes.is_flag, shapes.is_id, shapes.is_id_or_number, shapes.is_word),
    *(shapes.is_type, shapes.is_hash, shapes.is_media_type, shapes.is_version, shapes.is_token),
    *(shapes.is_schema_url, shapes.is_name, shapes.is_label, shapes.several(shapes.is_word)),
]


@given(
    st.text()
    | st.text(alphabet="aA0 ./:-_@'\n", min_size=1, max_size=300)
    | st.lists(st.text())
    | st.binary()
    | st.none()
    | st.dictionaries(st.text(), st.text())
)
def test_no_shape_raises_and_what_passes_is_short(value: Any) -> None:
    """Whatever comes; more than 256 characters pass in none."""
    for shape in ALL_SHAPES:
        if shape(value):
            texts = value if isinstance(value, list) else [value]
            assert all(isinstance(text, str) and len(text) <= 256 for text in texts)
            assert not any("\n" in text for text in texts)
