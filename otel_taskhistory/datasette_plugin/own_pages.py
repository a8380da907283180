# SPDX-License-Identifier: Apache-2.0
"""Datasette's own pages of a history: invisible characters are seen, tables behind it are not.

Cells are made by us (see `cells`), but facets, filters and headings hold recorded text too, as
Datasette puts it there: safe as markup, but with characters in it that turn the text around.
"""

from __future__ import annotations

import re
from typing import Any, Final

from otel_taskhistory.datasette_plugin import answers
from otel_taskhistory.datasette_plugin.asgi import App, Message, Receive, Scope, Send, history_at
from otel_taskhistory.datasette_plugin.database import HistoryDatabase
from otel_taskhistory.datasette_plugin.histories import links_of
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.pages import problem_page
from otel_taskhistory.text import written_out

# What is no text of the page: elements whose content is not shown as it is, comments, tags.
_NO_TEXT: Final = re.compile(
    r"<(script|style|textarea)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE
)


class OwnPages:
    """ASGI: between Datasette and its server.

    Args:
        app: Datasette.
        datasette: the instance, which knows the databases.
    """

    def __init__(self, app: App, datasette: Any) -> None:
        self._app = app
        self._datasette = datasette

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        found = history_at(self._datasette, scope)
        if found is None:
            await self._app(scope, receive, send)
        elif await _is_behind(*found):
            await self._refuse(*found, scope, send)
        else:
            await self._app(scope, receive, _Seen(send).pass_on)

    async def _refuse(self, history: HistoryDatabase, table: str, scope: Scope, send: Send) -> None:
        message = (
            f"{table} is one of the tables behind tasks, steps and the other public ones. It is not"
            " shown here, and may change with any version."
        )
        path = str(scope["path"])
        if path.endswith(".json"):
            answer = answers.as_json({"ok": False, "error": message, "status": 404}, 404)
        elif path.endswith(".csv"):
            answer = answers.text(message, 404)
        else:
            links = links_of(self._datasette, history)
            answer = answers.page(problem_page("A table behind the others", message, links), 404)
        await answer.asgi_send(send)


async def _is_behind(history: HistoryDatabase, table: str) -> bool:
    if not table.startswith("_"):
        return False
    try:
        return bool(await history.table_exists(table))
    except TaskHistoryError:  # Datasette asks again, and what is wrong is told by its page
        return False


class _Seen:
    """Passes answers on, pages with their invisible characters written out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._pieces: list[bytes] = []

    async def pass_on(self, message: Message) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start" and _is_page(message):
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._pieces.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        start, body = self._start, visible(b"".join(self._pieces))
        self._start, self._pieces = None, []
        kept = [pair for pair in start["headers"] if bytes(pair[0]).lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await self._send({**start, "headers": [*kept, length]})
        await self._send({**message, "body": body})


def _is_page(message: Message) -> bool:
    return any(
        bytes(name).lower() == b"content-type" and bytes(value).lower().startswith(b"text/html")
        for name, value in message.get("headers", ())
    )


def visible(page: bytes) -> bytes:
    r"""A page with invisible characters of its texts written out, as ``\u202e``.

    Attributes, scripts and what is typed into forms stay: there they are what is sent back.
    """
    try:
        text = page.decode()
    except UnicodeDecodeError:
        return page
    pieces: list[str] = []
    at = 0
    for found in _NO_TEXT.finditer(text):
        pieces += (_seen(text[at : found.start()]), found[0])
        at = found.end()
    pieces.append(_seen(text[at:]))
    return "".join(pieces).encode()


def _seen(text: str) -> str:
    return "\r\n".join(map(written_out, text.split("\r\n")))
