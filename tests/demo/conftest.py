# SPDX-License-Identifier: Apache-2.0
"""What the demo's tests share: a tracer that can be looked at, a package, a model endpoint."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from otel_taskhistory.demo.host_agent.workspace import Workspace


class Handle:
    """A task, a step or a tool call."""

    def __init__(self, kind: str, name: Any = None, **facts: Any) -> None:
        self.kind = kind
        self.name = name
        self.facts = facts
        self.id = f"{kind}-{id(self)}"
        self.children: list[Handle] = []
        self.status = "running"
        self.error: Any = None
        self.value: Any = None
        self.prompts: list[Any] = []
        self.decisions: list[Any] = []
        self.pictures: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.status == "running":
            self.status = "failed" if error else "succeeded"
            self.error = error

    def _child(self, handle: Handle) -> Handle:
        assert self.status == "running", f"{self.kind} has ended"
        self.children.append(handle)
        return handle

    def step(self, name: str | None = None) -> Handle:
        return self._child(Handle("step", name))

    def tool_call(self, name: str, arguments: Any = None, *, call_id: str | None = None) -> Handle:
        return self._child(Handle("tool_call", name, arguments=arguments, call_id=call_id))

    def prompt(self, messages: Any, *, model: str | None = None, tools: Any = None) -> None:
        # As it is now: the agent's own list goes on growing.
        self.prompts.append(copy.deepcopy(messages))
        self.facts |= {"model": model, "tools": copy.deepcopy(tools)}

    def decision(self, reply: Any) -> None:
        self.decisions.append(reply)

    def screenshot(self, image: bytes, *, caption: str | None = None) -> None:
        self.pictures.append(image)

    def result(self, value: Any) -> None:
        self.value = value

    def fail(self, error: Any) -> None:
        self.status, self.error = "failed", error


class Recorder:
    """Stands where a TaskTracer stands."""

    def __init__(self) -> None:
        self.tasks: list[Handle] = []

    def task(self, goal: str, *, agent: str | None = None) -> Handle:
        self.tasks.append(Handle("task", goal, agent=agent))
        return self.tasks[-1]


@pytest.fixture
def recorder() -> Recorder:
    """A tracer whose handles can be looked at."""
    return Recorder()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory of a small Python package, to be changed at will."""
    package = tmp_path / "shop"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("from .desk import sell\n")
    (package / "desk.py").write_text(
        "from . import till\nimport shop.parts.bolt\nimport json\n\n\n"
        'def sell(item):\n    """Sell one item.\n\n    And count it.\n    """\n'
    )
    (package / "till.py").write_text("# the till\n\n\nclass Till:\n    def ring(self): ...\n")
    (package / "parts" / "__init__.py").write_text("")
    (package / "parts" / "bolt.py").write_text("from ..till import Till\n" + "size = 1\n" * 20)
    (package / "notes.txt").write_text("till: count it\n")
    return package


@pytest.fixture
def workspace(shop: Path) -> Workspace:
    """The workspace that holds that package."""
    return Workspace({"shop": shop})


class Endpoint:
    """An HTTP server whose answer to the next POST is `answer`, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: Callable[[], tuple[int, bytes]] = lambda: (500, b"")
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []

    def reply(self, message: dict[str, Any]) -> None:
        """Answer with a chat completion that holds `message`."""
        body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        self.answer = lambda: (200, body)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A local server to be a model endpoint."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            known.asked.append((self.path, json.loads(self.rfile.read(length))))
            known.headers.append({k.lower(): v for k, v in self.headers.items()})
            status, body = known.answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known = Endpoint(f"http://127.0.0.1:{server.server_port}/v1")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield known
        server.shutdown()
        thread.join()
