# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer

PNG = (Path(__file__).parent / "data" / "pictures" / "png_ok.png").read_bytes()


def record(directory: Path, service: str, picture: bytes) -> tuple[dict[str, Any], str]:
    """One task of a service that only its provider knows; the counts, and the picture's fate."""
    exporter = TaskHistoryExporter(directory)
    resource = Resource.create({"service.name": service})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider, exporter=exporter).task("a goal") as task, task.step() as step:
        fate = step.screenshot(picture).status
    stats = exporter.stats()
    provider.shutdown()
    return stats, fate


def test_nothing_of_a_refused_service_gets_into_the_history(tmp_path: Path) -> None:
    """No span and no picture; what was refused is counted as lost."""
    record(tmp_path / "history", "one", PNG)
    before = sorted((tmp_path / "history" / "artifacts").rglob("*"))
    stats, fate = record(tmp_path / "history", "another", PNG + b"another")
    assert fate == "not_stored"
    assert sorted((tmp_path / "history" / "artifacts").rglob("*")) == before
    assert stats["spans"] == 0
    assert stats["lost"] == 2
    assert stats["errors"] == {"HistoryRefused": 1}
    with TaskHistory(tmp_path / "history") as history:
        assert history.count_tasks() == 1
