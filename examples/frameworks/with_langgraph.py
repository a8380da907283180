# SPDX-License-Identifier: Apache-2.0
"""A LangChain agent (a LangGraph graph) whose tasks are recorded, by OpenTelemetry's own
instrumentation.

It says what a span is when the span begins, so that a model call can be seen while it runs. Run it
with ``python examples/frameworks/with_langgraph.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolCallRequest, wrap_tool_call
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from pydantic import PrivateAttr

import otel_taskhistory

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
otel_taskhistory.configure()
LangChainInstrumentor().instrument()


class Offline(BaseChatModel):
    """The model."""

    model_name: str = MODEL
    _script: Script = PrivateAttr(default_factory=Script)

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Any, **settings: Any) -> Runnable[Any, AIMessage]:
        """The tools are known to the script."""
        return self.bind(tools=[{"type": "function", "function": {"name": "count"}}])

    def _generate(self, messages: list[BaseMessage], *args: Any, **settings: Any) -> ChatResult:
        """Not asked for: this agent runs in an event loop."""
        raise NotImplementedError

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **settings: Any
    ) -> ChatResult:
        turn = await self._script.answer_async()
        calls = [{"name": "count", "args": turn.arguments, "id": turn.call_id}]
        why = "stop" if turn.call_id is None else "tool_calls"
        used = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
        message = AIMessage(
            content=turn.text,
            tool_calls=calls if turn.call_id is not None else [],
            usage_metadata={**used, "total_tokens": sum(used.values())},
            response_metadata={"model_name": MODEL, "finish_reason": why},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def count(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom."""
    return count_stock(part)


@wrap_tool_call
async def tell_the_model(
    request: ToolCallRequest, call: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    """What a tool raises ends the run, unless the model is told."""
    try:
        return await call(request)
    except LookupError as error:
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


agent = create_agent(
    Offline(),
    tools=[count],
    system_prompt=SYSTEM,
    middleware=[tell_the_model],
    name="storekeeper",
)
try:
    asyncio.run(agent.ainvoke({"messages": [{"role": "user", "content": GOAL}]}))
finally:
    show()
