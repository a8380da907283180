# SPDX-License-Identifier: Apache-2.0
"""What comes between Datasette and its server has in common: types, and whose page is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from datasette.utils import tilde_decode

from otel_taskhistory.datasette_plugin.database import HistoryDatabase
from otel_taskhistory.datasette_plugin.histories import histories

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def history_at(datasette: Any, scope: Scope) -> tuple[HistoryDatabase, str] | None:
    """(the history, the name of a table or query or an empty text) of one of Datasette's own pages.

    Args:
        datasette: the instance.
        scope: of the request.

    Returns:
        None when it is no page of a history.
    """
    if scope["type"] != "http":
        return None
    raw = scope.get("raw_path") or scope["path"].encode()
    path = unquote(bytes(raw).decode("latin-1").partition("?")[0])
    rest = path.removeprefix(datasette.setting("base_url")).lstrip("/")
    database, _, below = rest.partition("/")
    name, table = (
        tilde_decode(part.partition(".")[0])  # a dot in a name would be encoded
        for part in (database, below.partition("/")[0])
    )
    for own in histories(datasette):
        if name in (own.route, own.name):
            return own, table
    return None
