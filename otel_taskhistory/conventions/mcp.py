# SPDX-License-Identifier: Apache-2.0
"""The Model Context Protocol: tool calls as client and server see them.

Spans with ``mcp.method.name`` come from the MCP SDKs (``MCP send tools/call X`` at the client,
``tools/call X`` at the server, which is its remote child) and from instrumentations that follow the
conventions for MCP. Only ``tools/call`` is a tool call; listing tools and the like is no work by
itself. What was called and what came back is mostly not said.

An agent's own ``execute_tool`` span, the client's and the server's are the same call, each within
the other. Each is told as a tool call; that it is one is for the assembly of the trace to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import as_text, parsed
from otel_taskhistory.conventions.facts import SpanFacts, ToolCall
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_METHOD: Final = "mcp.method.name"
_CALL_TOOL: Final = "tools/call"
_SESSION_ID: Final = "mcp.session.id"
_NAMES: Final = (semconv.GEN_AI_TOOL_NAME, "mcp.tool.name")
_ARGUMENTS: Final = (semconv.GEN_AI_TOOL_CALL_ARGUMENTS, "mcp.request.argument")
_RESULTS: Final = (semconv.GEN_AI_TOOL_CALL_RESULT, "mcp.response.value")
"""The name of the conventions, then those of older instrumentations."""


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    method = record.text(_METHOD)
    if method is None:
        return None
    outcome = outcome_of(record)
    return SpanFacts(
        role="tool" if method == _CALL_TOOL else "other",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        # A session is of a client with one server. Where the server keeps a history of its own
        # it ties the calls together; at the client it says nothing of the conversation.
        conversation_id=record.text(_SESSION_ID) if record.kind == "SERVER" else None,
        tool_call=_tool_call(record) if method == _CALL_TOOL else None,
    )


def _tool_call(record: SpanRecord) -> ToolCall:
    request = parsed(record.attributes.get("mcp.request.argument"))
    params = request.get("params") if isinstance(request, dict) else None
    arguments = _first(record, _ARGUMENTS)
    if isinstance(params, dict) and semconv.GEN_AI_TOOL_CALL_ARGUMENTS not in record.attributes:
        arguments = as_text(params.get("arguments"))  # the whole request was said
    return ToolCall(
        name=next((name for name in map(record.text, _NAMES) if name), None)
        or _name_in(params)
        or _name_after(record.name),
        call_id=record.text(semconv.GEN_AI_TOOL_CALL_ID),
        arguments=arguments,
        result=_first(record, _RESULTS),
    )


def _first(record: SpanRecord, keys: tuple[str, ...]) -> str | None:
    values = (as_text(record.attributes.get(key)) for key in keys)
    return next((value for value in values if value is not None), None)


def _name_in(params: Any) -> str | None:
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) and name else None


def _name_after(span_name: str) -> str:
    """The tool's name in a span's: what stands after the method, which is there without one."""
    return span_name.partition(_CALL_TOOL)[2].strip() or _CALL_TOOL
