# SPDX-License-Identifier: Apache-2.0
"""Serves the pages of a history on loopback, with the routes and headers of the plugin."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from otel_taskhistory import TaskHistory
from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.images import inspect
from otel_taskhistory.pages import (
    ASSETS,
    Links,
    axis,
    changes,
    film_fragment,
    plots_page,
    problem_page,
    search_page,
    step_fragment,
    steps_fragment,
    task_list_page,
    task_page,
)
from otel_taskhistory.pages.pictures import shrunk

POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
BASE = "/-/taskhistory/"
HTML = "text/html; charset=utf-8"


class Served:
    """A history that is served.

    Attributes:
        url: of the list of tasks.
        asked: the paths that were asked for.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}{BASE}"
        self.asked: list[str] = []

    def task(self, task_id: str, step_id: str | None = None) -> str:
        """The address of a task."""
        return self.root + Links().task(task_id, step_id)


@contextmanager
def serving(directory: Path, port: int = 0) -> Iterator[Served]:
    """Serve a history until it is left."""
    history = TaskHistory(directory)
    links = Links()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(address.query).items()}
            served.asked.append(self.path)
            try:
                status, kind, body = 200, *answer(address.path, query)
            except TaskNotFound as error:
                page = problem_page("There is no such task", str(error), links, history)
                status, kind, body = 404, HTML, page.encode()
            except SettingsError as error:
                page = problem_page("That cannot be shown", str(error), links, history)
                status, kind, body = 400, HTML, page.encode()
            except KeyError:
                status, kind, body = 404, "text/plain", b"not found"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    def answer(path: str, query: dict[str, str]) -> tuple[str, bytes]:
        if path == "/":
            return HTML, task_list_page(history, query, links).encode()
        where = path.removeprefix(BASE)
        if where == path:
            raise KeyError(path)
        parts = [unquote(part) for part in where.split("/")]
        match parts:
            case [""]:
                return HTML, task_list_page(history, query, links).encode()
            case ["search"]:
                return HTML, search_page(history, query.get("q", ""), links).encode()
            case ["plots"]:
                return HTML, plots_page(history, links).encode()
            case ["tasks", task]:
                return HTML, task_page(history, task, links, query.get("step")).encode()
            case ["tasks", task, "steps"]:
                return HTML, steps_fragment(history, task, query.get("cursor"), links).encode()
            case ["tasks", task, "steps", step]:
                full = query.get("full") == "1"
                return HTML, step_fragment(history, task, step, links, full).encode()
            case ["tasks", task, "film"]:
                return HTML, film_fragment(history, task, query.get("cursor"), links).encode()
            case ["tasks", task, "axis.json"]:
                return "application/json", json.dumps(axis(history, task)).encode()
            case ["tasks", task, "changes.json"]:
                found = changes(history, task, query.get("after"))
                return "application/json", json.dumps(found).encode()
            case ["assets", name]:
                content, kind = ASSETS[name]
                return kind, content
            case ["artifacts" | "thumbnails" as what, sha256] if re.fullmatch(
                "[0-9a-f]{64}", sha256
            ):
                return picture(sha256, small=what == "thumbnails")
        raise KeyError(path)

    def picture(sha256: str, *, small: bool) -> tuple[str, bytes]:
        found = list((history.settings.artifacts / sha256[:2]).glob(f"{sha256}.*"))
        if not found:
            raise KeyError(sha256)
        data = found[0].read_bytes()
        if small:
            made = shrunk(data, 320, 240)
            if made is None:
                raise KeyError(sha256)
            return made[1], made[0]
        return inspect(data).media_type, data

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        served = Served(directory, server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
            history.close()
