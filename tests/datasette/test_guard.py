# SPDX-License-Identifier: Apache-2.0
"""Who gets an answer: by name, by token, by method; told by the ASGI application alone."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory.datasette_plugin.guard import Guard
from otel_taskhistory.datasette_plugin.server import Place
from otel_taskhistory.errors import TaskHistoryError

TOKEN = "a-token-of-some-length"


class Inside:
    """The application behind the guard; remembers what reached it."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.headers = headers
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        headers = [(b"etag", b"x"), *self.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"inside"})


async def ask(
    guard: Guard,
    path: str = "/history",
    *,
    method: str = "GET",
    query: str = "",
    host: str | None = "localhost:8001",
    headers: tuple[tuple[str, str], ...] = (),
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    given = [("host", host)] * (host is not None) + list(headers)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given],
    }
    await guard(scope, receive, send)
    start = sent[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(message["body"] for message in sent[1:])


def guard(
    inside: Inside,
    token: str | None = None,
    names: tuple[str, ...] = (),
    *,
    elsewhere: bool = False,
) -> Guard:
    """A guard as `serve` makes it."""
    return Guard(
        inside,
        names=["localhost", "127.0.0.1", *names],
        any_address=elsewhere,
        token=token,
        cookie="otel-taskhistory-8001",
        start="/-/taskhistory/",
    )


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8001",
        "LOCALHOST.:9000",
        "127.0.0.1:8001",
        "127.0.0.2",
        "[::1]:8001",
        "box.test",
    ],
)
async def test_names_of_this_machine_get_an_answer(host: str) -> None:
    """With any port: there may be a tunnel in between."""
    inside = Inside()
    assert (await ask(guard(inside, names=("Box.test",)), host=host))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8001",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "evil.example\\@localhost",
        "localhost:8001:8001",
        "localhost evil.example",
        "8.8.8.8",
        "[2001:db8::1]",
        "[::1",
        "[localhost]",
        "0.0.0.0",
        "2130706433",
    ],
)
async def test_other_names_get_none(host: str | None) -> None:
    """Nothing of the request reaches the application, whatever the path."""
    inside = Inside()
    for path in ("/", "/history", "/-/taskhistory/"):
        status, headers, _ = await ask(guard(inside), path, host=host)
        assert status == 421
        assert "set-cookie" not in headers
    assert inside.scopes == []


async def test_two_host_headers_are_none() -> None:
    """What a proxy and what we look at could differ."""
    inside = Inside()
    headers = (("host", "evil.example"),)
    assert (await ask(guard(inside), headers=headers))[0] == 421


async def test_elsewhere_addresses_do_but_names_do_not() -> None:
    """Nobody can make an address point to another machine."""
    inside = Inside()
    outside = guard(inside, elsewhere=True, names=("box.test",))
    for host in ("192.0.2.7:8001", "[2001:db8::1]:8001", "box.test"):
        assert (await ask(outside, host=host))[0] == 200
    assert (await ask(outside, host="evil.example"))[0] == 421


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"]
)
async def test_only_reading_gets_through(method: str) -> None:
    """No form, no API of Datasette that writes, whoever asks."""
    inside = Inside()
    status, headers, _ = await ask(guard(inside), method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert inside.scopes == []


async def test_without_token_nothing_gets_through() -> None:
    """Neither with none, nor with a wrong one, wherever it is shown."""
    inside = Inside()
    closed = guard(inside, TOKEN)
    for query in ("", "token=", "token=wrong", f"token={TOKEN}x", f"token={TOKEN[:-1]}", "token=é"):
        status, headers, _ = await ask(closed, query=query)
        assert status == 401
        assert "set-cookie" not in headers
    for name, value in (
        ("authorization", "Bearer wrong"),
        ("authorization", f"Basic {TOKEN}"),
        ("authorization", "Bearer"),
        ("authorization", "Bearer \xe9"),
        ("cookie", f"otel-taskhistory-8001={TOKEN}"),
        ("cookie", "otel-taskhistory-8001="),
        ("cookie", "otel-taskhistory-9999=wrong"),
        ("cookie", "=;;;\xe9"),
    ):
        assert (await ask(closed, headers=((name, value),)))[0] == 401
    assert inside.scopes == []


async def test_a_token_in_the_address_becomes_a_cookie() -> None:
    """It is gone from the address; the cookie is no token, is for HTTP only, and is enough."""
    inside = Inside()
    closed = guard(inside, TOKEN)
    status, headers, _ = await ask(closed, "/history/tasks", query=f"a=1&token={TOKEN}&b=%26")
    assert (status, headers["location"]) == (303, "/history/tasks?a=1&b=%26")
    cookie = headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert inside.scopes == []
    pair = cookie.partition(";")[0]
    for given in (pair, f"other=1; {pair}; x", f"bad\xe9;=;{pair}"):
        assert (await ask(closed, headers=(("cookie", given),)))[0] == 200
    assert (await ask(guard(inside, f"{TOKEN}2"), headers=(("cookie", pair),)))[0] == 401


async def test_a_token_never_sends_somebody_elsewhere() -> None:
    """Whatever the path looks like."""
    for path in ("//evil.example/x", "/\\evil.example", "///", "/%2f%2fevil.example"):
        status, headers, _ = await ask(guard(Inside(), TOKEN), path, query=f"token={TOKEN}")
        assert status == 303
        assert headers["location"].startswith("/")
        assert not headers["location"].startswith(("//", "/\\"))


async def test_programs_may_send_the_token_as_a_header() -> None:
    """Datasette, which has tokens of its own, does not see it."""
    inside = Inside()
    headers = (("authorization", f"bearer {TOKEN}"), ("accept", "text/html"))
    assert (await ask(guard(inside, TOKEN), headers=headers))[0] == 200
    names = [name for name, _ in inside.scopes[0]["headers"]]
    assert names == [b"host", b"accept"]


async def test_the_start_leads_to_the_task_list_and_needs_the_token_too() -> None:
    """``/`` is no page."""
    status, headers, _ = await ask(guard(Inside()), "/")
    assert (status, headers["location"]) == (303, "/-/taskhistory/")
    assert (await ask(guard(Inside(), TOKEN), "/"))[0] == 401


async def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    """Ours and Datasette's; what an answer says itself stays."""
    for path in ("/", "/history"):
        _, headers, _ = await ask(guard(Inside()), path)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


async def test_only_what_never_changes_is_kept_by_a_browser() -> None:
    """Whatever Datasette says of its own pages; and a policy of our own pages stays."""
    for given, wanted in (
        (b"no-cache", "no-store"),
        (b"max-age=60", "no-store"),
        (b"private, max-age=31536000, immutable", "private, max-age=31536000, immutable"),
    ):
        inside = Inside((b"Cache-Control", given), (b"Content-Security-Policy", b"sandbox"))
        _, headers, _ = await ask(guard(inside))
        kept = [value for name, value in headers.items() if name.lower() == "cache-control"]
        assert kept == [wanted]
        policies = [v for name, v in headers.items() if name.lower() == "content-security-policy"]
        assert policies == ["sandbox"]


async def test_a_websocket_is_closed() -> None:
    """There is none here."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    inside = Inside()
    await guard(inside)({"type": "websocket", "headers": []}, send, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert inside.scopes == []


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("box.test", False),
        ("", False),
    ],
)
def test_elsewhere_than_on_this_machine_a_token_is_needed(host: str, loopback: bool) -> None:
    """A random one of many bits, when none is given; a given one is used in both cases."""
    place = Place(host)
    assert place.is_loopback == loopback
    one, other = place.wanted_token(), place.wanted_token()
    if loopback:
        assert one is None
    else:
        assert one != other
        assert len(one or "") >= 40
    assert Place(host, token=TOKEN).wanted_token() == TOKEN


def test_a_token_that_can_be_guessed_is_refused() -> None:
    """Also an empty one; and it is not in what is printed of a place."""
    for token in ("", "short", "x" * 15):
        with pytest.raises(TaskHistoryError, match="can be guessed"):
            Place(token=token)
    assert TOKEN not in repr(Place(token=TOKEN))
