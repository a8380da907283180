# SPDX-License-Identifier: Apache-2.0
"""`configure`: one call that wires provider, processor, exporter and tracer."""

from __future__ import annotations

import logging
import os
import sys
import threading
import types
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler, TraceIdRatioBased

from otel_taskhistory import semconv
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.redaction.neighbours import (
    exporter_in,
    processors_of,
    warn_of_content,
    warn_once,
)
from otel_taskhistory.settings import Retention, Settings

_logger = logging.getLogger("otel_taskhistory")

_ENOUGH_ATTRIBUTES: Final = 64
"""Attributes per span that hold all we set with room to spare. The SDK keeps the newest ones (128
by default), so that goal and prompt, set first, are the first to go."""

_lock = threading.Lock()


def configure(
    directory: str | os.PathLike[str] | None = None,
    owner: str | None = None,
    retention: Retention | None = None,
    durability: str | None = None,
    exporters: Sequence[SpanExporter] = (),
    tracer_provider: TracerProvider | None = None,
    set_global: bool = True,
    *,
    scrub: bool | None = None,
    secrets: Sequence[str] = (),
) -> TaskTracer:
    """Record this process's tasks and return the tracer to do it with.

    Calling it again adds nothing to a provider that records already, except further `exporters`.

    Args:
        directory, owner, retention, durability: see `TaskHistoryExporter`.
        exporters: further exporters, each behind a batch processor. Wrap what leaves the machine
            in a `RedactingExporter`: one that would carry content is warned about.
        tracer_provider: the SDK provider to add to. Default: the global one if it is the SDK's,
            else a new one whose span limits do not cut prompts.
        set_global: whether a new provider becomes the global one.
        scrub, secrets: see `TaskHistoryExporter`.

    Raises:
        TaskHistoryError: a setting is bad, or the history must not or cannot be used.
    """
    with _lock:
        provider = tracer_provider if tracer_provider is not None else _existing()
        made = provider is None
        if provider is None:
            provider = new_provider()
        if not isinstance(provider, TracerProvider):
            raise SettingsError(
                f"tracer_provider={type(provider).__name__} is no TracerProvider of the"
                " OpenTelemetry SDK; leave it out or give an opentelemetry.sdk.trace one"
            )
        if _is_disabled(provider):
            # Nothing will be recorded, so no history is opened, nor made.
            _logger.warning("otel-taskhistory: nothing is recorded, OTEL_SDK_DISABLED is set")
            return TaskTracer(provider)
        exporter = _exporter_of(provider)
        if exporter is None:
            exporter = TaskHistoryExporter(
                directory,
                owner,
                retention,
                durability,
                scrub=scrub,
                secrets=secrets,
                service_name=_service(provider),
            )
        else:
            _same_place(exporter, directory, owner)
            _same_scrubbing(exporter, scrub, secrets)
        if not _has_processor(provider, exporter):
            provider.add_span_processor(TaskHistoryProcessor(exporter))
        _warn_of_limits(provider, made=made)
        for other in exporters:
            provider.add_span_processor(BatchSpanProcessor(other))
        warn_of_content(processors_of(provider))
        if made and set_global:
            _set_global(provider)
    return TaskTracer(provider, exporter=exporter)


def _existing() -> TracerProvider | None:
    """The global provider when it is the SDK's, also one that the environment asks for."""
    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


def _set_global(provider: TracerProvider) -> None:
    there = trace.get_tracer_provider()
    if isinstance(there, trace.ProxyTracerProvider):  # what there is as long as nobody set one
        trace.set_tracer_provider(provider)
        return
    _logger.warning(
        "otel-taskhistory: the global tracer provider is a %s.%s already and stays; what is begun"
        " with the returned TaskTracer is recorded, spans of other instrumentations are not",
        type(there).__module__,
        type(there).__qualname__,
    )


def _is_disabled(provider: TracerProvider) -> bool:
    """Whether ``OTEL_SDK_DISABLED`` was set when the provider was made."""
    return bool(getattr(provider, "_disabled", False))


def new_provider(*, shutdown_on_exit: bool = True) -> TracerProvider:
    """A provider that records every span, whole, whatever ``OTEL_*`` variables say of limits."""
    limits = SpanLimits(
        max_span_attributes=SpanLimits.UNSET,
        max_events=SpanLimits.UNSET,
        max_links=SpanLimits.UNSET,
        max_event_attributes=SpanLimits.UNSET,
        max_link_attributes=SpanLimits.UNSET,
        max_span_attribute_length=SpanLimits.UNSET,
        max_attribute_length=SpanLimits.UNSET,
    )
    return TracerProvider(sampler=ALWAYS_ON, span_limits=limits, shutdown_on_exit=shutdown_on_exit)


def _service(provider: TracerProvider) -> str | None:
    name = provider.resource.attributes.get(semconv.SERVICE_NAME)
    return name if isinstance(name, str) else None


def _exporter_of(provider: TracerProvider) -> TaskHistoryExporter | None:
    """The open history of a provider, also one that auto-instrumentation has put there."""
    for processor in processors_of(provider):
        exporter = exporter_in(processor)
        if isinstance(exporter, TaskHistoryExporter) and not exporter.closed:
            return exporter
    return None


def _has_processor(provider: TracerProvider, exporter: TaskHistoryExporter) -> bool:
    return any(
        isinstance(processor, TaskHistoryProcessor) and processor.exporter is exporter
        for processor in processors_of(provider)
    )


def _same_place(
    exporter: TaskHistoryExporter, directory: str | os.PathLike[str] | None, owner: str | None
) -> None:
    if directory is None and owner is None:
        return
    there = exporter.settings
    wanted = Settings.resolve(directory=directory, owner=owner)
    if wanted.database != there.database or (owner is not None and wanted.owner != there.owner):
        raise SettingsError(
            f"this provider records into {there.directory} (owner {there.owner!r}) already,"
            f" directory={os.fspath(wanted.directory)!r} (owner {wanted.owner!r}) cannot be added:"
            " use another tracer_provider"
        )


def _same_scrubbing(
    exporter: TaskHistoryExporter, scrub: bool | None, secrets: Sequence[str]
) -> None:
    """What is asked for must hold: secrets that one thinks masked are worse than an error."""
    if scrub is None and not secrets:
        return
    there = exporter.settings
    wanted = Settings.resolve(scrub=scrub, secrets=secrets)
    if wanted.scrub != there.scrub or not set(wanted.secrets) <= set(there.secrets):
        raise SettingsError(
            f"this provider records with scrub={there.scrub} and {len(there.secrets)} secrets"
            " already; say scrub= and secrets= where its exporter is made, or the first time"
        )


# --- warnings -----------------------------------------------------------------------------------


def _warn_of_limits(provider: TracerProvider, *, made: bool) -> None:
    """Say what a provider that is not of our making will leave out."""
    if made:
        return
    limits = getattr(provider, "_span_limits", None)
    length = getattr(limits, "max_span_attribute_length", None)
    count = getattr(limits, "max_span_attributes", None)
    if length is not None:
        warn_once(
            provider,
            "otel-taskhistory: this provider cuts attribute values at %s characters, so prompts"
            " will be cut: unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT and"
            " OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            length,
        )
    if count is not None and count < _ENOUGH_ATTRIBUTES:
        warn_once(
            provider,
            "otel-taskhistory: this provider keeps %s attributes a span, the newest ones, so"
            " goals and prompts may be dropped: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            count,
        )
    sampler = provider.sampler
    if not _keeps_every_task(sampler):
        warn_once(
            provider,
            "otel-taskhistory: this provider samples (%s), so whole tasks may be missing: unset"
            " OTEL_TRACES_SAMPLER or use always_on",
            sampler.get_description(),
        )


def _keeps_every_task(sampler: Sampler) -> bool:
    """Whether a span without a parent, as every task is, is always recorded."""
    root = getattr(sampler, "_root", sampler)  # of ParentBased
    return root is ALWAYS_ON or (isinstance(root, TraceIdRatioBased) and root.rate >= 1)


def _renew_lock() -> None:
    # In a forked child: whoever held it there is no more.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _Module(types.ModuleType):
    """Importing this module makes it an attribute of the package, in place of the function."""

    __call__ = staticmethod(configure)


sys.modules[__name__].__class__ = _Module
