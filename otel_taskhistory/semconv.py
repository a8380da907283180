# SPDX-License-Identifier: Apache-2.0
"""Every attribute and event name this library writes or reads, as documented constants.

``GEN_AI_*`` are the OpenTelemetry semantic conventions for generative AI. They are spelled out
here because the ``opentelemetry-semantic-conventions`` package marks its constants for them as
moved. ``TASKHISTORY_*`` are ours, for what those conventions have no name for.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "otel_taskhistory"
"""Name of the instrumentation scope of the spans that our own tracer makes."""

# --- OpenTelemetry GenAI semantic conventions -------------------------------------------------

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
"""``invoke_agent`` on a task, ``chat`` on a step that asked a model, ``execute_tool`` on a tool
call."""
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
"""Name of the agent that carries out the task."""
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
"""Ties the tasks of one conversation together."""
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
"""The model that was asked for."""
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
"""The model that answered."""
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
"""The provider's id of the response."""
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
"""Why the model stopped, one entry per choice."""
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
"""The prompt: a JSON array of messages ``{"role", "parts": [...]}``."""
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
"""The decision: a JSON array of messages ``{"role", "parts": [...], "finish_reason"}``."""
GEN_AI_SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
"""System instructions sent beside the messages: a JSON array of parts."""
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
"""Tools offered to the model: a JSON array."""
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
"""Name of the tool that a tool call invokes."""
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
"""The id the model gave the call it asked for."""
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
"""Arguments of the call, JSON."""
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
"""Result of the call: a string as it is, anything else as JSON."""
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""Tokens of the prompt."""
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
"""Tokens of the decision."""
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
"""Tokens of the prompt that the provider read from its cache."""
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
"""Tokens of the decision that were spent on reasoning."""

GEN_AI_INFERENCE_DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
"""Event on a step for each model call but its last, whose facts are attributes of the step.

Its attributes are those a step has of its last call (``gen_ai.*``, formats, start and end time,
``taskhistory.reduced``); its time is the end of the call, or the start of the next when no
decision came."""

# --- OpenTelemetry general --------------------------------------------------------------------

EXCEPTION_EVENT: Final = "exception"
"""Event of an exception that left a span."""
EXCEPTION_TYPE: Final = "exception.type"
"""Qualified type of the exception."""
EXCEPTION_MESSAGE: Final = "exception.message"
"""Its message."""
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
"""Its stack trace."""
ERROR_TYPE: Final = "error.type"
"""Class of error a span ended with."""
SERVICE_NAME: Final = "service.name"
"""Resource attribute: which component emits the spans."""

# --- ours -------------------------------------------------------------------------------------

TASKHISTORY_ROLE: Final = "taskhistory.role"
"""What a span of ours is: ``task``, ``step`` or ``tool_call``."""
TASKHISTORY_STATUS: Final = "taskhistory.status"
"""``succeeded``, ``failed`` or ``cancelled``, as decided when the span ended; ``interrupted`` on a
span that `forward` sends closed, since its process had gone."""
TASKHISTORY_STATUS_REASON: Final = "taskhistory.status.reason"
"""Why a span was cancelled, as the agent or the exception says, or the exit it succeeded by."""
TASKHISTORY_TASK_GOAL: Final = "taskhistory.task.goal"
"""What the task is to achieve."""
TASKHISTORY_TASK_RESULT: Final = "taskhistory.task.result"
"""What the task achieved: a string as it is, anything else as JSON."""
TASKHISTORY_TASK_ATTEMPT: Final = "taskhistory.task.attempt"
"""Which attempt at the task this root span is, from 1."""
TASKHISTORY_TASK_KEY: Final = "taskhistory.task.key"
"""The key that makes the start of the task idempotent."""
TASKHISTORY_TASK_PARENT_ID: Final = "taskhistory.task.parent_id"
"""Task id of the task within which this one was begun."""
TASKHISTORY_STEP_INDEX: Final = "taskhistory.step.index"
"""Number of the step within its task, from 1."""
TASKHISTORY_STEP_RESULT: Final = "taskhistory.step.result"
"""What the step achieved: a string as it is, anything else as JSON."""
TASKHISTORY_PROMPT_FORMAT: Final = "taskhistory.prompt.format"
"""``text`` when the prompt was one string; absent when it was a list of messages."""
TASKHISTORY_DECISION_FORMAT: Final = "taskhistory.decision.format"
"""``text`` when the decision was one string; absent when it was structured."""
TASKHISTORY_CALL_STARTED: Final = "taskhistory.model_call.start_time_unix_nano"
"""On a step: when its last model call began (the prompt was recorded), ns since 1970."""
TASKHISTORY_CALL_ENDED: Final = "taskhistory.model_call.end_time_unix_nano"
"""On a step: when the decision of its last model call was recorded, ns since 1970."""
TASKHISTORY_CALL_ABSENT: Final = "taskhistory.model_call.absent"
"""On a step: names of attributes that are to be read as not there, for the last model call has
none of them but an earlier one had. Their values are empty (``""``, ``0``, ``()``): a span cannot
forget an attribute, and what an earlier call said must not be taken for the last one's."""
TASKHISTORY_REDUCED: Final = "taskhistory.reduced"
"""Names of attributes whose value could not be represented as it was (escaped or marked)."""

TASKHISTORY_COPY_OF: Final = "taskhistory.copy_of"
"""True on the link from the root of a copied task to the span that it is a copy of."""

TASKHISTORY_SCREENSHOT_EVENT: Final = "taskhistory.screenshot"
"""Event on a step for each screenshot it took."""
TASKHISTORY_SCREENSHOT_SHA256: Final = "taskhistory.screenshot.sha256"
"""SHA-256 of the picture's bytes, 64 hex digits."""
TASKHISTORY_SCREENSHOT_PATH: Final = "taskhistory.screenshot.path"
"""Where the file is, relative to the artifact folder, with forward slashes."""
TASKHISTORY_SCREENSHOT_MEDIA_TYPE: Final = "taskhistory.screenshot.media_type"
"""Media type found in the bytes, e.g. ``image/png``."""
TASKHISTORY_SCREENSHOT_WIDTH: Final = "taskhistory.screenshot.width"
"""Width in pixels, from the header."""
TASKHISTORY_SCREENSHOT_HEIGHT: Final = "taskhistory.screenshot.height"
"""Height in pixels, from the header."""
TASKHISTORY_SCREENSHOT_BYTES: Final = "taskhistory.screenshot.bytes"
"""Size of the file in bytes."""
TASKHISTORY_SCREENSHOT_CAPTION: Final = "taskhistory.screenshot.caption"
"""What the agent says the picture shows."""
TASKHISTORY_SCREENSHOT_STATUS: Final = "taskhistory.screenshot.status"
"""``ok``, ``broken``, ``empty``, ``too_large``, ``unsupported`` or ``not_stored``."""
