# SPDX-License-Identifier: Apache-2.0
"""A durable, bounded history of a Host Agent's tasks and steps, as OpenTelemetry spans."""

from __future__ import annotations

from otel_taskhistory._version import __version__
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
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.handles import Step, Task, ToolCall
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.settings import Retention

__all__ = [
    "HistoryNotFound",
    "HistoryRefused",
    "Retention",
    "SchemaTooNew",
    "SettingsError",
    "Step",
    "Task",
    "TaskHistory",
    "TaskHistoryError",
    "TaskHistoryExporter",
    "TaskHistoryProcessor",
    "TaskNotFound",
    "TaskTracer",
    "ToolCall",
    "__version__",
    "configure",
]
