# SPDX-License-Identifier: Apache-2.0
"""Google ADK's SqliteSpanExporter at the same work."""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import workload
from google.adk.telemetry.sqlite_span_exporter import SqliteSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from serve import serve

_kept: dict[str, Any] = {}


def one_by_one(spans: int, seed: int) -> list[float]:
    """Tasks behind a SimpleSpanProcessor, which exports each span as it ends; ms a span.

    The time of the round divided by the number of spans, as a list of one.
    """
    if "tracer" not in _kept:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter("simple.db")))
        _kept["tracer"] = provider.get_tracer("bench.agent")
    made = workload.said(spans, seed)
    began = time.perf_counter()
    workload.tasks(_kept["tracer"], made)
    return [(time.perf_counter() - began) * 1000 / spans]


def in_batches(spans: int, seed: int, size: int) -> list[float]:
    """Spans in batches; ms a span, batch by batch."""
    exporter = _kept.setdefault("batches", None) or _exporter("batches.db")
    _kept["batches"] = exporter
    took = []
    ended = workload.collected(workload.tasks, workload.said(spans, seed))
    for batch in workload.batches(ended, size):
        began = time.perf_counter()
        exporter.export(batch)
        took.append((time.perf_counter() - began) * 1000 / len(batch))
    return took


def stored(name: str, steps: int, talk: dict[str, Any]) -> dict[str, Any]:
    """Bytes of a new database with a conversation in it, and how many rows it has."""
    exporter = _exporter(f"{name}.db")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    conversation = workload.Conversation(**talk)
    for _ in workload.conversation(provider.get_tracer("bench.agent"), steps, conversation):
        pass
    rows = exporter._query("SELECT count(*) AS rows FROM spans", ())[0]["rows"]
    exporter.shutdown()
    size = os.stat(f"{name}.db").st_size
    Path(f"{name}.db").unlink()
    return {"bytes": size, "rows": rows}


def _exporter(name: str) -> SqliteSpanExporter:
    return SqliteSpanExporter(db_path=name)


if __name__ == "__main__":
    serve(
        {"one_by_one": one_by_one, "in_batches": in_batches, "stored": stored},
        {
            "google-adk": version("google-adk"),
            "its opentelemetry-sdk": version("opentelemetry-sdk"),
        },
    )
