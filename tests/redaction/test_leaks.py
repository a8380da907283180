# SPDX-License-Identifier: Apache-2.0
"""A task full of markers leaves by real OTLP/HTTP: none is in the bytes, the history has all."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, TraceFlags, TraceState

from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.redaction.exporter import RedactingExporter
from tests.processes import SOUND_PNG, rows


def marker(name: str) -> str:
    """A text that nothing else has in it."""
    return f"leak-{name}-9f3b7c"


@contextmanager
def receiver() -> Iterator[tuple[str, list[bytes]]]:
    """An address that takes OTLP/HTTP, and the bodies that came, as they came."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def all_of(bodies: list[bytes]) -> bytes:
    """What was sent, decompressed, and all that it holds in base64, decoded."""
    plain = b"".join(gzip.decompress(b) if b[:2] == b"\x1f\x8b" else b for b in bodies)
    seen = [*bodies, plain]
    return b"\n".join([*seen, base64_of_all(plain)])


def base64_of_all(data: bytes) -> bytes:
    """Whatever may be base64 in `data`, decoded from each place where it may begin."""
    runs = re.findall(rb"[A-Za-z0-9+/_-]{8,}", data)
    return b"\n".join(base64_of(run[start:]) for run in runs for start in range(4))


def base64_of(run: bytes) -> bytes:
    """The bytes that a run of base64, of either alphabet and without padding, stands for."""
    plain = run.translate(bytes.maketrans(b"-_", b"+/"))
    plain = plain[:-1] if len(plain) % 4 == 1 else plain
    return base64.b64decode(plain + b"=" * (-len(plain) % 4))


def record_everything(tasks: TaskTracer, provider: TracerProvider) -> set[str]:
    """One task with a marker wherever contents may be; returns the markers."""
    used: set[str] = set()

    def mark(name: str) -> str:
        used.add(marker(name))
        return marker(name)

    data_url = (
        "data:image/png;base64," + base64.b64encode(SOUND_PNG + mark("picture").encode()).decode()
    )
    caller = SpanContext(
        0xABC, 0xDEF, True, TraceFlags(1), TraceState([("vendor", mark("link-state"))])
    )
    with tasks.task(
        f"a goal with {mark('goal')}",
        agent="desk-1",
        conversation_id="conv-42",
        key=mark("key"),
        attributes={
            mark("attribute-key"): "x",
            "custom.note": mark("attribute"),
            "custom.count": 7,
            "gen_ai.agent.description": mark("description"),
            "gen_ai.request.model": f"a model that is a sentence with {mark('model')}",
            "gen_ai.tool.name": f"rm {mark('tool-name')}",
            "gen_ai.usage.input_tokens": mark("tokens"),
            "gen_ai.response.finish_reasons": ["stop", mark("reasons") * 9],
            "session.id": f"{mark('session')} @home",
            "user.id": mark("user"),
            "code.filepath": f"/home/{mark('path')}/agent.py",
        },
        links=[Link(caller, {"why": mark("link")})],
    ) as task:
        with task.step("open site") as step:
            step.prompt(
                [
                    {"role": "system", "content": mark("system")},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": mark("prompt")},
                            {"type": "image_url", "image_url": {"url": data_url}},
                        ],
                    },
                ],
                model="model-1",
                tools=[{"name": "t", "description": mark("definition")}],
            )
            step.decision(
                {"role": "assistant", "content": mark("decision")},
                usage={"input_tokens": 812, "output_tokens": 40},
            )
            nested = json.dumps({"deep": json.dumps({"deeper": mark("nested")})})
            with step.tool_call("click", {"json": nested}, call_id="call_1") as call:
                call.result({"said": mark("result"), "raw": mark("bytes").encode()})
            step.screenshot(SOUND_PNG, caption=mark("caption"))
            step.span.add_event(
                f"the user said {mark('event-name')} and so on", {"text": mark("event")}
            )
            step.result(mark("step-result"))
        with contextlib.suppress(ValueError), task.step("fail"):
            local = mark("stack")
            raise ValueError(f"{mark('exception')} {local}")
        with task.step("cancel") as step:
            step.cancel(mark("reason"))
        foreign = provider.get_tracer("other.library", "1.0", attributes={"x": mark("scope")})
        with foreign.start_as_current_span(
            f"please look up {mark('span-name')} for me",
            attributes={"input.value": mark("input"), "gen_ai.prompt": mark("old-prompt")},
        ) as span:
            span.set_status(trace.StatusCode.ERROR, mark("status"))
        task.result(mark("task-result"))
    return used


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_nothing_leaves_by_ids_only_and_the_history_has_all(
    tmp_path: Path, compression: Compression
) -> None:
    """Structure, names, tokens and hashes arrive, none of the contents does, in no encoding."""
    resource = Resource(
        {"service.name": "desk", "host.name": marker("host"), "note": marker("resource")}
    )
    with receiver() as (address, bodies):
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = TaskHistoryExporter(tmp_path, durability="normal")
        provider.add_span_processor(TaskHistoryProcessor(exporter))
        remote = RedactingExporter(OTLPSpanExporter(address, compression=compression))
        provider.add_span_processor(BatchSpanProcessor(remote))
        used = record_everything(TaskTracer(provider, exporter=exporter), provider)
        provider.shutdown()
    used |= {marker("host"), marker("resource")}
    sent = all_of(bodies)
    for name in ("open site", "desk-1", "execute_tool click", "conv-42", "model-1", "call_1"):
        assert name.encode() in sent, name
    assert b"sha256" in sent
    assert [one for one in sorted(used) if one.encode() in sent] == []
    assert re.findall(rb"leak-[a-z-]*", sent) == []
    assert SOUND_PNG[16:40] not in sent
    assert remote.stats() == {"spans": 6, "withheld": 0, "policy_failed": 0, "lost": 0}

    columns = "name, attributes, events, links, resource, scope, status_message"
    recorded = "\n".join(map(str, rows(tmp_path, f"SELECT {columns} FROM spans")))
    files = b"".join(file.read_bytes() for file in (tmp_path / "artifacts").rglob("*.png"))
    kept = recorded.encode() + files + base64_of_all(recorded.encode())
    assert [one for one in sorted(used) if one.encode() not in kept] == []


def test_the_search_for_leaks_finds_them(tmp_path: Path) -> None:
    """Without a policy all markers are in the bytes, so that the test above can fail."""
    with receiver() as (address, bodies):
        provider = TracerProvider(shutdown_on_exit=False)
        remote = OTLPSpanExporter(address, compression=Compression.Gzip)
        provider.add_span_processor(BatchSpanProcessor(remote))
        used = record_everything(TaskTracer(provider), provider)
        provider.shutdown()
    sent = all_of(bodies)
    unseen = {one for one in used if one.encode() not in sent}
    assert unseen <= {marker("link-state")}, unseen  # links' states are not encoded by the SDK


def test_pictures_stay_by_no_images(tmp_path: Path) -> None:
    """All else leaves."""
    with receiver() as (address, bodies):
        provider = TracerProvider(shutdown_on_exit=False)
        remote = RedactingExporter(OTLPSpanExporter(address), "no_images")
        provider.add_span_processor(BatchSpanProcessor(remote))
        used = record_everything(TaskTracer(provider), provider)
        provider.shutdown()
    sent = all_of(bodies)
    assert marker("picture").encode() not in sent
    assert SOUND_PNG[:32] not in sent
    unseen = {one for one in used if one.encode() not in sent}
    assert unseen <= {marker("picture"), marker("link-state")}, unseen
