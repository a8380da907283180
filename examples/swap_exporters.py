# SPDX-License-Identifier: Apache-2.0
"""One agent, three places for its spans: here; here and, without content, elsewhere; elsewhere.

``python examples/swap_exporters.py``, where ``otel-taskhistory[otlp]`` is installed, runs the same
agent three times; only the provider that it is given differs. The receiver is an OTLP endpoint on
loopback. For a real one give `OTLPSpanExporter` its address, or leave that out and set
``OTEL_EXPORTER_OTLP_ENDPOINT``. It prints:

.. code-block:: text

    == here
    history:  'Pay the invoice of Ada Lovelace', succeeded; prompt of step 1: as it was sent
    receiver: nothing
    == here and elsewhere
    history:  'Pay the invoice of Ada Lovelace', succeeded; prompt of step 1: as it was sent
    receiver: 'execute_tool invoices.find' with 4 attributes
              those that tell of Ada Lovelace: none
    receiver: 'look up' with 11 attributes
              those that tell of Ada Lovelace: none
    receiver: 'invoke_agent clerk' with 5 attributes
              those that tell of Ada Lovelace: none
    == elsewhere
    history:  none
    receiver: 'execute_tool invoices.find' with 6 attributes
              those that tell of Ada Lovelace: gen_ai.tool.call.arguments
    receiver: 'look up' with 13 attributes
              those that tell of Ada Lovelace: gen_ai.input.messages
    receiver: 'invoke_agent clerk' with 7 attributes
              those that tell of Ada Lovelace: taskhistory.task.goal
"""

from __future__ import annotations

import gzip
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_taskhistory import (
    HistoryNotFound,
    RedactingExporter,
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)

GOAL = "Pay the invoice of Ada Lovelace"


def agent(tasks: TaskTracer) -> None:
    """The agent: knows a tracer, and nothing of where its spans go."""
    with tasks.task(GOAL, agent="clerk") as task:
        with task.step("look up") as step:
            step.prompt([{"role": "user", "content": GOAL}], model="offline-1")
            step.decision("I look it up.", usage={"input_tokens": 21, "output_tokens": 6})
            with step.tool_call("invoices.find", {"name": "Ada Lovelace"}) as call:
                call.result({"number": 17, "euro": 250})
        task.result("paid 250 euro")


def here(directory: Path, address: str) -> TracerProvider:
    """Local and durable; nothing leaves this machine."""
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(TaskHistoryExporter(directory)))
    return provider


def here_and_elsewhere(directory: Path, address: str) -> TracerProvider:
    """The same, and a remote exporter that gets structure, times and counts, but no content."""
    provider = here(directory, address)
    remote = RedactingExporter(OTLPSpanExporter(address))
    provider.add_span_processor(BatchSpanProcessor(remote))
    return provider


def elsewhere(directory: Path, address: str) -> TracerProvider:
    """Only remote, and all of it: what any OpenTelemetry agent would do."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address)))
    return provider


WAYS: tuple[Callable[[Path, str], TracerProvider], ...] = (here, here_and_elsewhere, elsewhere)


@dataclass(slots=True)
class Received:
    """What the receiver got: spans by name, each with its attributes."""

    spans: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def main() -> None:
    """Run the agent three times and print what became of it."""
    for way in WAYS:
        received = Received()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(received))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            with tempfile.TemporaryDirectory() as folder:
                provider = way(Path(folder), f"http://127.0.0.1:{server.server_port}/v1/traces")
                agent(TaskTracer(provider))
                provider.shutdown()
                print(f"== {way.__name__.replace('_', ' ')}")
                show_history(Path(folder))
                show_received(received)
        finally:
            server.shutdown()
            server.server_close()


def show_history(directory: Path) -> None:
    """What the local history says."""
    try:
        with TaskHistory(directory) as history:
            task = history.task("latest")
            (step,) = history.steps(task.task_id)
            kept = "as it was sent" if GOAL in (step.prompt or "") else "not there"
            print(f"history:  {task.goal!r}, {task.status}; prompt of step 1: {kept}")
    except HistoryNotFound:
        print("history:  none")


def show_received(received: Received) -> None:
    """What the receiver got."""
    if not received.spans:
        print("receiver: nothing")
    for name, attributes in received.spans:
        private = sorted(key for key, value in attributes.items() if "Ada Lovelace" in value)
        print(f"receiver: {name!r} with {len(attributes)} attributes")
        print(f"          those that tell of Ada Lovelace: {', '.join(private) or 'none'}")


def _handler(received: Received) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Take spans."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        said = {one.key: str(one.value) for one in span.attributes}
                        received.spans.append((span.name, said))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """What was received is printed by `show_received`."""

    return Handler


if __name__ == "__main__":
    main()
