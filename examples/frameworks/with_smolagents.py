# SPDX-License-Identifier: Apache-2.0
"""A smolagents agent whose tasks are recorded, by OpenInference's instrumentation.

(The one of OpenTelemetry has no spans of steps, model calls and tools.) Run it with
``python examples/frameworks/with_smolagents.py``.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from openai.types.chat import ChatCompletion
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

import otel_taskhistory

otel_taskhistory.configure()
SmolagentsInstrumentor().instrument()


class Offline(OpenAIModel):
    """The model, with a client that asks nobody.

    The instrumentation sees the calls of the model classes of smolagents, and so of this one.
    """

    def create_client(self) -> Any:
        """What `OpenAIModel` sends its requests by."""
        script = Script()

        def create(**request: Any) -> ChatCompletion:
            turn = script.answer()
            name, arguments = "count", turn.arguments
            if turn.call_id is None:
                name, arguments = "final_answer", {"answer": turn.text}
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": turn.call_id or "last", "type": "function", "function": function}
            message = {"role": "assistant", "content": turn.text, "tool_calls": [call]}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            used = {"prompt_tokens": turn.input_tokens, "completion_tokens": turn.output_tokens}
            return ChatCompletion.model_validate(
                {
                    "id": "c",
                    "object": "chat.completion",
                    "created": 0,
                    "model": MODEL,
                    "choices": [choice],
                    "usage": {**used, "total_tokens": sum(used.values())},
                }
            )

        return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


@tool
def count(part: str) -> dict:  # type: ignore[type-arg]
    """Count how many of a part are in the storeroom.

    Args:
        part: number of the part.
    """
    return count_stock(part)


agent = ToolCallingAgent(
    tools=[count],
    model=Offline(model_id=MODEL),
    name="storekeeper",
    instructions=SYSTEM,
    verbosity_level=LogLevel.OFF,
)
try:
    agent.run(GOAL)
finally:
    show()
