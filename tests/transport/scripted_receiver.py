# SPDX-License-Identifier: Apache-2.0
"""An OTLP/HTTP receiver that fails in every way it is told to; run as a program.

``python scripted_receiver.py LOG [PORT [CERTIFICATE]]`` prints the port on which it listens. What
to answer it reads from the file ``LOG.script``, anew for each request: a JSON list of answers, of
which the n-th line of LOG gets the n-th, and all after the last one the last. An answer is an
object:

* ``status``, ``headers``, ``type``, ``body`` (text, or ``base64:…``): as it stands; by default 200
  and an empty answer of OTLP;
* ``reject``: so many spans are not kept (partial success), with ``says``;
* ``poison``: requests with a span of one of these names get ``status``, others are accepted;
* ``most``: requests with more bytes than that get 413;
* ``drop``: the connection is closed without an answer, ``"before"`` or ``"after"`` the spans are
  kept.

Each request is a line in LOG, flushed before the answer: what came, and which spans were kept.
"""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

LOG = Path(sys.argv[1])
SCRIPT = Path(f"{LOG}.script")
PROTOBUF = "application/x-protobuf"
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *said: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """One request."""
        raw = self.rfile.read(int(self.headers["content-length"]))
        with lock:
            number = len(LOG.read_text().splitlines()) if LOG.exists() else 0
            answer = self.next(number)
            body = gzip.decompress(raw) if self.headers["content-encoding"] == "gzip" else raw
            spans = spans_in(body)
            status = answer.get("status", 200)
            clean = (
                not any(span[2] in answer["poison"] for span in spans)
                if "poison" in answer
                else None
            )
            if clean:
                status, answer = 200, {}
            if "most" in answer:
                status = 413 if len(body) > answer["most"] else 200
            kept = spans[answer.get("reject", 0) :] if 200 <= status < 300 else []
            if answer.get("drop") == "before":
                kept = []
            with LOG.open("a") as log:
                log.write(
                    json.dumps(
                        {
                            "path": self.path,
                            "headers": {k.lower(): v for k, v in self.headers.items()},
                            "status": status,
                            "spans": spans,
                            "kept": kept,
                            "bytes": len(body),
                            "body": base64.b64encode(body).decode() if len(body) < 2**20 else "",
                        }
                    )
                    + "\n"
                )
        if answer.get("drop"):
            self.close_connection = True
            self.connection.close()
            return
        self.answer(status, answer)

    def next(self, number: int) -> dict[str, Any]:
        """What to answer to this request."""
        try:
            script = json.loads(SCRIPT.read_text())
        except FileNotFoundError:
            return {}
        return dict(script[min(number, len(script) - 1)])

    def answer(self, status: int, said: dict[str, Any]) -> None:
        """Send an answer."""
        text = said.get("body", "")
        body = base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()
        kind = said.get("type", PROTOBUF)
        if 200 <= status < 300 and "body" not in said:
            whole = ExportTraceServiceResponse()
            if said.get("reject") or said.get("says"):
                whole.partial_success.rejected_spans = said.get("reject", 0)
                whole.partial_success.error_message = said.get("says", "")
            body = whole.SerializeToString()
        self.send_response(status)
        if kind:
            self.send_header("content-type", kind)
        for name, value in said.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def spans_in(body: bytes) -> list[list[str]]:
    """(trace id, span id, name) of each span of a request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        [span.trace_id.hex(), span.span_id.hex(), span.name]
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class Server(ThreadingHTTPServer):
    """Ends with its connections open."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Senders that die are what it is there for."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()
