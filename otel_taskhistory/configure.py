# SPDX-License-Identifier: Apache-2.0
"""`configure`: one call that wires provider, processor, exporter and tracer."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_taskhistory import semconv
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.settings import Retention, Settings

_logger = logging.getLogger("otel_taskhistory")

_UNLIMITED: Final = 10_000_000
"""Span limits that never cut: the SDK's default keeps the newest 128 attributes and events of a
span, so that the goal and the prompt, set first, are the first to go."""

_lock = threading.Lock()


def configure(
    directory: str | os.PathLike[str] | None = None,
    owner: str | None = None,
    retention: Retention | None = None,
    durability: str | None = None,
    exporters: Sequence[SpanExporter] = (),
    tracer_provider: TracerProvider | None = None,
    set_global: bool = True,
) -> TaskTracer:
    """Record this process's tasks and return the tracer to do it with.

    Calling it again adds nothing to a provider that records already, except further `exporters`.

    Args:
        directory, owner, retention, durability: see `TaskHistoryExporter`.
        exporters: further exporters, each behind a batch processor. Wrap what leaves the machine:
            one that would carry content is warned about.
        tracer_provider: the SDK provider to add to. Default: the global one if it is the SDK's,
            else a new one whose span limits do not cut prompts.
        set_global: whether a new provider becomes the global one.

    Raises:
        TaskHistoryError: a setting is bad, or the history must not or cannot be used.
    """
    with _lock:
        provider = tracer_provider or _existing()
        made = provider is None
        if provider is None:
            provider = _new_provider()
        if not isinstance(provider, TracerProvider):
            raise SettingsError(
                f"tracer_provider={type(provider).__name__} is no TracerProvider of the"
                " OpenTelemetry SDK; leave it out or give an opentelemetry.sdk.trace one"
            )
        processor = _processor_of(provider)
        if processor is None:
            exporter = TaskHistoryExporter(
                directory,
                owner,
                retention,
                durability,
                service_name=_service(provider),
            )
            processor = TaskHistoryProcessor(exporter)
            provider.add_span_processor(processor)
        else:
            _same_place(processor.exporter, directory, owner)
        _warn_of_limits(provider, made=made)
        for other in exporters:
            provider.add_span_processor(BatchSpanProcessor(other))
        _warn_of_content(provider)
        if made and set_global:
            trace.set_tracer_provider(provider)
    return TaskTracer(provider, exporter=processor.exporter)


def _existing() -> TracerProvider | None:
    # The private global, not get_tracer_provider(): that one would make a provider from
    # OTEL_PYTHON_TRACER_PROVIDER, or leave a proxy that cannot be told from none.
    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


def _new_provider() -> TracerProvider:
    limits = SpanLimits(
        max_span_attributes=SpanLimits.UNSET,
        max_events=SpanLimits.UNSET,
        max_links=SpanLimits.UNSET,
        max_event_attributes=SpanLimits.UNSET,
        max_link_attributes=SpanLimits.UNSET,
        max_span_attribute_length=SpanLimits.UNSET,
        max_attribute_length=SpanLimits.UNSET,
    )
    return TracerProvider(sampler=ALWAYS_ON, span_limits=limits)


def _service(provider: TracerProvider) -> str | None:
    name = provider.resource.attributes.get(semconv.SERVICE_NAME)
    return name if isinstance(name, str) else None


def _processors(provider: TracerProvider) -> tuple[Any, ...]:
    # The SDK has no public way to ask a provider for its processors.
    active = getattr(provider, "_active_span_processor", None)
    return tuple(getattr(active, "_span_processors", ()))


def _processor_of(provider: TracerProvider) -> TaskHistoryProcessor | None:
    for processor in _processors(provider):
        if isinstance(processor, TaskHistoryProcessor):
            return processor
    return None


def _same_place(
    exporter: TaskHistoryExporter, directory: str | os.PathLike[str] | None, owner: str | None
) -> None:
    if directory is None and owner is None:
        return
    wanted = Settings.resolve(directory=directory, owner=owner)
    if wanted.database != exporter.settings.database:
        raise SettingsError(
            f"this provider records into {exporter.settings.directory} already, directory="
            f"{os.fspath(wanted.directory)!r} cannot be added: use another tracer_provider"
        )


def _warn_of_limits(provider: TracerProvider, *, made: bool) -> None:
    if made:
        return
    limits = getattr(provider, "_span_limits", None)
    length = getattr(limits, "max_span_attribute_length", None)
    count = getattr(limits, "max_span_attributes", None)
    if length is not None:
        _logger.warning(
            "otel-taskhistory: this provider cuts attribute values at %s characters, so prompts"
            " will be cut: unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT and"
            " OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            length,
        )
    if count is not None and count < 64:
        _logger.warning(
            "otel-taskhistory: this provider keeps %s attributes a span, the newest ones, so"
            " goals and prompts may be dropped: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            count,
        )


def _warn_of_content(provider: TracerProvider) -> None:
    for processor in _processors(provider):
        exporter = getattr(processor, "span_exporter", None) or getattr(
            getattr(processor, "_batch_processor", None), "_exporter", None
        )
        if exporter is None or isinstance(exporter, TaskHistoryExporter):
            continue
        if getattr(exporter, "redacts_content", False) or _stays_here(exporter):
            continue
        _logger.warning(
            "otel-taskhistory: %s on this provider gets goals, prompts and results as they are",
            type(exporter).__name__,
        )


def _stays_here(exporter: object) -> bool:
    """In-memory exporters of tests and the console do not leave the machine."""
    return type(exporter).__module__.startswith(
        ("opentelemetry.sdk.trace.export.in_memory", "opentelemetry.sdk.trace.export")
    )
