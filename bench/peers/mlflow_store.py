# SPDX-License-Identifier: Apache-2.0
"""MLflow's tracing on SQLite: the two calls that its server makes for spans that arrive by OTLP."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import workload
from mlflow.entities.span import Span
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan
from serve import serve

logging.disable(logging.WARNING)
_store = SqlAlchemyStore(f"sqlite:///{Path.cwd() / 'mlflow.db'}", str(Path.cwd() / "artifacts"))
_experiment = _store.create_experiment("bench")


def in_batches(spans: int, seed: int, size: int) -> list[float]:
    """Spans in batches; ms a span, batch by batch."""
    took = []
    ended = workload.collected(workload.tasks, workload.said(spans, seed))
    for batch in workload.batches(ended, size):
        arrived = [_proto(span) for span in batch]
        began = time.perf_counter()
        _store.log_spans(_experiment, [Span.from_otel_proto(span) for span in arrived])
        took.append((time.perf_counter() - began) * 1000 / len(batch))
    _check(ended)
    return took


def _check(ended: Sequence[ReadableSpan]) -> None:
    """See that the spans are there.

    Raises:
        RuntimeError: one is not.
    """
    for trace in {span.context.trace_id for span in ended}:
        wanted = sum(span.context.trace_id == trace for span in ended)
        found = len(_store.batch_get_traces([f"tr-{trace:032x}"])[0].data.spans)
        if found != wanted:
            raise RuntimeError(f"{found} spans of {wanted} in a trace")


def _proto(span: ReadableSpan) -> trace_pb2.Span:
    made = trace_pb2.Span(
        trace_id=span.context.trace_id.to_bytes(16, "big"),
        span_id=span.context.span_id.to_bytes(8, "big"),
        parent_span_id=span.parent.span_id.to_bytes(8, "big") if span.parent else b"",
        name=span.name,
        start_time_unix_nano=span.start_time,
        end_time_unix_nano=span.end_time,
    )
    for key, value in span.attributes.items():
        attribute = made.attributes.add(key=key)
        if isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value
    return made


if __name__ == "__main__":
    serve({"in_batches": in_batches}, {"mlflow": version("mlflow")})
