# SPDX-License-Identifier: Apache-2.0
"""A Strands agent whose tasks are recorded: the framework's own OpenTelemetry spans suffice.

Run it with ``python examples/frameworks/with_strands.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from strands import Agent, tool
from strands.models.model import Model

import otel_taskhistory

otel_taskhistory.configure()


class Offline(Model):
    """The model, which streams as those of Strands do."""

    def __init__(self) -> None:
        self._script = Script()
        self.config = {"model_id": MODEL}  # where the spans have the model's name from

    def get_config(self) -> Any:
        """What the model was made with."""
        return self.config

    def update_config(self, **config: Any) -> None:
        """There is nothing to change."""

    def structured_output(self, *args: Any, **settings: Any) -> Any:
        """Not asked for by this agent."""
        raise NotImplementedError

    async def stream(self, *args: Any, **settings: Any) -> AsyncIterator[dict[str, Any]]:
        """Answer one request."""
        turn = await self._script.answer_async()
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": turn.text}}}
        yield {"contentBlockStop": {}}
        if turn.call_id is not None:
            use = {"name": "count", "toolUseId": turn.call_id}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            given = {"input": json.dumps(turn.arguments)}
            yield {"contentBlockDelta": {"delta": {"toolUse": given}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn.call_id else "end_turn"}}
        used = {"inputTokens": turn.input_tokens, "outputTokens": turn.output_tokens}
        usage = {**used, "totalTokens": sum(used.values())}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


@tool
def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom.

    Args:
        part: number of the part.
    """
    return {"status": "success", "content": [{"json": count_stock(part)}]}


agent = Agent(
    model=Offline(),
    name="storekeeper",
    system_prompt=SYSTEM,
    tools=[count],
    callback_handler=None,
)
try:
    asyncio.run(agent.invoke_async(GOAL))
finally:
    show()
