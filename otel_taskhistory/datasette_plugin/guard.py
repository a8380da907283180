# SPDX-License-Identifier: Apache-2.0
"""Who may talk to ``otel-taskhistory serve``: by a name of this machine, with the token, to read.

A page from elsewhere that a browser shows can make it send requests to this machine too. Such a
request names the other site in its Host header (DNS rebinding), comes without our cookie, or is not
a GET; what it gets back, its page may not use.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from otel_taskhistory.datasette_plugin.answers import PAGE_POLICY
from otel_taskhistory.transport.access import Header, Names, bearers, same

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PARAMETER: Final = "token"

_DATASETTE_POLICY: Final = (
    "default-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Of Datasette's own pages, which have scripts and styles of their own inline."""

_DEFAULTS: Final = (
    (b"content-security-policy", _DATASETTE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""What an answer gets that does not say it by itself."""

_COOKIE_SECONDS: Final = 30 * 24 * 3600


class Guard:
    """ASGI: lets pass what may pass.

    Args:
        app: Datasette.
        names: host names that mean this machine.
        any_address: any IP address will do as well, else those of the loopback device. (Others can
            make a name point here, but not an address.)
        token: what a request must show: in the query of its address (which then becomes a cookie),
            in that cookie, or as ``Authorization: Bearer``; None when there is no need to.
        cookie: the cookie's name.
        start: where ``/`` leads.
    """

    def __init__(
        self,
        app: App,
        *,
        names: Iterable[str],
        any_address: bool,
        token: str | None,
        cookie: str,
        start: str,
    ) -> None:
        self._app = app
        self._accepted = Names(names, any_address=any_address)
        self._token = token
        self._cookie = cookie
        self._start = start

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._judge(scope)
            if answer is None:
                await self._app(_without_token(scope), receive, _with_defaults(send))
            else:
                await answer(send)
        else:  # no websockets here
            await send({"type": "websocket.close", "code": 1008})

    def _judge(self, scope: Scope) -> Callable[[Send], Awaitable[None]] | None:
        """What is answered instead; None when the request may pass."""
        headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
        if not self._accepted.meant_by(headers):
            return _said(
                421,
                "This is a task history; it does not answer to that name. Use the address that"
                " otel-taskhistory serve has printed, or tell it the name: --allow-host NAME.",
            )
        if scope["method"] not in ("GET", "HEAD"):
            return _said(405, "A history can only be read.", (b"allow", b"GET, HEAD"))
        if self._token is not None:
            answer = self._ask_for_token(self._token, scope, headers)
            if answer is not None:
                return answer
        return _moved(self._start) if scope["path"] == "/" else None

    def _ask_for_token(
        self, token: str, scope: Scope, headers: list[Header]
    ) -> Callable[[Send], Awaitable[None]] | None:
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        shown = [value for name, value in query if name == PARAMETER]
        proof = _proof(token)
        if any(same(given, token) for given in shown):
            # From the address bar and the history of the browser it goes into a cookie.
            rest = urlencode([pair for pair in query if pair[0] != PARAMETER])
            path = "/" + _path_of(scope).lstrip("/\\")
            cookie = (
                f"{self._cookie}={proof}; Path=/; Max-Age={_COOKIE_SECONDS}; HttpOnly; SameSite=Lax"
            )
            return _moved(f"{path}?{rest}" if rest else path, (b"set-cookie", cookie.encode()))
        if any(same(own, token) for own in bearers(headers)):
            return None
        if any(same(own, proof) for own in _cookies(headers, self._cookie)):
            return None
        return _said(
            401,
            "This history needs its token: open the address that otel-taskhistory serve has"
            " printed (it ends with ?token=...), or send Authorization: Bearer.",
            (b"www-authenticate", b"Bearer"),
        )


def _proof(token: str) -> str:
    """What the cookie holds: it tells the token to nobody, and ends with it."""
    return hmac.new(token.encode(), b"otel-taskhistory cookie", hashlib.sha256).hexdigest()


def _cookies(headers: list[Header], wanted: str) -> list[str]:
    found = []
    for name, value in headers:
        if name != b"cookie":
            continue
        for piece in value.decode("latin-1").split(";"):  # a bad one must not hide the others
            cookie: SimpleCookie = SimpleCookie()
            try:
                cookie.load(piece.strip())
            except CookieError:
                continue
            if wanted in cookie:
                found.append(cookie[wanted].value)
    return found


def _path_of(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "backslashreplace")
    return bytes(raw).decode("latin-1").partition("?")[0]


def _without_token(scope: Scope) -> Scope:
    """The request as Datasette sees it: it has tokens of its own, and must not know ours."""
    headers = [pair for pair in scope["headers"] if bytes(pair[0]).lower() != b"authorization"]
    return {**scope, "headers": headers}


def _with_defaults(send: Send) -> Send:
    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            there = {bytes(name).lower(): bytes(value) for name, value in headers}
            missing = [pair for pair in _DEFAULTS if pair[0] not in there]
            if b"immutable" not in there.get(b"cache-control", b""):
                # Prompts stay out of the browser's files, whatever Datasette says of its pages.
                headers = [pair for pair in headers if bytes(pair[0]).lower() != b"cache-control"]
                missing.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*headers, *missing]}
        await send(message)

    return pass_on


def _said(status: int, message: str, *headers: Header) -> Callable[[Send], Awaitable[None]]:
    return _answer(status, f"{message}\n".encode(), headers)


def _moved(where: str, *headers: Header) -> Callable[[Send], Awaitable[None]]:
    return _answer(303, b"", ((b"location", where.encode("latin-1")), *headers))


def _answer(
    status: int, body: bytes, headers: Iterable[Header]
) -> Callable[[Send], Awaitable[None]]:
    async def answer(send: Send) -> None:
        own = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", PAGE_POLICY.encode()),
            *headers,
        ]
        passed = _with_defaults(send)
        await passed({"type": "http.response.start", "status": status, "headers": own})
        await passed({"type": "http.response.body", "body": body})

    return answer
