# SPDX-License-Identifier: Apache-2.0
"""The attributes of OpenLLMetry (Traceloop) that we read, as documented constants."""

from __future__ import annotations

from typing import Final

SPAN_KIND: Final = "traceloop.span.kind"
"""``workflow``, ``agent``, ``task``, ``tool``; also ``handoff``, ``session``, ``server``."""
WORKFLOW_NAME: Final = "traceloop.workflow.name"
"""Of the workflow around a span; on every span within it."""
ENTITY_NAME: Final = "traceloop.entity.name"
"""What the span runs: a chain, a node of a graph, a tool, a decorated function."""
ENTITY_PATH: Final = "traceloop.entity.path"
"""Names of the entities around it."""
ENTITY_INPUT: Final = "traceloop.entity.input"
"""What was given to it, mostly JSON; see `otel_taskhistory.conventions.traceloop_entity`."""
ENTITY_OUTPUT: Final = "traceloop.entity.output"
"""What it gave back."""
TASK_INPUT: Final = "gen_ai.task.input"
"""As `ENTITY_INPUT`."""
TASK_OUTPUT: Final = "gen_ai.task.output"
"""As `ENTITY_OUTPUT`."""
TASK_STATUS: Final = "gen_ai.task.status"
"""``success`` or ``failure``."""
ASSOCIATED: Final = "traceloop.association.properties."
"""Before the names of what the program says of all spans: ids of user, session, thread, …."""

REQUEST_TYPE: Final = "llm.request.type"
"""Of a model span of former versions: ``chat``, ``completion``, ``embedding``, ``rerank``, …."""
OLD_TOOL_NAME: Final = "gen_ai.completion.tool.name"
"""Name of a tool in former versions."""
OLD_PROMPTS: Final = "llm.prompts"
"""Before the flattened messages of a prompt in the first versions."""
OLD_COMPLETIONS: Final = "llm.completions"
"""The same for a decision."""
OLD_REQUEST_MODEL: Final = "llm.request.model"
"""The model that was asked, in the first versions."""
OLD_RESPONSE_MODEL: Final = "llm.response.model"
"""The model that answered, in the first versions."""
OLD_INPUT_TOKENS: Final = "llm.usage.prompt_tokens"
"""Tokens of the prompt, in the first versions."""
OLD_OUTPUT_TOKENS: Final = "llm.usage.completion_tokens"
"""Tokens of the decision, in the first versions."""
TOTAL_TOKENS: Final = "llm.usage.total_tokens"
"""Tokens of both; all that is told by some."""
FINISH_REASONS: Final = ("llm.response.finish_reason", "llm.response.stop_reason")
"""Why the model stopped, in former versions."""

MESSAGE_EVENTS: Final = frozenset(
    {
        *("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message"),
        *("gen_ai.tool.message", "gen_ai.choice"),
    }
)
"""Names of the log records that tell a message each."""
