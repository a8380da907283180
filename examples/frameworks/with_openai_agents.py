# SPDX-License-Identifier: Apache-2.0
"""An agent of the OpenAI Agents SDK whose tasks are recorded, by OpenInference's instrumentation.

The SDK has a tracing of its own that goes to OpenAI; the instrumentation turns it into
OpenTelemetry spans. (The one of OpenTelemetry has no spans of model calls.) Run it with
``python examples/frameworks/with_openai_agents.py``.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_trace_processors
from agents.tracing import response_span
from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseUsage,
)
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

import otel_taskhistory

otel_taskhistory.configure()
set_trace_processors([])  # nothing goes to OpenAI
OpenAIAgentsInstrumentor().instrument()


class Offline(Model):
    """The model; it tells of its calls as the SDK's own models do."""

    def __init__(self) -> None:
        self._script = Script()

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        """Answer one request."""
        with response_span() as span:
            try:
                turn = await self._script.answer_async()
            except RuntimeError as error:
                span.set_error({"message": str(error), "data": None})
                raise
            text = ResponseOutputText(type="output_text", text=turn.text, annotations=[])
            output: list[Any] = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
            if turn.call_id is not None:
                arguments = json.dumps(turn.arguments)
                call = {"call_id": turn.call_id, "name": "count", "arguments": arguments}
                output.append(ResponseFunctionToolCall(type="function_call", **call))
            used = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
            span.span_data.input = request["input"]
            span.span_data.response = Response.model_construct(
                id="r",
                object="response",
                model=MODEL,
                instructions=request["system_instructions"],
                output=output,
                usage=ResponseUsage.model_construct(**used),
            )
        return ModelResponse(output=output, usage=Usage(requests=1, **used), response_id=None)

    def stream_response(self, *args: Any, **settings: Any) -> Any:
        """Not asked for by `Runner.run`."""
        raise NotImplementedError


@function_tool
def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom."""
    return count_stock(part)  # what it raises is told to the model


agent = Agent(name="storekeeper", instructions=SYSTEM, model=Offline(), tools=[count])
try:
    asyncio.run(Runner.run(agent, GOAL))
finally:
    show()
