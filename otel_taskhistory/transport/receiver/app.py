# SPDX-License-Identifier: Apache-2.0
"""The endpoint as an ASGI application: who may send, where to, and what is answered.

Web pages cannot send here: a request that a browser makes for a page says so (Origin), and what a
page may send without asking first is of none of our types; asking (OPTIONS) is not answered.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from otel_taskhistory.transport.access import Names, bearers, same
from otel_taskhistory.transport.receiver import body as bodies
from otel_taskhistory.transport.receiver.answers import (
    MEDIA_TYPES,
    SIGNALS,
    Form,
    Refused,
    Signal,
    failure,
    success,
)
from otel_taskhistory.transport.receiver.intake import Intake

_logger = logging.getLogger("otel_taskhistory")

PATHS: Final = frozenset(signal.path for signal in SIGNALS)

_DRAINED_SECONDS: Final = 3.0
"""A sender that is still sending when it is answered gets so long to notice: most read the answer
only after that, and a connection that is closed before is an error to them, without a reason."""


class Endpoint:
    """ASGI: takes what may be sent.

    Args:
        intake: where to.
        names: by which one may call this machine.
        token: what a request must show as ``Authorization: Bearer``; None when there is no need to.
    """

    def __init__(self, intake: Intake, *, names: Names, token: str | None) -> None:
        self._intake = intake
        self._names = names
        self._token = token
        routes = [
            Route(signal.path, self._endpoint(signal), methods=["POST"]) for signal in SIGNALS
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _not_here})
        app.router.redirect_slashes = False
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            refused = self._refused(scope["headers"])
            if refused is not None:
                await _refusal(Request(scope), refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refused(self, headers: Iterable[tuple[bytes, bytes]]) -> Refused | None:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in headers]
        if not self._names.meant_by(headers):
            return Refused(
                421,
                "this receiver does not answer to that name: use the address that it has printed,"
                " or tell it the name with --allow-host",
            )
        if any(name == b"origin" for name, _ in headers):
            return Refused(403, "web pages cannot send here")
        wanted = self._token
        if wanted is not None and not any(same(given, wanted) for given in bearers(headers)):
            return Refused(
                401,
                "this receiver needs its token: OTEL_EXPORTER_OTLP_HEADERS="
                "authorization=Bearer%20TOKEN",
                {"www-authenticate": "Bearer"},
            )
        return None

    def _endpoint(self, signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            try:
                form = _form_of(request)
                batch = await self._intake.take(request, form, signal)
            except Refused as refused:
                return _refusal(request, refused)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody gets it
            except Exception as error:
                # Its text may quote what was sent, which belongs into no log.
                _logger.error(  # noqa: TRY400
                    "otel-taskhistory: a request could not be taken (%s at %s)",
                    type(error).__name__,
                    _place_of(error),
                )
                return _refusal(request, Refused(500, "internal error; see the receiver's log"))
            body = success(form, signal, batch.rejected, batch.message)
            return Response(body, media_type=MEDIA_TYPES[form])

        return take


class _Parting(Response):
    """An answer to a request of which the rest is not wanted; the connection ends with it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer at once, and let the sender finish what it is about."""
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        if not any(name == b"expect" for name, _ in scope["headers"]):  # it has not begun
            try:
                async with asyncio.timeout(_DRAINED_SECONDS):
                    while (await receive()).get("more_body"):
                        pass
            except TimeoutError:
                pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _form_of(request: Request) -> Form:
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    for form, media_type in MEDIA_TYPES.items():
        if said == media_type:
            return form
    raise Refused(
        415,
        "this Content-Type is not understood here: use application/x-protobuf or application/json",
    )


def _refusal(request: Request, refused: Refused) -> Response:
    """An error in the form of the request; one that cannot be told is answered in JSON."""
    try:
        form = _form_of(request)
    except Refused:
        form = "json"
    text, headers = failure(form, refused.status, refused.message), refused.headers
    if bodies.is_read(request):
        return Response(text, refused.status, headers, MEDIA_TYPES[form])
    kind = Response if refused.status == 408 else _Parting
    return kind(text, refused.status, {**headers, "connection": "close"}, MEDIA_TYPES[form])


async def _not_here(request: Request, error: Exception) -> Response:
    """Another path, or another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refused = Refused(405, "spans are sent by POST", {"allow": "POST"})
    else:
        where = " and ".join(sorted(PATHS))
        refused = Refused(404, f"only {where} are here: metrics and the like are not kept")
    return _refusal(request, refused)


def _place_of(error: BaseException) -> str:
    """Where an exception was raised: module and line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"
