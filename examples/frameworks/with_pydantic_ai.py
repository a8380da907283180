# SPDX-License-Identifier: Apache-2.0
"""A pydantic-ai agent whose tasks are recorded: the framework's own OpenTelemetry spans suffice.

Run it with ``python examples/frameworks/with_pydantic_ai.py``, where pydantic-ai and
otel-taskhistory are installed.
"""

from __future__ import annotations

import asyncio

from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import otel_taskhistory

otel_taskhistory.configure()
Agent.instrument_all()

script = Script()


async def offline(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The model, as pydantic-ai's `FunctionModel` calls it."""
    turn = await script.answer_async()
    parts: list[TextPart | ToolCallPart] = [TextPart(turn.text)]
    if turn.call_id is not None:
        parts.append(ToolCallPart("count", turn.arguments, tool_call_id=turn.call_id))
    usage = RequestUsage(input_tokens=turn.input_tokens, output_tokens=turn.output_tokens)
    return ModelResponse(parts=parts, usage=usage, model_name=MODEL)


agent = Agent(FunctionModel(offline, model_name=MODEL), name="storekeeper", instructions=SYSTEM)


@agent.tool_plain(retries=2)
def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom."""
    try:
        return count_stock(part)
    except LookupError as error:  # what a tool raises ends the run, but for this one
        raise ModelRetry(str(error)) from error


try:
    asyncio.run(agent.run(GOAL))
finally:
    show()
