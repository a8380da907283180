# SPDX-License-Identifier: Apache-2.0
"""A conversation that grows, is trimmed and edited, in every API's own messages."""

from __future__ import annotations

import base64
import copy
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from otel_taskhistory.recording.messages import convert_decision, convert_prompt, restore_prompt

Entries = list[dict[str, Any]]


def screenshot(step: int) -> str:
    """Base64 of a PNG of 64 × 48 pixels that no other step has."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    rows = b"".join(b"\0" + bytes((x * step + y) % 256 for x in range(64 * 3)) for y in range(48))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + body).decode("ascii")


def action(step: int) -> dict[str, Any]:
    """Arguments of a tool call."""
    return {"selector": f"#result-{step} > a", "why": f"Ergebnis {step} öffnen 👉", "n": step}


@dataclass
class Dialect:
    """How one API writes a conversation; each function returns the entries to append."""

    start: Entries
    """The opening of the conversation."""
    decide: Callable[[int], Entries]
    """What the model decides in a step, as it is sent again in the next."""
    observe: Callable[[int, str], Entries]
    """What the agent adds: the tool's result and a screenshot, base64."""
    redact: Callable[[dict[str, Any]], dict[str, Any]]
    """An old message without its screenshot."""


def without(kind: str, key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Replace the blocks of a type (or that have a key, without types) by a text."""

    def redact(entry: dict[str, Any]) -> dict[str, Any]:
        blocks = entry.get(key)
        if not isinstance(blocks, list):
            return entry
        text = {"text": "(old picture)"} if key == "parts" else {"type": "text", "text": "(old)"}
        kept = [text if b.get("type") == kind or kind in b else b for b in blocks]
        return {**entry, key: kept}

    return redact


def chat_decision(step: int) -> Entries:
    """A message with a tool call, as the SDK gives it."""
    call = {"name": "browser_click", "arguments": json.dumps(action(step), separators=(",", ":"))}
    calls = [{"id": f"call_{step}", "type": "function", "function": call}]
    content = None if step % 3 else f"Step {step}: I open the result."
    return [{"role": "assistant", "content": content, "refusal": None, "tool_calls": calls}]


def chat_observation(step: int, picture: str) -> Entries:
    """A tool's result and a screenshot."""
    url = {"url": f"data:image/png;base64,{picture}", "detail": "low"}
    return [
        {"role": "tool", "tool_call_id": f"call_{step}", "content": f'{{"ok": true, "n": {step}}}'},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "The page now:"},
                {"type": "image_url", "image_url": url if step % 2 else {"url": url["url"]}},
            ],
        },
    ]


CHAT = Dialect(
    [
        {"role": "developer", "content": "You operate a browser. Answer with tool calls."},
        {"role": "user", "content": "Book a table for two.\nToday, please.", "name": "desk-1"},
    ],
    chat_decision,
    chat_observation,
    without("image_url", "content"),
)

RESPONSES = Dialect(
    [
        {"role": "developer", "content": "You operate a browser."},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Book a table for two."}],
        },
    ],
    lambda step: [
        {
            "id": f"rs_{step}",
            "summary": [{"text": f"The link {step} looks right.", "type": "summary_text"}],
            "type": "reasoning",
            "encrypted_content": "gAAAAABo" + "x" * 40,
        },
        {
            "arguments": json.dumps(action(step), separators=(",", ":"), ensure_ascii=False),
            "call_id": f"call_{step}",
            "name": "browser_click",
            "type": "function_call",
            "id": f"fc_{step}",
            "status": "completed",
        },
        {
            "id": f"msg_{step}",
            "content": [{"annotations": [], "text": f"Step {step}", "type": "output_text"}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
        },
    ],
    lambda step, picture: [
        {"type": "function_call_output", "call_id": f"call_{step}", "output": "ok"},
        {
            "role": "user",
            "content": [
                {
                    "type": "input_image",
                    "image_url": f"data:image/png;base64,{picture}",
                    "detail": "auto",
                }
            ],
        },
    ],
    without("input_image", "content"),
)

ANTHROPIC = Dialect(
    [{"role": "user", "content": "Book a table for two."}],
    lambda step: [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"Step {step}…", "signature": "EqQBCgIYAhIM=="},
                {"type": "text", "text": "I open the result."},
                {"type": "tool_use", "id": f"toolu_{step}", "name": "click", "input": action(step)},
            ],
        }
    ],
    lambda step, picture: [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": f"toolu_{step}",
                    "content": [
                        {"type": "text", "text": "clicked"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": picture,
                            },
                        },
                    ],
                },
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": picture},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        }
    ],
    without("image", "content"),
)

GEMINI = Dialect(
    [{"role": "user", "parts": [{"text": "Book a table for two."}]}],
    lambda step: [
        {
            "role": "model",
            "parts": [
                {"text": f"Step {step}", "thought": True},
                {
                    "functionCall": {"name": "click", "args": action(step)},
                    "thoughtSignature": "CpQBAVSoXO4=",
                },
            ],
        }
    ],
    lambda step, picture: [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "click", "response": {"result": "ok"}}},
                {
                    "inlineData": {
                        "data": picture.replace("+", "-").replace("/", "_"),
                        "mimeType": "image/png",
                    }
                },
            ],
        }
    ],
    without("inlineData", "parts"),
)

GENAI = Dialect(
    [{"role": "user", "parts": [{"type": "text", "content": "Book a table for two."}]}],
    lambda step: [
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": f"c{step}", "name": "click", "arguments": action(step)}
            ],
        }
    ],
    lambda step, picture: [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": f"c{step}", "response": "ok"}],
        },
        {
            "role": "user",
            "parts": [
                {
                    "type": "blob",
                    "mime_type": "image/png",
                    "modality": "image",
                    "content": picture,
                }
            ],
        },
    ],
    lambda entry: entry,
)

LANGCHAIN = Dialect(
    [{"type": "system", "content": "You operate a browser.", "id": None}],
    lambda step: [
        {
            "content": "",
            "additional_kwargs": {},
            "response_metadata": {},
            "type": "ai",
            "tool_calls": [
                {"name": "click", "args": action(step), "id": f"c{step}", "type": "tool_call"}
            ],
        }
    ],
    lambda step, picture: [
        {"content": "ok", "type": "tool", "tool_call_id": f"c{step}", "status": "success"},
        {
            "content": [
                "The page now:",
                {"type": "image_url", "image_url": f"data:image/png;base64,{picture}"},
            ],
            "type": "human",
        },
    ],
    lambda entry: entry,
)

DIALECTS = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "genai": GENAI,
    "langchain": LANGCHAIN,
}


@pytest.mark.parametrize("name", DIALECTS)
def test_fifty_steps_are_recorded_as_the_model_received_them(name: str) -> None:
    """Restored, each prompt is what the model got; a message is one text however often sent.

    The conversation grows for 50 steps; from the 30th on its oldest steps are dropped and old
    pictures replaced, as agents do to stay within the context.
    """
    dialect = DIALECTS[name]
    history = list(dialect.start)
    received: list[Any] = []
    texts: dict[str, str] = {}
    for step in range(50):
        received.append(copy.deepcopy(history))  # the fake model
        recorded = convert_prompt(history)
        messages = json.loads(recorded.messages)
        assert json.dumps(restore_prompt(recorded.messages)) == json.dumps(received[-1])
        assert recorded.reduced == ()
        assert recorded.count == len(messages) == len(history)
        written = [json.dumps(message, ensure_ascii=False) for message in messages]
        assert recorded.messages == f"[{', '.join(written)}]"
        for entry, text in zip(history, written, strict=True):
            assert texts.setdefault(json.dumps(entry), text) == text
        if step:
            newest = screenshot(step - 1)
            assert f'{newest}"' in recorded.messages
        decision = dialect.decide(step)
        history += decision + dialect.observe(step, screenshot(step))
        if step > 30:
            del history[len(dialect.start) : len(dialect.start) + len(decision)]
            history[:-6] = [dialect.redact(entry) for entry in history[:-6]]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_decision_has_the_parts_that_the_next_prompt_has(name: str) -> None:
    """The model's message, recorded as its decision and in the next prompt, has the same parts."""
    decided = DIALECTS[name].decide(3)
    recorded = convert_decision(decided)
    sent_again = json.loads(convert_prompt(decided).messages)
    assert [m["parts"] for m in json.loads(recorded.messages)] == [m["parts"] for m in sent_again]
    assert {m["role"] for m in sent_again} == {"assistant"}
    assert recorded.tool_calls == 1


@pytest.mark.parametrize("name", DIALECTS)
def test_every_picture_is_one_unbroken_run_of_base64(name: str) -> None:
    """Pictures can be found in the text, decoded and stored as files, in the order sent."""
    history = [
        entry for step in range(5) for entry in DIALECTS[name].observe(step, screenshot(step))
    ]
    text = convert_prompt(history).messages
    places = [text.index(f'{screenshot(step)}"') for step in range(5)]
    assert places == sorted(places)


def test_the_bare_forms_of_a_gemini_prompt() -> None:
    """A string, a list of strings and a list of parts each come back as they were given."""
    picture = {"inline_data": {"mime_type": "image/png", "data": screenshot(1)}}
    for prompt in ("describe", ["describe", "briefly"], ["describe", picture], picture):
        recorded = convert_prompt(prompt)
        assert restore_prompt(recorded.messages, recorded.text) == prompt


def test_a_mixed_list_of_every_dialect_comes_back() -> None:
    """Messages are judged one by one, so a list may hold those of several APIs."""
    mixed = [entry for dialect in DIALECTS.values() for entry in dialect.start + dialect.decide(1)]
    assert restore_prompt(convert_prompt(mixed).messages) == mixed
    assert restore_prompt(convert_prompt(tuple(mixed)).messages) == mixed
