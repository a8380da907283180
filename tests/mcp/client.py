# SPDX-License-Identifier: Apache-2.0
"""The SDK's own client, talking to a server in a process of its own or, faster, in this one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp import ClientSession

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Client:
    """Asks, and takes the answers apart."""

    session: ClientSession
    start: dict[str, Any]
    """What the server said of itself."""

    async def tools(self) -> dict[str, dict[str, Any]]:
        """The tools by name."""
        listed = await self.session.list_tools()
        return {tool.name: tool.model_dump(by_alias=True) for tool in listed.tools}

    async def answer(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        """(structured content, text) of an answer."""
        result = (await self.session.call_tool(tool, arguments)).model_dump(by_alias=True)
        (content,) = result["content"]
        assert not result["isError"], content["text"]
        return result["structuredContent"], content["text"]

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """The structured content of an answer."""
        return (await self.answer(tool, **arguments))[0]

    async def error(self, tool: str, **arguments: Any) -> str:
        """What is said about a question that cannot be answered."""
        result = (await self.session.call_tool(tool, arguments)).model_dump(by_alias=True)
        assert result["isError"], json.dumps(result)[:2000]
        return str(result["content"][0]["text"])


@asynccontextmanager
async def serving(directory: Path, *arguments: str) -> AsyncIterator[Client]:
    """``otel-taskhistory mcp`` on a history, and a client of it."""
    # Takes a second to import, and pytest loads this module in every worker.
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "otel_taskhistory", "mcp", "--directory", str(directory), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write) as session,
    ):
        start = (await session.initialize()).model_dump(by_alias=True)
        yield Client(session, start)


@asynccontextmanager
async def answering(directory: Path) -> AsyncIterator[Client]:
    """The same server and client, in this process: for tests of what the answers hold."""
    import mcp

    from otel_taskhistory.mcp.server import build

    async with mcp.Client(build(directory, None)) as client:
        yield Client(client.session, {})
