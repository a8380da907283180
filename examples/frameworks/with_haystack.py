# SPDX-License-Identifier: Apache-2.0
"""A Haystack agent whose tasks are recorded: Haystack's tracer is given OpenTelemetry's.

The spans hold prompts and answers only when content tracing is on. Run it with
``python examples/frameworks/with_haystack.py``.
"""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # of how Haystack is used, to its makers
os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"

from haystack import component, tracing
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool
from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from opentelemetry import trace

import otel_taskhistory

otel_taskhistory.configure()
tracing.enable_tracing(OpenTelemetryTracer(trace.get_tracer("haystack")))


@component
class Offline:
    """The model."""

    def __init__(self) -> None:
        self._script = Script()

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **settings: Any) -> Any:
        """Answer one request."""
        turn = self._script.answer()
        calls = []
        if turn.call_id is not None:
            calls = [ToolCall(tool_name="count", arguments=turn.arguments, id=turn.call_id)]
        used = {"prompt_tokens": turn.input_tokens, "completion_tokens": turn.output_tokens}
        meta = {"model": MODEL, "usage": used}
        return {"replies": [ChatMessage.from_assistant(turn.text, tool_calls=calls, meta=meta)]}


@tool
def count(part: str) -> str:
    """Count how many of a part are in the storeroom."""
    return json.dumps(count_stock(part))


agent = Agent(
    chat_generator=Offline(),
    tools=[count],
    system_prompt=SYSTEM,
    raise_on_tool_invocation_failure=False,  # the model is told
)
try:
    agent.run(messages=[ChatMessage.from_user(GOAL)])
finally:
    show()
