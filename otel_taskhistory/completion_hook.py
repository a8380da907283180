# SPDX-License-Identifier: Apache-2.0
"""What a GenAI instrumentation has sent and received, straight into the history.

``OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK=taskhistory`` lets instrumentations that are built on
``opentelemetry-util-genai`` hand us each call's messages as objects, pictures as bytes, whether or
not they may write content into spans and log records. So content stays on this machine, and what
goes elsewhere is without it.

The content of a call becomes a log record of its span, as the conventions have it
(``gen_ai.client.inference.operation.details``), and is read like any other.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, Unpack

from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from otel_taskhistory import semconv
from otel_taskhistory.exporter import Arguments, TaskHistoryExporter
from otel_taskhistory.log_exporter import Outlet
from otel_taskhistory.spans.encode import encode
from otel_taskhistory.spans.record import LogRecord, OriginRecord
from otel_taskhistory.spans.sdk_origin import resource_of

SCOPE: Final = "otel_taskhistory.completion_hook"
"""Name of the scope of the log records that are made here."""

_DEEPEST: Final = 64
"""Deeper than any message; what is below stays as it is, for `encode` to see to."""


class TaskHistoryCompletionHook:
    """A ``CompletionHook`` that keeps the content of each call with its span.

    The instrumentation calls it before the span ends. Nothing waits for the disk here: the span's
    own end does.

    Args:
        exporter: see `TaskHistoryLogExporter`, also for the settings.

    Raises:
        SettingsError: a setting is bad. Nothing else in this class raises.
        TypeError: there is no such setting.
    """

    def __init__(
        self, exporter: TaskHistoryExporter | None = None, **settings: Unpack[Arguments]
    ) -> None:
        self._outlet = Outlet(exporter, **settings)

    def on_completion(
        self,
        *,
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        system_instruction: Sequence[Any] = (),
        tool_definitions: Sequence[Any] | None = None,
        span: Any = None,
        log_record: Any = None,
        **_later: Any,
    ) -> None:
        """Keep the content of one call.

        Args:
            inputs: messages ``(role, parts, name)`` that were sent, data classes or mappings.
            outputs: messages that were received.
            system_instruction: parts that were sent as instructions beside the messages.
            tool_definitions: tools that were offered.
            span: of the call.
            log_record: of the call; tells the span when `span` is None.
        """
        try:
            record = _record(
                {
                    semconv.GEN_AI_INPUT_MESSAGES: inputs,
                    semconv.GEN_AI_OUTPUT_MESSAGES: outputs,
                    semconv.GEN_AI_SYSTEM_INSTRUCTIONS: system_instruction,
                    semconv.GEN_AI_TOOL_DEFINITIONS: tool_definitions,
                },
                span,
                log_record,
            )
        except Exception as error:
            self._outlet.failed("the content of a model call could not be read", error)
            return
        if record is not None:
            self._outlet.add([record], wait=False)

    def shutdown(self, *, timeout_sec: float = 10.0) -> None:
        """Commit what waits, within about `timeout_sec`; further content is refused."""
        self._outlet.flush(int(timeout_sec * 1000))
        self._outlet.close()


def _record(content: Mapping[str, Any], span: Any, log_record: Any) -> LogRecord | None:
    """The log record of a call; None when there is nothing to say, or no span to say it of."""
    ids = _ids(span, log_record)
    attributes = {name: _json(said) for name, said in content.items() if said}
    if ids is None or not attributes:
        return None
    trace_id, span_id, flags = ids
    now = time.time_ns()
    return LogRecord(
        trace_id=format_trace_id(trace_id),
        span_id=format_span_id(span_id),
        event_name=semconv.GEN_AI_INFERENCE_DETAILS_EVENT,
        attributes=attributes,
        time_ns=now,
        observed_ns=now,
        flags=flags,
        resource=resource_of(getattr(span, "resource", None)),
        scope=OriginRecord(name=SCOPE),
    )


def _ids(span: Any, log_record: Any) -> tuple[int, int, int] | None:
    """(trace id, span id, flags) of the call's span; None when it has none that is recorded."""
    if span is not None:
        context: SpanContext = span.get_span_context()
        # A span that is not sampled comes to no exporter: its content would wait in vain.
        if not context.is_valid or not context.trace_flags.sampled:
            return None
        return context.trace_id, context.span_id, int(context.trace_flags)
    if log_record is None or not log_record.trace_id or not log_record.span_id:
        return None
    return log_record.trace_id, log_record.span_id, int(log_record.trace_flags or 0)


def _json(said: Any) -> str:
    """Messages as the conventions write them into attributes: JSON text, bytes as base64."""
    return encode(_plain(said)).text


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return _plain(value.value, depth + 1)
    if is_dataclass(value) and not isinstance(value, type):
        # What is not there is left out, as the instrumentations themselves do it.
        said = ((one.name, getattr(value, one.name)) for one in fields(value))
        return {name: _plain(item, depth + 1) for name, item in said if item is not None}
    if isinstance(value, Mapping):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value
