# SPDX-License-Identifier: Apache-2.0
"""The warning about exporters that get everything, beside a history that is meant to stay local.

It comes at the start: from `configure`, with the first span that a `TaskHistoryProcessor` sees, and
for set-ups without code from the variables that make them.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_logger = logging.getLogger("otel_taskhistory")

_SAFE: Final = frozenset({"taskhistory", "taskhistory_otlp", "none"})
"""Names of ``OTEL_TRACES_EXPORTER`` and ``OTEL_LOGS_EXPORTER`` that carry no content away."""
_VARIABLES: Final = {"spans": "OTEL_TRACES_EXPORTER", "log records": "OTEL_LOGS_EXPORTER"}
_WRAPPED: Final = 4
"""How many processors may be within each other."""
_INSTEAD: Final = {
    "spans": "taskhistory_otlp sends them without",
    "log records": "OTEL_LOGS_EXPORTER=taskhistory keeps them here",
}


def processors_of(provider: object) -> tuple[Any, ...]:
    """The processors of a provider of the SDK, which has no public way to ask for them."""
    active = getattr(provider, "_active_span_processor", None)
    return tuple(getattr(active, "_span_processors", ()))


def beside(span: object) -> tuple[Any, ...]:
    """The processors that a span which has just started was handed to."""
    return tuple(getattr(getattr(span, "_span_processor", None), "_span_processors", ()))


def exporter_in(processor: object) -> Any:
    """What a processor hands its spans to, as far as one can see."""
    for _ in range(_WRAPPED):
        for name in ("span_exporter", "exporter"):
            if (found := getattr(processor, name, None)) is not None:
                return found
        # One that wraps another, as those of some frameworks do.
        processor = getattr(processor, "processor", None)
        if processor is None:
            break
    return None


def warn_of_content(processors: Iterable[object]) -> None:
    """Tell once of each exporter that carries contents away."""
    for processor in processors:
        exporter = exporter_in(processor)
        if exporter is None or _keeps_content_here(exporter):
            continue
        warn_once(
            exporter,
            "otel-taskhistory: %s on this provider gets goals, prompts and results as they are;"
            " wrap it: RedactingExporter(%s(...))",
            type(exporter).__name__,
            type(exporter).__name__,
        )


def _keeps_content_here(exporter: object) -> bool:
    if getattr(exporter, "redacts_content", False) or getattr(exporter, "stays_local", False):
        return True
    # Memory is not left; what is printed on a console is often collected.
    return isinstance(exporter, InMemorySpanExporter)


def warn_of_environment(what: str, environ: Mapping[str, str] | None = None) -> bool:
    """Tell of exporters that auto-configuration sets up beside ours.

    Args:
        what: ``spans`` or ``log records``.
        environ: the process's own by default.

    Returns:
        Whether there are any, told of now or before.
    """
    variable = _VARIABLES[what]
    value = (os.environ if environ is None else environ).get(variable, "")
    names = [name.strip() for name in value.split(",") if name.strip()]
    others = sorted(set(names) - _SAFE)
    if not others or "taskhistory" not in names:
        return False
    key = (variable, *others)
    if key in _told_of_environment:
        return True
    _told_of_environment.add(key)
    _logger.warning(
        "otel-taskhistory: %s of %s gets %s with goals, prompts and results as they are; %s",
        ", ".join(others),
        variable,
        what,
        _INSTEAD[what],
    )
    return True


_told_of_environment: set[tuple[str, ...]] = set()
_warned: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def warn_once(about: object, message: str, *args: object) -> None:
    """Warn, unless the same was said of the same object."""
    try:
        told = _warned.setdefault(about, set())
    except TypeError:  # an object that cannot be a key
        told = set()
    if message not in told:
        told.add(message)
        _logger.warning(message, *args)
