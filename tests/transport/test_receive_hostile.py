# SPDX-License-Identifier: Apache-2.0
"""``receive`` when senders are careless or mean harm: it answers others, and stays small."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="an extra")

from tests.processes import check

from .receiving import (
    JSON,
    PROTOBUF,
    Receiver,
    answered,
    connected,
    head,
    known,
    request,
    span,
    trace_id,
)

MIB = 2**20
LIMIT = 8 * MIB
ROOM = 48 * MIB
"""What may be needed for a while; the bombs hold hundreds of times as much."""


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One that has been used, and is told to be impatient and to take less than usual."""
    options = ("--timeout", "1", "--max-body", "4MiB", "--max-decompressed", "8MiB")
    with Receiver(tmp_path_factory.mktemp("hostile") / "history", *options) as running:
        assert running.post(request(span(trace_id(), 1))).status == 200
        yield running
        status, errors = running.end()
        assert status == 0
        assert "Traceback" not in errors
        check(running.directory)


@pytest.fixture(autouse=True)
def still_well(receiver: Receiver) -> Iterator[None]:
    """After each of these tests the next sender is served, and its spans are there."""
    yield
    trace = trace_id()
    assert receiver.post(request(span(trace, 1))).status == 200
    assert (trace, f"{1:016x}") in known(receiver.directory)


def megabytes_of_zeros(number: int) -> bytes:
    """So many MiB of gzip, in members of 64 MiB, made without holding them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    member = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    return member * (number // 64)


def test_a_bomb_costs_no_memory(receiver: Receiver) -> None:
    """A gigabyte in one megabyte: given up on at the limit, whatever it holds."""
    bombs = [
        megabytes_of_zeros(1024),
        gzip.compress(b'{"resourceSpans": [' + b" " * (100 * MIB)),
    ]
    receiver.forget_peak()
    before = receiver.memory()
    for bomb in bombs:
        answer = receiver.post(bomb, Content_Encoding="gzip")
        assert (answer.status, answer.json["code"]) == (413, 3)
        assert "--max-decompressed" in answer.json["message"]
    assert receiver.post(zlib.compress(bytes(100 * MIB)), Content_Encoding="deflate").status == 413
    assert receiver.memory() - before < 2 * MIB + max(map(len, bombs))


def test_a_bomb_of_many_members_ends_soon(receiver: Receiver) -> None:
    """Each empty part of a gzip body costs time, and holds nothing."""
    answer = receiver.post(gzip.compress(b"") * 100_000, Content_Encoding="gzip")
    assert answer.status == 400


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"resourceSpans": [' + b"{}," * (2 * MIB) + b"{}]}", JSON),
        (b'{"resourceSpans": ' + b"[" * (7 * MIB), JSON),
        (b'{"a":' * MIB, JSON),
        (b'{"x": "' + b'\\"' * (3 * MIB) + b"," * MIB, JSON),
        (b"\x0a\x80\x80\x80\x02" + b"\x12\x00" * (2 * MIB), PROTOBUF),
    ],
    ids=["objects", "brackets", "names", "one text", "scopes"],
)
def test_a_body_of_too_many_values_is_not_parsed(
    receiver: Receiver, body: bytes, kind: str
) -> None:
    """A value of two bytes would become an object of a hundred."""
    receiver.forget_peak()
    before = receiver.memory()
    packed = gzip.compress(body)
    answer = receiver.post(packed, Content_Encoding="gzip", Content_Type=kind)
    assert answer.status in (400, 413)
    assert receiver.memory() - before < ROOM


def test_commas_in_texts_are_no_values(receiver: Receiver) -> None:
    """A long prompt may be full of them."""
    trace = trace_id()
    body = json.dumps(request(span(trace, 1, name='"{[,' * MIB))).encode()
    assert receiver.post(gzip.compress(body), Content_Encoding="gzip").status == 200
    assert (trace, f"{1:016x}") in known(receiver.directory)


def test_what_is_announced_as_too_large_is_not_waited_for(receiver: Receiver) -> None:
    """The answer comes before the body, and says what to do."""
    with connected(receiver.port, head(10**12)) as connection:
        answer = answered(connection)
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert "--max-body" in answer.json["message"]


def test_what_was_not_announced_is_given_up_on_when_it_is_too_large(receiver: Receiver) -> None:
    """A body in chunks has no length; what comes after the limit is not kept."""
    receiver.forget_peak()
    before = receiver.memory()
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with connected(receiver.port, head("chunked")) as connection:
        try:
            for _ in range(400):
                connection.sendall(chunk)
        except OSError:
            return  # told to stop by the end of the connection
        assert answered(connection).status == 413
    assert receiver.memory() - before < 2 * LIMIT


def test_a_sender_that_sends_all_before_it_listens_gets_its_answer(receiver: Receiver) -> None:
    """As most do: a connection that ends while they send is an error without a reason to them."""
    answer = receiver.post(b" " * (20 * MIB))
    assert answer.status == 413


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"POST /v1/traces HTTP/1.1\r\nHost: local", None),
        (head(1000), 408),
        (head(1000) + b"{", 408),
        (head("chunked") + b"5\r\n{", 408),
    ],
    ids=["nothing", "half a head", "no body", "half a body", "half a chunk"],
)
def test_who_is_slow_is_sent_away(receiver: Receiver, sent: bytes, status: int | None) -> None:
    """Wherever it stops, the connection is over in time."""
    with connected(receiver.port, sent) as connection:
        if status is None:
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
        else:
            assert answered(connection).status == status


def test_many_slow_ones_leave_room_for_others(receiver: Receiver) -> None:
    """More than there may be connections: they are closed, and others are served meanwhile."""
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connected(receiver.port, head(1000)))
        for _ in range(20):  # until they have been sent away
            try:
                if receiver.post(request(span(trace_id(), 1))).status == 200:
                    break
            except OSError:
                continue


def test_half_a_request_leaves_nothing(receiver: Receiver) -> None:
    """The sender has died within it."""
    before = known(receiver.directory)
    whole = json.dumps(request(span(trace_id(), 1), span(trace_id(), 2))).encode()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        with connected(receiver.port, head(len(whole)) + whole[:length]):
            pass
    assert known(receiver.directory) == before


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"POST /v1/traces HTTP/9.9\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/traces HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        head("chunked") + b"zz\r\n",
        bytes(range(256)) * 10,
    ],
)
def test_what_is_no_http_is_refused(receiver: Receiver, sent: bytes) -> None:
    """By an answer of 4xx or the end of the connection; the next request is served."""
    with connected(receiver.port) as connection:
        try:
            connection.sendall(sent)
            said = connection.recv(100)
        except ConnectionError:
            return
        assert said == b"" or said.startswith(b"HTTP/1.1 4")


def test_requests_behind_each_other_are_answered_in_turn(receiver: Receiver) -> None:
    """A sender may send the next before it has read the answer to the one before."""
    traces = [trace_id() for _ in range(5)]
    bodies = [json.dumps(request(span(trace, 1))).encode() for trace in traces]
    sent = b"".join(head(len(body)) + body for body in bodies)
    with connected(receiver.port, sent) as connection:
        said = b""
        while said.count(b"HTTP/1.1 200 ") < len(traces):
            piece = connection.recv(65536)
            assert piece, said
            said += piece
    assert {(trace, f"{1:016x}") for trace in traces} <= known(receiver.directory)


def test_memory_stays_flat(receiver: Receiver) -> None:
    """After the same work again it needs no more than before."""
    body = json.dumps(
        request(*(span(trace_id(), number, name="x" * 2000) for number in range(1, 101)))
    ).encode()
    packed = gzip.compress(body)

    def work() -> None:
        for _ in range(15):
            assert receiver.post(packed, Content_Encoding="gzip").status == 200
            receiver.post(b"{", Content_Type=JSON)
            with connected(receiver.port, head(1000) + b"{"):
                pass

    work()
    before = receiver.memory("VmRSS")
    work()
    work()
    assert receiver.memory("VmRSS") - before < 8 * MIB


def test_it_ends_in_time_while_somebody_is_sending(tmp_path: Path) -> None:
    """Half a request does not keep it, however patient it is otherwise; status 0."""
    with Receiver(tmp_path / "history", "--timeout", "600") as receiver:
        trace = trace_id()
        with (
            connected(receiver.port, head(1000) + b"{") as half,
            connected(receiver.port, b"POST /v1/tra"),
            connected(receiver.port, head(10**12)),
        ):
            assert receiver.post(request(span(trace, 1))).status == 200
            status, errors = receiver.end()
            assert answered(half).status == 408
        assert (status, "Traceback" in errors, "ancel" in errors) == (0, False, False)
        assert (trace, f"{1:016x}") in known(tmp_path / "history")
