# SPDX-License-Identifier: Apache-2.0
"""A chat completion endpoint on loopback that says what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = str | tuple[str, dict[str, Any]]
"""An answer, or a call of a tool."""


@dataclass
class Endpoint:
    """Where it is, and what it was sent."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def answering(replies: Sequence[Said]) -> Iterator[Endpoint]:
    """An endpoint that gives these replies in order, then 500."""
    waiting = list(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.requests.append(json.loads(body))
            said = json.dumps(_completion(waiting.pop(0)) if waiting else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _completion(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if not isinstance(said, str):
        function = {"name": said[0], "arguments": json.dumps(said[1])}
        message |= {"content": None, "tool_calls": [{"id": "call_1", "function": function}]}
    return {
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }
