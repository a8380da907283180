# SPDX-License-Identifier: Apache-2.0
"""Where spans are posted to: an address, headers and certificates, from options and environment.

What OpenTelemetry's own exporters understand is understood in the same way:
``OTEL_EXPORTER_OTLP_ENDPOINT`` (``/v1/traces`` is added), ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``
(as it is), ``…_HEADERS``, ``…_COMPRESSION``, ``…_CERTIFICATE``, ``…_CLIENT_CERTIFICATE``,
``…_CLIENT_KEY``; of two that say the same the one for traces counts.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from otel_taskhistory.errors import SettingsError

Compression = Literal["gzip", "none"]

COMPRESSIONS: Final[tuple[Compression, ...]] = ("gzip", "none")

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
ENV_ENDPOINT: Final = f"{PREFIX}ENDPOINT"
ENV_HEADERS: Final = f"{PREFIX}HEADERS"

_PATH: Final = "/v1/traces"
_GRPC_PORT: Final = 4317
_PORTS: Final = {"http": 80, "https": 443}

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS: Final = frozenset({"content-type", "content-encoding", "content-length", "host"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to post, and how.

    Attributes:
        url: the whole address, without user and password.
        name: the same without anything that may be secret; it tells this endpoint from others,
            and is what people are shown.
        headers: to be sent with each request.
        compression: of what is sent.
        ca_file: certificates to trust instead of the usual ones.
        client: certificate and key to show, as files.
    """

    url: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    compression: Compression = "gzip"
    ca_file: str | None = None
    client: tuple[str, str] | None = None

    @property
    def seems_grpc(self) -> bool:
        """Whether the port is the one at which collectors speak gRPC."""
        return urlsplit(self.url).port == _GRPC_PORT


def resolve(
    url: str | None,
    headers: Iterable[str] = (),
    *,
    compression: Compression | None = None,
    ca_file: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """Decide where to send: option, else environment.

    Args:
        url: where OTLP/HTTP is spoken; ``/v1/traces`` is added unless it ends so.
        headers: ``NAME=VALUE`` or ``NAME: VALUE``, beside those of the environment.
        compression: by default that of the environment, else gzip.
        ca_file: by default that of the environment.
        environ: where ``OTEL_EXPORTER_OTLP_*`` are looked up; the process's own by default.

    Raises:
        SettingsError: there is no endpoint, or something makes no sense. Says no value that may be
            secret.
    """
    env = os.environ if environ is None else environ
    split, user = _address(url, env)
    all_headers = user | _headers_of_environment(env) | dict(map(_header, headers))
    return Endpoint(
        url=urlunsplit(split),
        name=_name(split),
        headers=all_headers,
        compression=compression or _compression(env),
        ca_file=_file(ca_file or _of(env, "CERTIFICATE"), "certificate"),
        client=_client(env),
    )


def _of(env: Mapping[str, str], what: str) -> str | None:
    """A variable of OpenTelemetry's, that for traces first; an empty one is none."""
    return (
        env.get(f"{PREFIX}TRACES_{what}", "").strip()
        or env.get(f"{PREFIX}{what}", "").strip()
        or None
    )


def _address(url: str | None, env: Mapping[str, str]) -> tuple[SplitResult, dict[str, str]]:
    """The address without user and password, and the header that these make."""
    given, whole, source = (url or "").strip(), False, "--endpoint"
    if not given:
        given, whole = env.get(f"{PREFIX}TRACES_ENDPOINT", "").strip(), True
        source = f"{PREFIX}TRACES_ENDPOINT"
    if not given:
        given, whole, source = env.get(ENV_ENDPOINT, "").strip(), False, ENV_ENDPOINT
    if not given:
        raise SettingsError(
            f"nobody said where to send to: use --endpoint URL or set {ENV_ENDPOINT}, e.g. to"
            " http://127.0.0.1:4318"
        )
    try:
        split = urlsplit(given)
        port = split.port
    except ValueError as error:
        raise SettingsError(f"{source} is no URL ({error}): use e.g. https://host:4318") from None
    if split.scheme not in _PORTS or not split.hostname:
        raise SettingsError(
            f"{source} must begin with http:// or https:// and name a host, e.g."
            " http://127.0.0.1:4318"
        )
    if split.fragment or re.search(r"[\x00-\x20\x7f]", given):
        raise SettingsError(
            f"{source} has a '#', a space or a control character in it: leave that out"
        )
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    if port is not None and port != _PORTS[split.scheme]:
        host = f"{host}:{port}"
    path = split.path
    if not whole and not path.rstrip("/").endswith(_PATH):
        path = path.rstrip("/") + _PATH
    user: dict[str, str] = {}
    if split.username is not None:
        pair = f"{unquote(split.username)}:{unquote(split.password or '')}"
        user["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return SplitResult(split.scheme, host, path or "/", split.query, ""), user


def _name(split: SplitResult) -> str:
    """The address; what is behind a question mark may be a key, so only a digest of it."""
    name = urlunsplit(split._replace(query=""))
    if split.query:
        name += "?" + hashlib.sha256(split.query.encode()).hexdigest()[:8]
    return name


def _headers_of_environment(env: Mapping[str, str]) -> dict[str, str]:
    """``name=value,name=value``, percent-encoded, as OpenTelemetry has it."""
    found: dict[str, str] = {}
    for part in (_of(env, "HEADERS") or "").split(","):
        if part.strip():
            name, equals, value = part.partition("=")
            if not equals:
                raise SettingsError(
                    f"{ENV_HEADERS} must be NAME=VALUE, several with commas in between"
                )
            name, value = _checked(unquote(name.strip()), unquote(value.strip()), ENV_HEADERS)
            found[name] = value
    return found


def _header(text: str) -> tuple[str, str]:
    found = re.search(r"[=:]", text)
    if found is None:
        raise SettingsError("--header must be NAME=VALUE, e.g. --header authorization='Bearer …'")
    return _checked(text[: found.start()].strip(), text[found.end() :].strip(), "--header")


def _checked(name: str, value: str, source: str) -> tuple[str, str]:
    name = name.lower()
    if not _HEADER_NAME.fullmatch(name):
        raise SettingsError(
            f"{source} has a name that no header can have: use letters, digits and -"
        )
    if not _HEADER_VALUE.fullmatch(value):
        raise SettingsError(f"{source}: the value of {name} has characters that no header can have")
    if name in _OURS:
        raise SettingsError(f"{source}: {name} is not yours to set, leave it out")
    return name, value


def _compression(env: Mapping[str, str]) -> Compression:
    given = (_of(env, "COMPRESSION") or "gzip").lower()
    for known in COMPRESSIONS:
        if given == known:
            return known
    raise SettingsError(f"{PREFIX}COMPRESSION must be gzip or none, not {given!r}")


def _file(path: str | None, what: str) -> str | None:
    if path is not None and not Path(path).exists():
        raise SettingsError(f"there is no {what} at {path}")
    return path


def _client(env: Mapping[str, str]) -> tuple[str, str] | None:
    certificate = _file(_of(env, "CLIENT_CERTIFICATE"), "client certificate")
    key = _file(_of(env, "CLIENT_KEY"), "client key")
    if certificate is None:
        return None
    return certificate, key or certificate
