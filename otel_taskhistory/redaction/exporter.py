# SPDX-License-Identifier: Apache-2.0
"""RedactingExporter: any exporter of spans behind a policy.

What the other exporter gets are new spans, made of what the policy lets out; the spans of this
process, and what the local history has of them, stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.redaction.policies import (
    NAMES,
    IdsOnly,
    Policy,
    PolicyName,
    SpanFunction,
    policy_named,
)
from otel_taskhistory.redaction.records import without_contents
from otel_taskhistory.redaction.sdk_spans import span_of
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.spans.sdk import record_of

_logger = logging.getLogger("otel_taskhistory")


class RedactingExporter(SpanExporter):
    """Hands spans to another exporter, without what is not to leave.

    Args:
        exporter: any exporter of spans; it is flushed and shut down with this one.
        policy: ``ids_only`` (identifiers, structure, times, statuses, names, token counts),
            ``no_images``, ``scrub`` (secrets masked), ``everything``; or a policy of your own: an
            object with a method ``span``, or a function, that takes a `SpanRecord` and returns
            what leaves of it, or None. When one of your own raises, or returns anything else, the
            span leaves as by ``ids_only``, which is logged and counted.
        secrets: values that never leave by ``ids_only`` and ``scrub``.

    Raises:
        SettingsError: `policy` is none, or one of `secrets` cannot be masked.
    """

    redacts_content: Final = True
    """What it lets out was decided; `configure` does not warn of it."""

    def __init__(
        self,
        exporter: SpanExporter,
        policy: PolicyName | Policy | SpanFunction = "ids_only",
        *,
        secrets: Sequence[str] = (),
    ) -> None:
        if not callable(getattr(exporter, "export", None)):
            raise SettingsError(
                f"exporter={type(exporter).__name__} is no exporter of spans; give one, e.g."
                " RedactingExporter(OTLPSpanExporter())"
            )
        self.exporter = exporter
        self._otherwise = IdsOnly(secrets)
        self._span = self._otherwise.span if policy == "ids_only" else _function(policy, secrets)
        self._counts = {"spans": 0, "withheld": 0, "policy_failed": 0, "lost": 0}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand over what leaves of each span; the other exporter's result."""
        leaving = [span for span in map(self._redacted, spans) if span is not None]
        if not leaving:
            return SpanExportResult.SUCCESS
        return self.exporter.export(leaving)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """As the other exporter does."""
        return self.exporter.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """As the other exporter does."""
        self.exporter.shutdown()

    def stats(self) -> dict[str, int]:
        """Counts since the start: ``spans`` handed over, ``withheld`` by a policy's None,
        ``policy_failed`` (they left as by ``ids_only``), ``lost`` (unfit to be handed over).
        """
        return dict(self._counts)

    def _redacted(self, span: ReadableSpan) -> ReadableSpan | None:
        try:
            record = record_of(span)
        except Exception as error:
            self._failed("lost", "a span could not be read and does not leave", error)
            return None
        made: ReadableSpan | None
        try:
            decided = self._span(record)
            if decided is None:
                self._counts["withheld"] += 1
                return None
            made = span_of(_checked(decided, record))
        except Exception as error:
            self._failed(
                "policy_failed", "a policy failed, the span leaves without contents", error
            )
            made = self._without_contents(record)
        self._counts["spans"] += made is not None
        return made

    def _without_contents(self, record: SpanRecord) -> ReadableSpan | None:
        for reduce in (self._otherwise.span, without_contents):
            try:
                return span_of(reduce(record))
            except Exception as error:
                last = error
        self._failed("lost", "a span could not be made fit to leave", last)
        return None

    def _failed(self, count: str, what: str, error: Exception) -> None:
        """Count it; say so the first time and each time there are ten times as many.

        The exception's text may hold what is not to leave, and logs are often collected.
        """
        self._counts[count] += 1
        number = self._counts[count]
        if number == 10 ** (len(str(number)) - 1):
            _logger.warning(
                "otel-taskhistory: %s (%s; %s so far)", what, type(error).__qualname__, number
            )


def _function(policy: Any, secrets: Sequence[str]) -> SpanFunction:
    if isinstance(policy, str):
        return policy_named(policy, secrets=secrets).span  # type: ignore[arg-type]
    method = getattr(policy, "span", None)
    if callable(method) and not isinstance(policy, type):
        return method  # type: ignore[no-any-return]
    if callable(policy) and not isinstance(policy, type):
        return policy  # type: ignore[no-any-return]
    raise SettingsError(
        f"policy={type(policy).__name__} is no policy; use {', '.join(NAMES)}, a function, or an"
        " object with a method span"
    )


def _checked(decided: Any, record: SpanRecord) -> SpanRecord:
    """What a policy returned, if it is a span, and this one."""
    if not isinstance(decided, SpanRecord):
        raise TypeError("a policy returns a SpanRecord or None")
    for name in ("trace_id", "span_id", "parent_span_id", "start_ns", "end_ns"):
        if getattr(decided, name) != getattr(record, name):
            raise ValueError("a policy keeps the identity and the times of a span")
    return decided
