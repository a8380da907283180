# SPDX-License-Identifier: Apache-2.0
"""The tools, offered with the official SDK: read-only, their answers typed, their errors in words.

Both majors of the SDK will do: agent frameworks pin the one or the other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Final, Literal

from mcp.types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, Field

from otel_taskhistory._version import __version__
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.mcp import lookup, results, steps
from otel_taskhistory.mcp.texts import NOTICE, visible

_make: Callable[..., Any]
_failure: type[Exception]
"""What a tool raises for its caller to read."""
try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ModuleNotFoundError:  # before 2.0 it had another name
    _make = import_module("mcp.server.fastmcp").FastMCP
    _failure = import_module("mcp.server.fastmcp.exceptions").ToolError
else:
    _make, _failure = partial(MCPServer, version=__version__), ToolError

INSTRUCTIONS: Final = f"""\
The history of what an agent did on this machine: tasks, their steps, and of each step the prompt \
that was sent to the model, its decision, tool calls with results, and screenshots. Read-only.

Look up what was done before you do it again: search_history finds words anywhere, list_tasks \
lists tasks (newest first), get_task shows one with its steps, get_step shows one step, get_text \
gives the rest of a text that was cut (it says so in "truncated", with the arguments to ask with).

{NOTICE}
"""

TaskId = Annotated[
    str,
    Field(description='Id of a task, the beginning of one, or "latest".', max_length=200),
]
StepId = Annotated[
    int | str,
    Field(description="Number of the step within its task, or its id (or the beginning of that)."),
]
Moment = Annotated[
    str | None,
    Field(
        description="ISO 8601 (UTC unless it says a zone), today, yesterday, 10:00, or how long"
        " ago: 90m, 2h, 30d.",
        max_length=64,
    ),
]
Cursor = Annotated[str | None, Field(description="next_cursor of the page before.", max_length=200)]


class Tools:
    """The tools of a history, which is opened at the first call and may come into being later.

    Args:
        directory: the history; None for what environment and defaults say.
        owner: refuse the history of another owner.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, owner: str | None) -> None:
        self._directory = directory
        self._owner = owner
        self._history: TaskHistory | None = None
        # Off the event loop, so that a long search does not keep a ping waiting; one at a time, as
        # a history is read by one at a time anyway.
        self._worker = ThreadPoolExecutor(1, "otel-taskhistory-mcp")

    async def list_tasks(
        self,
        status: Literal["running", "succeeded", "failed", "cancelled", "interrupted"] | None = None,
        agent: Annotated[
            str | None, Field(description="Only of the agent with exactly this name.")
        ] = None,
        since: Moment = None,
        until: Moment = None,
        kind: Annotated[
            Literal["agent", "other", "any"],
            Field(description="other: traces without agent or model, as web requests."),
        ] = "agent",
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        cursor: Cursor = None,
    ) -> Annotated[CallToolResult, results.TaskList]:
        """List tasks, newest first, with goal, outcome, times and tokens."""
        return await self._answer(
            lambda history: lookup.list_tasks(
                history, status, agent, since, until, kind, limit, cursor
            )
        )

    async def get_task(
        self,
        task_id: TaskId = "latest",
        limit: Annotated[int, Field(ge=1, le=100, description="Steps per page.")] = 30,
        cursor: Cursor = None,
    ) -> Annotated[CallToolResult, results.TaskDetail]:
        """Show one task: goal, outcome, and a page of its steps in order."""
        return await self._answer(lambda history: lookup.get_task(history, task_id, limit, cursor))

    async def get_step(
        self,
        step: StepId,
        task_id: TaskId = "latest",
        first_call: Annotated[
            int, Field(ge=1, le=10**9, description="Model and tool calls from this number on.")
        ] = 1,
    ) -> Annotated[CallToolResult, results.StepDetail]:
        """Show one step: what was new in its prompt, decision, tool calls, results, pictures."""
        return await self._answer(
            lambda history: steps.get_step(history, task_id, step, first_call)
        )

    async def get_text(
        self,
        part: Annotated[
            str,
            Field(
                description="Which text. Of a task: goal, result, error. Of a step: prompt,"
                " decision, result, error, model_calls/N/prompt, tool_calls/N/result, ..."
                ' ("truncated" names it).',
                max_length=100,
            ),
        ],
        task_id: TaskId = "latest",
        step: Annotated[
            int | str | None, Field(description="Number or id of the step; null for the task.")
        ] = None,
        offset: Annotated[int, Field(ge=0, le=2**53, description="From this character on.")] = 0,
        limit: Annotated[int, Field(ge=1, le=lookup.VALUE)] = lookup.VALUE,
    ) -> Annotated[CallToolResult, results.Value]:
        """Read one recorded text piece by piece, as it is stored: a whole prompt is JSON."""
        return await self._answer(
            lambda history: lookup.get_text(history, task_id, part, step, offset, limit)
        )

    async def search_history(
        self,
        text: Annotated[
            str,
            Field(
                description="Words that must all stand in one text, in any order;"
                ' "several words" in quotation marks in this order; book* for any ending.',
                max_length=1000,
            ),
        ],
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        offset: Annotated[int, Field(ge=0, le=lookup.MOST_FOUND)] = 0,
    ) -> Annotated[CallToolResult, results.Hits]:
        """Find words in goals, prompts, decisions, tool arguments, results and errors."""
        return await self._answer(
            lambda history: lookup.search_history(history, text, limit, offset)
        )

    async def _answer(self, ask: Callable[[TaskHistory], BaseModel]) -> CallToolResult:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._worker, partial(self._ask, ask))
        # The text says the same as the structured content, in fewer tokens than the SDK's own.
        return CallToolResult.model_validate(
            {
                "content": [{"type": "text", "text": found.model_dump_json(exclude_none=True)}],
                "structuredContent": found.model_dump(mode="json"),
            }
        )

    def _ask(self, ask: Callable[[TaskHistory], BaseModel]) -> BaseModel:
        try:
            if self._history is None:
                self._history = TaskHistory(self._directory, self._owner)
            return ask(self._history)
        except (TaskHistoryError, OSError) as error:
            raise _failure(visible(str(error))) from error
        except OverflowError as error:  # beyond what SQLite holds: nobody was given such a cursor
            raise _failure("a number is too large: use cursors as answers give them") from error


def build(directory: str | os.PathLike[str] | None, owner: str | None) -> Any:
    """A server of the SDK with the tools; its ``run()`` speaks on standard input and output."""
    server = _make("otel-taskhistory", instructions=INSTRUCTIONS, log_level="WARNING")
    tools = Tools(directory, owner)
    hints = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    for tool in (
        tools.list_tasks,
        tools.get_task,
        tools.get_step,
        tools.get_text,
        tools.search_history,
    ):
        annotations = ToolAnnotations.model_validate(hints)
        server.add_tool(tool, annotations=annotations, structured_output=True)
    return server
