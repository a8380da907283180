# SPDX-License-Identifier: Apache-2.0
"""Settings of OpenTelemetry that cut what is recorded, lose it, or send it away.

They are those of the process that runs the doctor; the agent's may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from otel_taskhistory.store.doctor.findings import Finding

_LENGTHS: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_COUNTS: Final = {
    "OTEL_ATTRIBUTE_COUNT_LIMIT": "attributes",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "attributes",
    "OTEL_SPAN_EVENT_COUNT_LIMIT": "events",
    "OTEL_SPAN_LINK_COUNT_LIMIT": "links",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "attributes of an event",
}
_ENOUGH: Final = 128
"""The SDK's own default, which a step of ours stays below; other instrumentations may not."""
_KEEPS_ALL: Final = ("always_on", "parentbased_always_on")
_STAYS_HERE: Final = ("taskhistory", "console", "none")
"""Exporters that send no content away: ours, the one behind redaction, and none at all."""
_BY_CONFIGURE: Final = "A provider that otel_taskhistory.configure() has made goes by none of them."


def check_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with the variables in `environ`; their values are not repeated, but numbers."""
    given = {name: value.strip() for name, value in environ.items() if value.strip()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield Finding(
            "environment",
            "error",
            "OTEL_SDK_DISABLED is set: nothing is recorded",
            "The OpenTelemetry SDK then makes spans that record nothing.",
            "Unset it.",
            items=("OTEL_SDK_DISABLED",),
        )
    yield from _lengths(given)
    yield from _counts(given)
    sampler = given.get("OTEL_TRACES_SAMPLER", "always_on").lower()
    if sampler not in _KEEPS_ALL:
        yield Finding(
            "environment",
            "warning",
            "OTEL_TRACES_SAMPLER leaves out traces: whole tasks will be missing",
            f"A span that is not sampled is never handed to the history. {_BY_CONFIGURE}",
            "Unset it, or set it to parentbased_always_on.",
            items=("OTEL_TRACES_SAMPLER",),
        )
    yield from _exporters(given)


def _lengths(given: Mapping[str, str]) -> Iterator[Finding]:
    for name in _LENGTHS:
        if given.get(name, "").isdecimal():
            yield Finding(
                "environment",
                "warning",
                f"{name} cuts every value after {given[name]} characters: prompts will be cut",
                "The SDK cuts without a mark, so nobody can tell afterwards; JSON that was cut"
                f" cannot be read. {_BY_CONFIGURE}",
                "Unset it.",
                items=(name,),
            )


def _counts(given: Mapping[str, str]) -> Iterator[Finding]:
    for name, what in _COUNTS.items():
        if given.get(name, "").isdecimal() and int(given[name]) < _ENOUGH:
            yield Finding(
                "environment",
                "warning",
                f"{name} keeps {given[name]} {what} a span: prompts and pictures may be dropped",
                "The SDK drops the oldest, and what was set first is the goal and the prompt."
                f" {_BY_CONFIGURE}",
                f"Unset it, or set it to {_ENOUGH} or more.",
                items=(name,),
            )


def _exporters(given: Mapping[str, str]) -> Iterator[Finding]:
    names = [name.strip() for name in given.get("OTEL_TRACES_EXPORTER", "").split(",")]
    names = [name for name in names if name]
    away = [name for name in names if name not in _STAYS_HERE]
    if away:
        yield Finding(
            "environment",
            "warning",
            f"OTEL_TRACES_EXPORTER sends spans away as they are: {', '.join(away)}",
            "Goals, prompts, decisions and results go with them.",
            "Take it out where content must not leave the machine.",
            items=("OTEL_TRACES_EXPORTER",),
        )
    if names and not any(name.startswith("taskhistory") for name in names):
        yield Finding(
            "environment",
            "note",
            "OTEL_TRACES_EXPORTER does not name taskhistory",
            "opentelemetry-instrument then records no history; configure() does in any case.",
            "Add taskhistory to it where nothing in the code sets up the history.",
        )
    if "taskhistory" in names:
        yield Finding(
            "environment",
            "note",
            "OTEL_TRACES_EXPORTER puts the history behind a batch processor",
            "What was not yet handed over (by default 5 s) is lost when the process is killed, and"
            " spans beyond its queue (2048) are dropped before they reach the history.",
            "Call otel_taskhistory.configure() in the agent for steps that survive that.",
        )
    targets = sorted(name for name in given if _is_target(name))
    if targets and not names:
        yield Finding(
            "environment",
            "note",
            f"{targets[0]} is set",
            "opentelemetry-instrument exports by OTLP unless OTEL_TRACES_EXPORTER says otherwise,"
            " and that with content.",
            "Set OTEL_TRACES_EXPORTER=taskhistory where content must not leave the machine.",
            items=tuple(targets),
        )


def _is_target(name: str) -> bool:
    return name.startswith("OTEL_EXPORTER_") and name.endswith("ENDPOINT")
