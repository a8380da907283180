# SPDX-License-Identifier: Apache-2.0
"""Where spans are posted to: what options and OpenTelemetry's environment variables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.transport.forwarder.endpoint import Endpoint, resolve


def at(url: str | None, *headers: str, **variables: str) -> Endpoint:
    """What these options and variables make."""
    environ = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    return resolve(url, headers, environ=environ)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
        ("https://Collector.Example/otlp/", "https://collector.example/otlp/v1/traces"),
        ("https://example.org:443/v1/traces/", "https://example.org/v1/traces/"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ],
)
def test_the_path_of_traces_is_added_unless_it_is_there(given: str, url: str) -> None:
    """As OpenTelemetry's base endpoint; a whole address is taken as it is."""
    assert at(given).url == url
    assert at(given).name == url


def test_the_option_comes_before_the_environment() -> None:
    """Option, then the variable for traces (a whole address), then the one for all signals."""
    everywhere = {"ENDPOINT": "http://all:4318", "TRACES_ENDPOINT": "http://traces:4318/in"}
    assert at("http://mine:4318", **everywhere).url == "http://mine:4318/v1/traces"
    assert at(None, **everywhere).url == "http://traces:4318/in"
    assert at(None, ENDPOINT="http://all:4318").url == "http://all:4318/v1/traces"
    assert (
        at("", ENDPOINT=" http://all:4318 ", TRACES_ENDPOINT="").url == "http://all:4318/v1/traces"
    )


def test_headers_come_from_both_and_the_option_wins() -> None:
    """Values of the environment are percent-encoded; those for traces replace the others."""
    found = at("http://a", "X-One: 1", "x-two=b=c", HEADERS="x-two=no,X-Three=a%20b, x-four = d ")
    assert found.headers == {"x-one": "1", "x-two": "b=c", "x-three": "a b", "x-four": "d"}
    assert at("http://a", HEADERS="a=1", TRACES_HEADERS="b=2").headers == {"b": "2"}


def test_what_may_be_secret_is_not_in_the_name() -> None:
    """User, password and query; two that differ in their query are two endpoints all the same."""
    one = at("https://me:pass%40word@host/x?key=SECRET1")
    other = at("https://me:pass%40word@host/x?key=SECRET2")
    for found in (one, other):
        assert not {"me", "pass", "SECRET1", "SECRET2"} & set(
            found.name.replace("?", "/").split("/")
        )
        assert "SECRET" not in found.name
        assert "SECRET" not in repr(found).replace(found.url, "")
    assert one.name != other.name
    assert one.url == "https://host/x/v1/traces?key=SECRET1"
    assert one.headers == {"authorization": "Basic bWU6cGFzc0B3b3Jk"}


@pytest.mark.parametrize(
    ("url", "headers", "variables", "said"),
    [
        (None, (), {}, "use --endpoint URL or set OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("localhost:4318", (), {}, "must begin with http://"),
        ("ftp://host", (), {}, "must begin with http://"),
        ("http://", (), {}, "must begin with http://"),
        ("http://host:port", (), {}, "is no URL"),
        ("http://host:99999", (), {}, "is no URL"),
        ("http://[::1", (), {}, "is no URL"),
        ("http://ho st", (), {}, "has a '#', a space"),
        ("http://host/#here", (), {}, "has a '#', a space"),
        (None, (), {"ENDPOINT": "host"}, "OTEL_EXPORTER_OTLP_ENDPOINT must begin"),
        ("http://host", ("authorization",), {}, "must be NAME=VALUE"),
        ("http://host", ("=x",), {}, "a name that no header can have"),
        ("http://host", ("a b=x",), {}, "a name that no header can have"),
        ("http://host", ("a=x\r\nb: y",), {}, "the value of a has characters"),
        ("http://host", ("a=x\N{SNOWMAN}",), {}, "the value of a has characters"),
        ("http://host", ("Content-Type=text/plain",), {}, "content-type is not yours"),
        ("http://host", (), {"HEADERS": "nothing"}, "must be NAME=VALUE"),
        ("http://host", (), {"COMPRESSION": "brotli"}, "must be gzip or none"),
        ("http://host", (), {"CERTIFICATE": "/no/such/file"}, "there is no certificate"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_sentence(
    url: str | None, headers: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    """Cause and next move."""
    with pytest.raises(SettingsError, match=said) as error:
        at(url, *headers, **variables)
    assert "\n" not in str(error.value)


def test_secret_values_are_in_no_message() -> None:
    """What is wrong with a header is told without its value."""
    with pytest.raises(SettingsError) as error:
        at("http://host", "authorization=Bearer MARKER\x01")
    assert "MARKER" not in str(error.value)


def test_compression_and_certificates(tmp_path: Path) -> None:
    """Gzip unless something else is said; files of certificates must be there."""
    file = tmp_path / "ca.pem"
    file.write_text("")
    assert at("http://a").compression == "gzip"
    assert at("http://a", COMPRESSION="NONE").compression == "none"
    said: dict[str, Any] = {"compression": "none", "environ": {}}
    assert resolve("http://a", **said).compression == "none"
    found = at("https://a", CERTIFICATE=str(file), CLIENT_CERTIFICATE=str(file))
    assert (found.ca_file, found.client) == (str(file), (str(file), str(file)))
    assert at("http://a:4317").seems_grpc
