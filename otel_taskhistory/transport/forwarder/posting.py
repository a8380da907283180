# SPDX-License-Identifier: Apache-2.0
"""One request to an OTLP/HTTP endpoint, and what its answer means for what was sent.

An answer counts as an acknowledgement only when it is one: a page that some web server shows for
any address is not, and neither is a redirect. Nothing an endpoint answers is trusted: it is read up
to a limit and for a limited time, and what it says is shown on one line, cut short.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from otel_taskhistory._version import __version__
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.text import one_line
from otel_taskhistory.transport.forwarder.endpoint import Endpoint

if TYPE_CHECKING:
    import requests

LONGEST_WAIT: Final = 300.0
"""Seconds that an endpoint is given at most when it asks for time."""

_PROTOBUF: Final = "application/x-protobuf"
_JSON: Final = "application/json"
_LONGEST_ANSWER: Final = 64 * 1024
_PIECE: Final = 4096
_LEVEL: Final = 6
_LONGEST_MESSAGE: Final = 200

_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})
_DENIED: Final = frozenset({401, 403, 407})
_NOWHERE: Final = frozenset({404, 405, 410, 501})
_TOO_LARGE: Final = 413
_WRONG_TYPE: Final = 415


class Kind(Enum):
    """What is to be done after an answer."""

    ACCEPTED = "it has arrived"
    LATER = "try again later: the endpoint or the way to it is not available"
    BROKEN = "likewise, but what was sent may be the reason"
    REFUSED = "the endpoint does not want what was sent"
    WRONG = "nothing can arrive there until somebody changes a setting"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request.

    Attributes:
        kind: what to do now.
        why: one sentence without a full stop, for people; empty when it was accepted.
        wait: seconds that the endpoint asks for, if it does.
        rejected: spans of an accepted request that the endpoint did not keep.
        message: what it says about those.
    """

    kind: Kind
    why: str = ""
    wait: float | None = None
    rejected: int = 0
    message: str = ""


class Poster:
    """Posts to one endpoint over connections that are kept; `close` at the end.

    Args:
        endpoint: where to.
        timeout: seconds for connecting, and for each thing the endpoint does after that.
        clock: the time of the machine.

    Raises:
        TaskHistoryError: the HTTP client is not installed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        timeout: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        try:
            import requests
        except ImportError as error:
            raise TaskHistoryError(
                "forwarding needs an HTTP client: pip install 'otel-taskhistory[otlp]'"
            ) from error
        self._endpoint = endpoint
        self._timeout = timeout
        self._clock = clock
        self._session = requests.Session()
        # Else a ~/.netrc would replace an Authorization header that was given.
        self._session.auth = _as_it_is
        self._session.headers.clear()
        self._session.headers.update(endpoint.headers)
        self._session.headers["accept"] = f"{_PROTOBUF}, {_JSON}"
        self._session.headers["content-type"] = _PROTOBUF
        self._session.headers.setdefault("user-agent", f"otel-taskhistory/{__version__}")
        self._zips = endpoint.compression == "gzip"
        if self._zips:
            self._session.headers["content-encoding"] = "gzip"

    def close(self) -> None:
        """End the connections."""
        self._session.close()

    def post(self, body: bytes) -> Answer:
        """Send one request, compressed as the endpoint wants it; raises nothing it can answer."""
        import requests

        endpoint = self._endpoint
        try:
            with self._session.post(
                endpoint.url,
                data=gzip.compress(body, _LEVEL, mtime=0) if self._zips else body,
                timeout=self._timeout,
                allow_redirects=False,  # a redirected POST would become a GET
                stream=True,
                verify=endpoint.ca_file or True,
                cert=endpoint.client,
            ) as response:
                return self._answer(response, _read(response, self._timeout))
        except requests.exceptions.SSLError as error:
            return _of_tls(str(error))
        except requests.exceptions.RequestException as error:
            return self._of_error(error)
        except OSError as error:  # a certificate file that cannot be read
            return Answer(Kind.WRONG, f"a certificate cannot be used ({type(error).__name__})")

    def _of_error(self, error: requests.exceptions.RequestException) -> Answer:
        from requests import exceptions

        # None of their texts is shown as it is: they hold the whole URL.
        if isinstance(error, exceptions.ProxyError):
            return Answer(Kind.LATER, "the proxy of this machine does not lead there")
        if isinstance(error, exceptions.ConnectTimeout):
            return Answer(Kind.LATER, f"it does not answer within {self._timeout:g} s")
        if isinstance(error, exceptions.Timeout):
            return Answer(
                Kind.LATER, f"it took the request and then said nothing for {self._timeout:g} s"
            )
        if isinstance(
            error,
            exceptions.InvalidURL
            | exceptions.InvalidSchema
            | exceptions.MissingSchema
            | exceptions.InvalidHeader
            | exceptions.InvalidProxyURL,
        ):
            return Answer(Kind.WRONG, f"no request can be made of it ({type(error).__name__})")
        why = _reason(str(error))
        if self._endpoint.seems_grpc:
            why += "; at port 4317 collectors speak gRPC, OTLP/HTTP is at 4318"
        return Answer(Kind.LATER, why)

    def _answer(self, response: requests.Response, body: bytes | None) -> Answer:
        status = response.status_code
        if 200 <= status < 300:
            return _of_success(response.headers.get("content-type", ""), body)
        said = _said(response.headers.get("content-type", ""), body)
        what = f"it answered {status}{said}"
        if 300 <= status < 400:
            return Answer(Kind.WRONG, f"{what}, a redirect: use the address that it leads to")
        if status in _DENIED:
            return Answer(
                Kind.WRONG,
                f"{what}: give it credentials it knows (--header authorization=…, or"
                " OTEL_EXPORTER_OTLP_HEADERS)",
            )
        if status in _NOWHERE:
            return Answer(Kind.WRONG, f"{what}: OTLP/HTTP is not spoken there, look at the address")
        if status == _WRONG_TYPE:
            return Answer(
                Kind.WRONG,
                f"{what}: it does not take OTLP as protobuf, or only uncompressed (--compression"
                " none)",
            )
        if status in _LATER:
            return Answer(Kind.LATER, what, wait=self._wait(response))
        if status == _TOO_LARGE:
            return Answer(Kind.REFUSED, f"{what}: too large for it")
        if status >= 500:
            return Answer(Kind.BROKEN, what, wait=self._wait(response))
        return Answer(Kind.REFUSED, what)

    def _wait(self, response: requests.Response) -> float | None:
        asked = response.headers.get("retry-after", "").strip()
        # Counted by its own clock where it says what time it is: ours may be another.
        now = _date(response.headers.get("date", "")) or self._clock()
        return retry_after(asked, now)


def retry_after(asked: str, now: datetime) -> float | None:
    """Seconds to wait by a ``Retry-After`` header, at most `LONGEST_WAIT`; None when it says none.

    Args:
        asked: seconds, or a date as HTTP has it.
        now: by the clock of whoever asked.
    """
    try:
        seconds = float(asked)
    except ValueError:
        until = _date(asked)
        if until is None:
            return None
        seconds = (until - now).total_seconds()
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _read(response: requests.Response, timeout: float) -> bytes | None:
    """The body of an answer; None when it is too long, or takes too long."""
    until = time.monotonic() + timeout
    body = b""
    for piece in response.iter_content(_PIECE):
        body += piece
        if len(body) > _LONGEST_ANSWER or time.monotonic() > until:
            return None
    return body


def _of_success(content_type: str, body: bytes | None) -> Answer:
    media = content_type.partition(";")[0].strip().lower()
    no_otlp = f"it answered with {one_line(media)[:60] or 'something'} that is no answer of OTLP"
    wrong = Answer(Kind.WRONG, f"{no_otlp}: look at the address")
    if body is None:
        return wrong
    try:
        if media == _PROTOBUF:
            rejected, message = _of_protobuf(body)
        elif media == _JSON and body.strip():
            rejected, message = _of_json(body)
        elif not body.strip() and media != "text/html":
            rejected, message = 0, ""  # some endpoints say no more than 200
        else:
            return wrong
    except ValueError:
        return wrong
    return Answer(Kind.ACCEPTED, rejected=max(rejected, 0), message=_shown(message))


def _of_protobuf(body: bytes) -> tuple[int, str]:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceResponse,
    )

    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError as error:
        raise ValueError("no answer of OTLP") from error
    return partial.rejected_spans, partial.error_message


def _of_json(body: bytes) -> tuple[int, str]:
    try:
        document = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("no answer of OTLP")
    partial = document.get("partialSuccess") or document.get("partial_success") or {}
    if not isinstance(partial, dict):
        raise ValueError("no answer of OTLP")
    rejected = partial.get("rejectedSpans") or partial.get("rejected_spans") or 0
    message = partial.get("errorMessage") or partial.get("error_message") or ""
    # A 64-bit number is text in OTLP/JSON.
    return int(rejected) if isinstance(rejected, int | str) else 0, str(message)


def _said(content_type: str, body: bytes | None) -> str:
    """What an answer that is no success says of its reason, for people."""
    media = content_type.partition(";")[0].strip().lower()
    message = ""
    if body and media == _PROTOBUF:
        message = _status_message(body)
    elif body and media == _JSON:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            found = (document.get(name) for name in ("message", "detail", "error", "title"))
            message = next((_as_text(value) for value in found if value), "")
    elif body and media == "text/plain":
        message = body.decode("utf-8", "replace")
    message = _shown(message)
    return f' ("{message}")' if message else ""


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _status_message(body: bytes) -> str:
    from google.protobuf.message import DecodeError
    from google.rpc.status_pb2 import Status

    try:
        return str(Status.FromString(body).message)
    except DecodeError:
        return ""


def _shown(message: str) -> str:
    text = one_line(message).strip().replace('"', "'")
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _of_tls(text: str) -> Answer:
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Answer(
            Kind.WRONG,
            f"its certificate is not trusted ({_verify(text)}): use the name it is made for, or"
            " give the CA's certificate by --ca-file",
        )
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text:
        return Answer(Kind.WRONG, "it does not speak TLS: use http:// instead of https://")
    if ("ALERT" in text and "CERTIFICATE" in text) or "HANDSHAKE_FAILURE" in text:
        return Answer(
            Kind.WRONG,
            "it wants another certificate from us (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE) or"
            " another version of TLS",
        )
    return Answer(Kind.LATER, "the connection broke off while TLS began")


def _verify(text: str) -> str:
    _, _, after = text.partition("certificate verify failed: ")
    return one_line(after.partition("(_ssl")[0]).strip(" .")[:100] or "unknown reason"


def _reason(text: str) -> str:
    """Why there was no connection, of what libraries say in many words."""
    for sign, why in (
        ("NameResolutionError", "its name cannot be resolved"),
        ("Connection refused", "nothing listens there"),
        ("Network is unreachable", "the network cannot be reached"),
        ("No route to host", "there is no way to it"),
        ("IncompleteRead", "the connection broke off within its answer"),
        ("RemoteDisconnected", "it closed the connection without an answer"),
        ("Connection reset", "it broke the connection off"),
        ("Broken pipe", "it broke the connection off"),
    ):
        if sign in text:
            return why
    return "the connection failed"
