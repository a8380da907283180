# SPDX-License-Identifier: Apache-2.0
"""CSV that Datasette makes of a history: no cell that a spreadsheet would run as a formula.

As on our own command line such a text begins with an apostrophe; numbers stay. The CSV is changed
as it passes, however large it is.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

from otel_taskhistory.datasette_plugin.asgi import App, Message, Receive, Scope, Send, history_at

# A cell, and what ends it. (What has no end yet waits for the next piece.)
_CELL: Final = re.compile(r'("[^"]*(?:""[^"]*)*"|[^",\r\n]*)(,|\r\n|\n|\r(?!\Z))')
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|-?inf")


class SafeCells:
    """Rewrites CSV in pieces, as they come."""

    def __init__(self) -> None:
        self._waiting = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, *, last: bool) -> bytes:
        """What can be passed on of `data`, and of what was held back before."""
        text = self._waiting + self._decoder.decode(data, last)
        pieces: list[str] = []
        end = 0
        while (found := _CELL.match(text, end)) is not None:
            pieces += (_safe(found[1]), found[2])
            end = found.end()
        self._waiting = text[end:]
        if last:
            pieces.append(_safe(self._waiting))
            self._waiting = ""
        return "".join(pieces).encode()


def _safe(cell: str) -> str:
    quoted = cell.startswith('"')
    content = cell[1:] if quoted else cell
    if not content.startswith(_FORMULA) or (not quoted and _NUMBER.fullmatch(content)):
        return cell
    return f"\"'{content}" if quoted else f"'{content}"


class SafeCsv:
    """ASGI: CSV of the histories passes through `SafeCells`, everything else as it is.

    Args:
        app: Datasette.
        datasette: the instance, which knows the databases.
    """

    def __init__(self, app: App, datasette: Any) -> None:
        self._app = app
        self._datasette = datasette

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if history_at(self._datasette, scope) is None:
            await self._app(scope, receive, send)
            return
        cells: SafeCells | None = None

        async def pass_on(message: Message) -> None:
            nonlocal cells
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if any(_is_csv(bytes(name), bytes(value)) for name, value in headers):
                    cells = SafeCells()
                    message["headers"] = [
                        pair for pair in headers if bytes(pair[0]).lower() != b"content-length"
                    ]
            elif message["type"] == "http.response.body" and cells is not None:
                more = message.get("more_body", False)
                message["body"] = cells.feed(message.get("body", b""), last=not more)
            await send(message)

        await self._app(scope, receive, pass_on)


def _is_csv(name: bytes, value: bytes) -> bool:
    if name.lower() != b"content-type":
        return False
    # Datasette calls it plain text when it is to be shown, and CSV when it is to be saved.
    return value.lower().startswith((b"text/csv", b"text/plain"))
