# SPDX-License-Identifier: Apache-2.0
"""A real HTTP service for the agent to call: the inventory of this Python environment.

::

    GET /                           what there is to ask for
    GET /health                     {"status": "ok", ...}
    GET /projects                   names of the installed projects
    GET /projects/NAME              version, files, bytes on disk; 404 when it is not installed
    GET /projects/NAME/signature    the wheel's signature; 500, as the file behind it does not exist

The last one is a genuine defect: it reads a file of the wheel format that nobody writes.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from .workspace import metadata_directory


class InventoryService:
    """The service on a free port of 127.0.0.1 while a ``with`` block runs."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.05,),  # seconds between looks at whether to stop
            name="inventory-service",
            daemon=True,
        )

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer one request; what goes wrong inside is a 500 with the error's type."""
        try:
            status, body = _answer([unquote(part) for part in self.path.split("/") if part])
        except PackageNotFoundError as error:
            status, body = 404, {"error": f"not installed: {error.name}"}
        except Exception as error:
            # A service must answer; the caller sees the failure, only not our paths.
            status, body = 500, {"error": type(error).__name__}
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Keep the demo's output free of access logs."""


def _answer(parts: list[str]) -> tuple[int, Any]:
    match parts:
        case []:
            project = "/projects/sqlite-utils"
            return 200, {"endpoints": ["/health", "/projects", project, f"{project}/signature"]}
        case ["health"]:
            return 200, {"status": "ok", "threads": threading.active_count()}
        case ["projects"]:
            names = {str(found.metadata["Name"]) for found in distributions()}
            return 200, {"total": len(names), "projects": sorted(names, key=str.lower)}
        case ["projects", name]:
            return 200, _project(name)
        case ["projects", name, "signature"]:
            distribution(name)  # a project that is not installed is a 404, not a 500
            directory = metadata_directory(name) or Path(name)
            return 200, {"signature": (directory / "RECORD.jws").read_text()}
        case _:
            return 404, {"error": f"there is no /{'/'.join(parts)}"}


def _project(name: str) -> dict[str, Any]:
    found = distribution(name)
    paths = [file.locate() for file in found.files or []]
    sizes = [path.stat().st_size for path in paths if path.is_file()]  # type: ignore[attr-defined]
    return {
        "project": found.metadata["Name"],
        "version": found.version,
        "files": len(sizes),
        "missing_files": len(paths) - len(sizes),
        "bytes": sum(sizes),
    }
