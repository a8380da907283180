# SPDX-License-Identifier: Apache-2.0
"""An agent of Microsoft's Agent Framework whose tasks are recorded, by its own spans.

They hold prompts and answers once sensitive telemetry is enabled. Run it with
``python examples/frameworks/with_agent_framework.py``.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer, enable_sensitive_telemetry
from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show

import otel_taskhistory

otel_taskhistory.configure()
enable_sensitive_telemetry()


class Offline(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):  # type: ignore[type-arg]
    """The model, with the layers that the framework's own clients have."""

    OTEL_PROVIDER_NAME = "offline"

    def __init__(self) -> None:
        super().__init__()
        self.model = MODEL
        self._script = Script()

    async def _inner_get_response(self, **request: Any) -> ChatResponse:
        turn = await self._script.answer_async()
        contents = [Content.from_text(turn.text)]
        if turn.call_id is not None:
            arguments = json.dumps(turn.arguments)
            contents.append(
                Content.from_function_call(turn.call_id, name="count", arguments=arguments)
            )
        return ChatResponse(
            messages=[Message(role="assistant", contents=contents)],
            model=MODEL,
            finish_reason="tool_calls" if turn.call_id is not None else "stop",
            usage_details={
                "input_token_count": turn.input_tokens,
                "output_token_count": turn.output_tokens,
            },
        )


@tool(approval_mode="never_require")
def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom."""
    return count_stock(part)  # what it raises is told to the model


agent = Agent(client=Offline(), name="storekeeper", instructions=SYSTEM, tools=[count])
try:
    asyncio.run(agent.run(GOAL))
finally:
    show()
