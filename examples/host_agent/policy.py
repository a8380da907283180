# SPDX-License-Identifier: Apache-2.0
"""A model that needs no key: a deterministic policy that decides from the conversation it is given.

It keeps nothing between two calls. Like any chat model it is handed the messages, finds in them
the goal and everything the tools returned so far, and decides what comes next. What it answers is
computed from those observations (`skills`); with other files on the disk it gives other answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .model import Message, Reply, asked_in
from .skills import Act, Answer, Decision, GiveUp, Seen, decide


class PolicyModel:
    """`Model` whose replies follow from the messages alone; see `skills` for the goals it knows.

    Its token counts are rough: words and punctuation marks, which no real tokenizer would agree
    with to the letter.
    """

    name = "demo-policy"

    def chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next decision as a chat completion."""
        goal = next(str(m["content"]) for m in messages if m["role"] == "user")
        message = _message(decide(goal, observations(messages)), _calls_so_far(messages))
        used, made = rough_tokens([*messages, *tools]), rough_tokens([message])
        return {
            "id": f"{self.name}-{len(messages)}",
            "object": "chat.completion",
            "model": self.name,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": used,
                "completion_tokens": made,
                "total_tokens": used + made,
            },
        }


def observations(messages: Sequence[Message]) -> list[Seen]:
    """What the tools returned so far, in the order in which the calls were asked for."""
    results = {m["tool_call_id"]: json.loads(m["content"]) for m in messages if m["role"] == "tool"}
    seen: list[Seen] = []
    for asked in (call for m in messages if m["role"] == "assistant" for call in asked_in(m)):
        value = results.get(asked.call_id)
        error = value.get("error") if isinstance(value, dict) and set(value) == {"error"} else None
        seen.append(Seen(asked.name, asked.arguments, None if error else value, error))
    return seen


def rough_tokens(items: Sequence[Mapping[str, Any]]) -> int:
    """Words and punctuation marks in the JSON of `items`."""
    return sum(len(re.findall(r"\w+|[^\w\s]", json.dumps(item))) for item in items)


def _calls_so_far(messages: Sequence[Message]) -> int:
    return sum(len(m.get("tool_calls") or ()) for m in messages)


def _message(decision: Decision, earlier: int) -> Message:
    """The assistant message that says `decision`; call ids go on counting after `earlier` calls."""
    match decision:
        case Answer(text):
            return {"role": "assistant", "content": text}
        case GiveUp(reason):
            said, calls = "This cannot be done.", (("give_up", {"reason": reason}),)
        case Act(said, calls):
            pass
    return {
        "role": "assistant",
        "content": said,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(calls, start=earlier + 1)
        ],
    }
