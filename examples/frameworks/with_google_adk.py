# SPDX-License-Identifier: Apache-2.0
"""A Google ADK agent whose tasks are recorded: the framework's own OpenTelemetry spans suffice.

They hold prompts and answers only when the environment asks for it. Run it with
``python examples/frameworks/with_google_adk.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any

os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from offline import GOAL, MODEL, SYSTEM, Script, count_stock, show
from pydantic import PrivateAttr

import otel_taskhistory

otel_taskhistory.configure()


class Offline(BaseLlm):
    """The model."""

    _script: Script = PrivateAttr(default_factory=Script)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer one request."""
        turn = await self._script.answer_async()
        parts = [types.Part(text=turn.text)]
        if turn.call_id is not None:
            call = types.FunctionCall(name="count", args=dict(turn.arguments), id=turn.call_id)
            parts.append(types.Part(function_call=call))
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            finish_reason=types.FinishReason.STOP,
            model_version=MODEL,
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=turn.input_tokens,
                candidates_token_count=turn.output_tokens,
                total_token_count=turn.input_tokens + turn.output_tokens,
            ),
        )


def count(part: str) -> dict[str, Any]:
    """Count how many of a part are in the storeroom."""
    try:
        return count_stock(part)
    except LookupError as error:  # what a tool raises ends the run
        return {"error": str(error)}


agent = LlmAgent(name="storekeeper", model=Offline(model=MODEL), instruction=SYSTEM, tools=[count])


async def main() -> None:
    """Run the agent in a session of its own."""
    runner = InMemoryRunner(agent=agent, app_name="storeroom")
    session = await runner.session_service.create_session(app_name="storeroom", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=GOAL)])
    events = runner.run_async(user_id="user", session_id=session.id, new_message=message)
    async for _ in events:
        pass


try:
    asyncio.run(main())
finally:
    show()
