# SPDX-License-Identifier: Apache-2.0
"""Lets agents look up what was done: a read-only MCP server over a history, in bounded answers.

* `texts` says how much of a recorded text an answer holds, and how to get the rest.
* `results` are the answers as types: the schema that a client sees.
* `lookup` fills them from a history, `steps` the one of a step, with what `parts` make of texts;
  `values` reads one value piece by piece.
* `arguments` reads what a model may ask with.
* `server` offers them as tools, with the official SDK, which comes with ``otel-taskhistory[mcp]``.

Nothing but `results` and `server` needs that SDK (or pydantic, which it brings), and nothing of it
is loaded before `serve` is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec

from otel_taskhistory.errors import HistoryNotFound, SettingsError
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.settings import Settings

__all__ = ["serve"]


def serve(
    directory: str | os.PathLike[str] | None = None,
    owner: str | None = None,
    *,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Serve a history on standard input and output until the client goes.

    A history that is not there yet is no failure: it is looked for at each call.

    Args:
        directory: the history itself; None for what environment and defaults say.
        owner: refuse the history of another owner; None takes the owner from the history.
        tell: told what a person who set this up should know.

    Raises:
        SettingsError: the SDK is not installed, or a setting makes no sense.
        TaskHistoryError: what is there cannot be read.
    """
    if find_spec("mcp") is None:
        raise SettingsError(
            "the MCP server needs the MCP SDK, which is not installed:"
            " pip install 'otel-taskhistory[mcp]'"
        )
    try:
        from otel_taskhistory.mcp.server import build
    except ImportError as error:
        raise SettingsError(
            f"the MCP SDK that is installed (mcp {version('mcp')}) is none that this version knows"
            f" ({error}): pip install --upgrade 'otel-taskhistory[mcp]'"
        ) from error
    Settings.resolve(directory=directory, owner=owner)
    try:
        TaskHistory(directory, owner).close()
    except HistoryNotFound as error:
        if tell is not None:
            tell(f"{error}. It is looked for again at each question")
    build(directory, owner).run()
