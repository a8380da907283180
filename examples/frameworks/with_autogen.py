# SPDX-License-Identifier: Apache-2.0
"""An AutoGen agent whose tasks are recorded, by AutoGen's own spans.

These name the agent and its tools and no more: no model calls, prompts or arguments. Run it with
``python examples/frameworks/with_autogen.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage
from offline import GOAL, SYSTEM, Script, count_stock, show

import otel_taskhistory

otel_taskhistory.configure()

_NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Offline(ChatCompletionClient):
    """The model."""

    def __init__(self) -> None:
        self._script = Script()

    async def create(self, messages: Any, **settings: Any) -> CreateResult:
        """Answer one request."""
        turn = await self._script.answer_async()
        content: Any = turn.text
        if turn.call_id is not None:
            arguments = json.dumps(turn.arguments)
            content = [FunctionCall(id=turn.call_id, name="count", arguments=arguments)]
        return CreateResult(
            finish_reason="function_calls" if turn.call_id is not None else "stop",
            content=content,
            usage=RequestUsage(turn.input_tokens, turn.output_tokens),
            cached=False,
        )

    async def create_stream(self, *args: Any, **settings: Any) -> Any:
        """Not asked for by this agent."""
        raise NotImplementedError
        yield

    async def close(self) -> None:
        """There is nothing to close."""

    def actual_usage(self) -> RequestUsage:
        """Nobody counts here."""
        return _NOTHING

    total_usage = actual_usage

    def count_tokens(self, *args: Any, **settings: Any) -> int:
        """Likewise."""
        return 0

    remaining_tokens = count_tokens

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        able = dict.fromkeys(("vision", "json_output", "structured_output"), False)
        return ModelInfo(family="unknown", function_calling=True, **able)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The older name for it."""
        return self.model_info


async def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom."""
    return count_stock(part)  # what it raises is told to the model


agent = AssistantAgent(
    "storekeeper",
    model_client=Offline(),
    tools=[count],
    system_message=SYSTEM,
    max_tool_iterations=5,
)
try:
    asyncio.run(agent.run(task=GOAL))
finally:
    show()
