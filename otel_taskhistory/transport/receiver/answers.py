# SPDX-License-Identifier: Apache-2.0
"""What senders are answered: OTLP's responses and ``google.rpc.Status``, in the form they sent.

Both messages are a number in field 1 and a text in field 2, which is all of protobuf that is
needed here. Texts hold nothing of what was sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

Form = Literal["json", "protobuf"]

MEDIA_TYPES: Final[dict[Form, str]] = {
    "json": "application/json",
    "protobuf": "application/x-protobuf",
}

_CODES: Final = {
    400: 3,  # INVALID_ARGUMENT
    401: 16,  # UNAUTHENTICATED
    403: 7,  # PERMISSION_DENIED
    404: 12,  # UNIMPLEMENTED
    405: 12,
    408: 4,  # DEADLINE_EXCEEDED
    413: 3,
    415: 3,
    421: 7,
    503: 14,  # UNAVAILABLE
}
_INTERNAL: Final = 13


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP. 503 and its like are tried again by senders, the others are not.
        message: one sentence: what is wrong, and what to do.
        headers: further ones.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


def busy(message: str, seconds: int) -> Refused:
    """Not now: senders that go by the specification come again after so many seconds."""
    return Refused(503, message, {"retry-after": str(seconds)})


@dataclass(frozen=True, slots=True)
class Signal:
    """One of the things that can be sent."""

    path: str
    around: str
    """The field of the request that holds it."""
    noun: str
    rejected: str
    """The field of the response that counts what was not kept."""


SPANS: Final = Signal("/v1/traces", "resourceSpans", "span", "rejectedSpans")
LOGS: Final = Signal("/v1/logs", "resourceLogs", "log record", "rejectedLogRecords")
SIGNALS: Final = (SPANS, LOGS)


def success(form: Form, signal: Signal, rejected: int, message: str) -> bytes:
    """An ``ExportTraceServiceResponse`` or ``ExportLogsServiceResponse``.

    Args:
        form: how it is written.
        signal: what was sent.
        rejected: how many were not kept, and need not be sent again.
        message: why; or what else there is to say when all were kept; empty when nothing is.
    """
    if not rejected and not message:
        return b"{}" if form == "json" else b""
    if form == "json":
        # 64-bit numbers are text in JSON.
        partial = {signal.rejected: str(rejected), "errorMessage": message}
        return _json({"partialSuccess": partial})
    return _field(1, _message(rejected, message))


def failure(form: Form, status: int, message: str) -> bytes:
    """A ``google.rpc.Status``."""
    code = _CODES.get(status, _INTERNAL)
    if form == "json":
        return _json({"code": code, "message": message})
    return _message(code, message)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _message(number: int, text: str) -> bytes:
    first = b"\x08" + _varint(number) if number else b""
    return first + (_field(2, text.encode()) if text else b"")


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
