# SPDX-License-Identifier: Apache-2.0
"""The agent's tools: each one does something real on this machine and returns a JSON value.

They only read: files of the workspace, metadata of installed projects, HTTP services on
loopback, and the output of two fixed commands. So it is safe to give them to a real model.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from typing import Any
from urllib.parse import urlsplit

from .workspace import Workspace, metadata_directory

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY = 200_000
LICENCE_FIELDS = ("License-Expression", "License")
"""Metadata fields that name a licence, the newer one first."""
COMMANDS = {
    "python --version": [sys.executable, "--version"],
    "python -m sqlite_utils --version": [sys.executable, "-m", "sqlite_utils", "--version"],
}


class HttpError(Exception):
    """The service answered, but with an error status."""


class CommandError(Exception):
    """The command ran and ended with a status other than 0."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what the model is told about it, and the function that carries it out."""

    name: str
    description: str
    properties: Mapping[str, Any]
    """JSON Schema of each argument."""
    required: tuple[str, ...]
    run: Callable[..., Any]

    def definition(self) -> dict[str, Any]:
        """The tool as the chat API is told of it."""
        parameters = {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
        }
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": parameters,
            },
        }


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def definitions(self) -> list[dict[str, Any]]:
        """All tools as the chat API is told of them."""
        return [tool.definition() for tool in self._tools.values()]

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out one call and return its JSON value.

        Raises:
            LookupError: there is no such tool.
            TypeError: its arguments do not fit.
            Exception: whatever made the tool fail.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise LookupError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
        return tool.run(**arguments)


def standard_tools(workspace: Workspace) -> Toolbox:
    """The tools of the demo's agent on `workspace`."""
    text, number = {"type": "string"}, {"type": "integer"}
    path = {"type": "string", "description": f"begins with one of {', '.join(workspace.names)}"}
    commands = {"type": "string", "enum": list(COMMANDS)}

    def tool(run: Callable[..., Any], properties: dict[str, Any], *required: str) -> Tool:
        description = (run.__doc__ or "").split("\n", 1)[0]
        return Tool(run.__name__, description, properties, required, run)

    return Toolbox(
        [
            tool(workspace.list_files, {"path": path, "pattern": text}, "path"),
            tool(
                workspace.read_file,
                {"path": path, "first_line": number, "max_lines": number},
                "path",
            ),
            tool(workspace.measure_module, {"path": path}, "path"),
            tool(
                workspace.search_text,
                {"path": path, "text": text, "pattern": text},
                *("path", "text"),
            ),
            tool(workspace.module_imports, {"path": path}, "path"),
            tool(describe_project, {"project": text}, "project"),
            tool(http_get, {"url": text}, "url"),
            tool(run_command, {"command": commands}, "command"),
        ]
    )


def describe_project(project: str) -> dict[str, Any]:
    """What an installed Python project says of itself: version, licence, files, requirements."""
    found = distribution(project)
    metadata = found.metadata
    directory = metadata_directory(project)
    paths = [file.as_posix() for file in found.files or []]
    place = f"{directory.name}/" if directory else None
    return {
        "project": metadata["Name"],
        "version": found.version,
        "licence": next((metadata[key] for key in LICENCE_FIELDS if key in metadata), None),
        "licence_files": [p for p in paths if place and p.startswith(place) and _is_licence(p)],
        "metadata_file": f"{place}METADATA" if place else None,
        "requires": sorted(
            {
                match.group().lower()
                for line in found.requires or []
                if "extra ==" not in line and (match := re.match(r"[A-Za-z0-9._-]+", line))
            }
        ),
    }


def _is_licence(path: str) -> bool:
    return path.rsplit("/", 1)[-1].upper().startswith(("LICENSE", "LICENCE", "COPYING"))


def http_get(url: str) -> dict[str, Any]:
    """GET a URL of a service on this machine; a body that is JSON comes back parsed."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in LOOPBACK:
        raise PermissionError(f"{url}: only http:// services on loopback can be asked")
    # http.client knows neither proxies nor redirects, so the call really stays on loopback.
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = response.read(MAX_BODY).decode("utf-8", "replace")
    finally:
        connection.close()
    if response.status >= 400:
        raise HttpError(f"{response.status} {response.reason}: {body.strip()[:300]}")
    try:
        return {"status": response.status, "body": json.loads(body)}
    except ValueError:
        return {"status": response.status, "body": body}


def run_command(command: str) -> dict[str, Any]:
    """Run one of a few fixed commands and return what it printed."""
    argv = COMMANDS.get(command)
    if argv is None:
        raise PermissionError(f"{command!r} is none of {', '.join(COMMANDS)}")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise CommandError(
            f"{command}: exit status {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return {"exit_status": done.returncode, "output": done.stdout.strip()}
