# SPDX-License-Identifier: Apache-2.0
"""A durable, bounded history of a Host Agent's tasks and steps, as OpenTelemetry spans.

The public names are loaded when they are first used, so that the command line, which only reads,
does not wait for the OpenTelemetry SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from otel_taskhistory._version import __version__

if TYPE_CHECKING:
    from otel_taskhistory.configure import configure
    from otel_taskhistory.errors import (
        HistoryNotFound,
        HistoryRefused,
        SchemaTooNew,
        SettingsError,
        TaskHistoryError,
        TaskNotFound,
    )
    from otel_taskhistory.exporter import TaskHistoryExporter
    from otel_taskhistory.history import TaskHistory
    from otel_taskhistory.log_exporter import TaskHistoryLogExporter
    from otel_taskhistory.processor import TaskHistoryProcessor
    from otel_taskhistory.recording.handles import Step, Task, ToolCall
    from otel_taskhistory.recording.tracer import TaskTracer
    from otel_taskhistory.redaction.exporter import RedactingExporter
    from otel_taskhistory.redaction.policies import Policy, policy_named
    from otel_taskhistory.settings import Retention

__all__ = [
    "HistoryNotFound",
    "HistoryRefused",
    "Policy",
    "RedactingExporter",
    "Retention",
    "SchemaTooNew",
    "SettingsError",
    "Step",
    "Task",
    "TaskHistory",
    "TaskHistoryError",
    "TaskHistoryExporter",
    "TaskHistoryLogExporter",
    "TaskHistoryProcessor",
    "TaskNotFound",
    "TaskTracer",
    "ToolCall",
    "__version__",
    "configure",
    "policy_named",
]

_HOME: Final = {
    "HistoryNotFound": "errors",
    "HistoryRefused": "errors",
    "Policy": "redaction.policies",
    "RedactingExporter": "redaction.exporter",
    "Retention": "settings",
    "SchemaTooNew": "errors",
    "SettingsError": "errors",
    "Step": "recording.handles",
    "Task": "recording.handles",
    "TaskHistory": "history",
    "TaskHistoryError": "errors",
    "TaskHistoryExporter": "exporter",
    "TaskHistoryLogExporter": "log_exporter",
    "TaskHistoryProcessor": "processor",
    "TaskNotFound": "errors",
    "TaskTracer": "recording.tracer",
    "ToolCall": "recording.handles",
    "configure": "configure",
    "policy_named": "redaction.policies",
}
"""In which module a public name is defined."""


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
