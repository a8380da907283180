# SPDX-License-Identifier: Apache-2.0
"""What the public tables and views hold and each of their columns means, one sentence each.

A test compares the names with those of a new history, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "tasks": "One assignment carried out by the agent: a trace.",
    "steps": "One turn of the agent within a task: the prompt as it was sent, the decision, the"
    " tool.",
    "model_calls": "One request to a model.",
    "tool_calls": "One invocation of a tool.",
    "screenshots": "The pictures of tasks and steps; the files are named by their content.",
    "timeline": "What happened to tasks and steps, in the order in which it was committed.",
    "spans": "Everything OpenTelemetry knows of each span, as it came.",
    "logs": "Log records of instrumentations, as they came.",
}
"""What a row is, by table."""

_STATUS: Final = "`running`, `succeeded`, `failed`, `cancelled` or `interrupted`."
_TIMES: Final = {
    "started_at": "When it began: UTC, ISO 8601 with microseconds and `Z`.",
    "ended_at": "When it ended, likewise; null while it runs.",
    "duration_ms": "From start to end, in milliseconds; null while it runs.",
}
_TOKENS: Final = {
    "input_tokens": "Tokens of the prompt, as the provider counted them.",
    "output_tokens": "Tokens of the answer.",
    "cached_tokens": "Those of the prompt that came from the provider's cache.",
    "reasoning_tokens": "Those of the answer that were spent on reasoning.",
    "cost": "As the instrumentation said, in its currency; it is not computed here.",
}
_OTEL_ORIGIN: Final = {
    "resource": "Who emitted it, as JSON: attributes and schema URL.",
    "scope": "Which instrumentation made it, as JSON: name, version, attributes, schema URL.",
    "marks": "What could not be kept exactly, as a JSON list; null when all of it is exact.",
    "task_id": "The task that it is part of; null when it is part of none.",
}
_BEHIND: Final = "For our own use; may change."

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "tasks": {
        "id": "Internal number, in the order in which tasks came.",
        "task_id": "The trace id, 32 hex digits; a further task of one trace is"
        " `TRACE_ID-SPAN_ID`.",
        "trace_id": "The trace, 32 hex digits.",
        "kind": "`agent`, or `other` for a trace without an agent or a model in it.",
        "agent": "Name of the agent that carried it out.",
        "status": _STATUS,
        **_TIMES,
        "step_count": "How many steps it has.",
        "model": "The model of the last step that has one.",
        **_TOKENS,
        "conversation_id": "Ties the tasks of one conversation together.",
        "parent_task_id": "The task within which this one was begun, or whose trace this one links"
        " to.",
        "attempt": "How often it was begun: 1, and one more with each resumption.",
        "pinned": "1 when retention must leave it alone, else 0.",
        "span_count": "How many spans it consists of.",
        "dropped": "Attributes, events and links that the SDK's limits cut off before they came"
        " here.",
        "bytes": "About how much the database grew by it.",
        "error_type": "Class of the error it ended with.",
        "key": "The key with which the agent made its start idempotent.",
        "started_ns": "`started_at` in nanoseconds since 1970.",
        "ended_ns": "`ended_at` in nanoseconds since 1970.",
        "committed_ns": "Its last commit in this history, by this machine's clock: its age counts"
        " from here.",
        "trace": _BEHIND,
        "process": _BEHIND,
        "root": _BEHIND,
        "goal": "What it was to achieve.",
        "result": "What it achieved: text as it was, anything else as JSON.",
        "error": "Message of the error it ended with.",
    },
    "steps": {
        "step_id": "The span id, 16 hex digits; unique within a trace.",
        "task_id": "The task that it is part of.",
        "trace_id": "The trace, 32 hex digits.",
        "step_index": "Its number within the task, from 1 in the order of start, unless the agent"
        " gave its own.",
        "name": "What the agent calls it.",
        "agent": "Name of the agent that took it; in a task of several agents not always the"
        " task's.",
        "status": _STATUS,
        "attempt": "In which attempt at the task it was taken, from 1.",
        **_TIMES,
        "model": "The model that was asked.",
        "prompt": "What was sent to the model, complete: a JSON list of GenAI messages when it was"
        " structured, else text; of the last finished model call.",
        "decision": "What the model answered, likewise.",
        "tool_name": "Name of the first tool that was called.",
        "tool_arguments": "Its arguments: JSON, or text.",
        "tool_result": "Its result: text as it was, anything else as JSON.",
        "result": "What the step achieved, likewise.",
        "error": "Message of the error it ended with.",
        "error_type": "Class of that error.",
        "screenshot": "Path of the last screenshot, relative to the artifact folder.",
        **{name: f"{text} Summed over the model calls." for name, text in _TOKENS.items()},
    },
    "model_calls": {
        "step_id": "The step that it is part of, if any.",
        "task_id": "The task that it is part of.",
        "span_id": "The span that recorded it, 16 hex digits.",
        "ordinal": "Its number among the calls of that span.",
        "attempt": "Which attempt at one call it is, from 1, where the framework counts them.",
        "model": "The model that answered, or else that was asked for.",
        "prompt": "What was sent, complete: a JSON list of GenAI messages, or text.",
        "decision": "What came back, likewise.",
        "finish_reason": "Why the model stopped.",
        **_TOKENS,
        "status": _STATUS,
        "error": "Message of the error it ended with.",
        **_TIMES,
    },
    "tool_calls": {
        "call_id": "The id by which the model asked for it; may be null, may repeat.",
        "step_id": "The step that it is part of, if any.",
        "task_id": "The task that it is part of.",
        "span_id": "The span that recorded it, 16 hex digits.",
        "name": "Name of the tool.",
        "arguments": "JSON, or text.",
        "result": "Text as it was, anything else as JSON.",
        "status": _STATUS,
        "error": "Message of the error it ended with.",
        **_TIMES,
    },
    "screenshots": {
        "id": "Internal number.",
        "task_id": "The task that it is part of.",
        "step_id": "The step that it is part of, if any.",
        "role": "`screenshot` (taken by a step), `input` (sent to a model) or `output`"
        " (came from a tool or model).",
        "sha256": "Of the file's content, 64 hex digits.",
        "path": "Of the file, relative to the artifact folder; null when there is none.",
        "media_type": "As found in the bytes, e.g. `image/png`.",
        "width": "In pixels, from the header.",
        "height": "In pixels, from the header.",
        "bytes": "Size of the file.",
        "caption": "What the agent said it shows.",
        "captured_at": "When it was handed over: UTC, ISO 8601.",
        "status": "`ok`, `broken`, `empty`, `too_large`, `unsupported`, `not_stored`, or `removed`"
        " when retention had to take the file of a running task.",
        "span": _BEHIND,
        "position": _BEHIND,
        "told": _BEHIND,
        "artifact": _BEHIND,
    },
    "timeline": {
        "seq": "Number in the order of commits; `watch` goes on after one.",
        "task_id": "The task that it happened to; null when it was the history itself.",
        "step_id": "The step that it happened to.",
        "at": "When, by the clock of who told of it: UTC, ISO 8601.",
        "event": "`task.started`, `task.resumed`, `task.ended`, `task.interrupted`, `step.started`,"
        " `step.prompt`, `step.decision`, `step.screenshot`, `step.ended`, `step.interrupted`,"
        " `tool_call.started`, `tool_call.ended`, `pruned` or `loss`.",
        "detail": "JSON object of ids, counts and sizes; never content.",
    },
    "spans": {
        "trace_id": "32 hex digits.",
        "span_id": "16 hex digits; unique within its trace.",
        "parent_span_id": "16 hex digits; null for a root.",
        "trace_state": "W3C trace state.",
        "flags": "W3C trace flags, and OTLP's bits for a remote parent.",
        "name": "Name of the span.",
        "kind": "`INTERNAL`, `CLIENT`, `SERVER`, `PRODUCER`, `CONSUMER` or `UNSPECIFIED`.",
        "start_time_unix_nano": "Nanoseconds since 1970, as given; text beyond 63 bits.",
        "end_time_unix_nano": "Likewise; null while it is open.",
        "status_code": "`UNSET`, `OK` or `ERROR`.",
        "status_message": "Why, when it is `ERROR`.",
        "attributes": "JSON object, exactly as they came.",
        "events": "JSON list of objects: name, time, attributes.",
        "links": "JSON list of objects: trace id, span id, attributes.",
        "resource": _OTEL_ORIGIN["resource"],
        "scope": _OTEL_ORIGIN["scope"],
        "dropped_attributes_count": "Attributes that the SDK cut off.",
        "dropped_events_count": "Events that the SDK cut off.",
        "dropped_links_count": "Links that the SDK cut off.",
        "marks": _OTEL_ORIGIN["marks"],
        "task_id": _OTEL_ORIGIN["task_id"],
    },
    "logs": {
        "trace_id": "32 hex digits.",
        "span_id": "The span that the record names, 16 hex digits.",
        "event_name": "Name of the event; empty for a plain line of a log.",
        "time_unix_nano": "When it happened: nanoseconds since 1970; 0 where nobody said.",
        "observed_time_unix_nano": "When it was collected, likewise.",
        "severity_number": "1 to 24 as OpenTelemetry has it; 0 where nobody said.",
        "severity_text": "As the source calls it.",
        "body": "What was logged, as JSON.",
        "attributes": "JSON object, exactly as they came.",
        "resource": _OTEL_ORIGIN["resource"],
        "scope": _OTEL_ORIGIN["scope"],
        "flags": "W3C trace flags.",
        "dropped_attributes_count": "Attributes that the SDK cut off.",
        "marks": _OTEL_ORIGIN["marks"],
        "task_id": "The task of its span.",
    },
}
"""By table and column, in the order of the table."""
