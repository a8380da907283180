# SPDX-License-Identifier: Apache-2.0
"""``receive`` when something dies or is away: what was answered with 200 is there, always."""

from __future__ import annotations

import http.client
import json
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="an extra")

from tests.processes import check, rows

from .receiving import (
    PATIENCE,
    ROOT,
    Answer,
    Receiver,
    answered,
    connected,
    head,
    known,
    post,
    request,
    span,
    text,
    trace_id,
)

CHAT = [text("gen_ai.operation.name", "chat")]
"""What makes a trace that of an agent: of others only a few are kept."""
IMPATIENT = {"OTEL_TASKHISTORY_BUSY_TIMEOUT": "0.1"}

SENDER = """
import sys
from tests.transport.receiving import post, request, span, text, trace_id
port = int(sys.argv[1])
while True:
    trace = trace_id()
    chat = [text("gen_ai.operation.name", "chat")]
    answer = post(port, request(*(span(trace, n, n - 1, attributes=chat) for n in range(1, 31))))
    print(trace, answer.status, flush=True)
"""


def free_port() -> int:
    """One that a receiver is started at again and again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_the_receiver_is_killed_at_any_moment(tmp_path: Path) -> None:
    """Senders send again what was not answered; in the end all is there, and all of it once."""
    directory, port = tmp_path / "history", free_port()
    traces = [trace_id() for _ in range(400)]
    waiting, taken = list(traces), set[str]()

    def send() -> None:
        while True:
            try:
                trace = waiting.pop()
            except IndexError:
                return
            try:
                body = request(
                    span(trace, 1, attributes=CHAT), span(trace, 2, 1), span(trace, 3, 1)
                )
                if post(port, body).status == 200:
                    taken.add(trace)
                    continue
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
            waiting.append(trace)

    threads = [threading.Thread(target=send) for _ in range(4)]
    chance = random.Random(7)
    for thread in threads:
        thread.start()
    for kills in range(4):
        with Receiver(directory, port=port) as receiver:
            before = len(taken)
            while len(taken) < before + chance.randrange(5, 60) and waiting:
                time.sleep(0.001)
            time.sleep(chance.random() / 50)
            certain = set(taken)
            if kills < 3:
                receiver.kill()
            else:
                for thread in threads:
                    thread.join(PATIENCE)
                assert receiver.end()[0] == 0
        assert certain <= {trace for trace, _ in known(directory)}
    check(directory)
    found = rows(directory, "SELECT trace_id, count(*) FROM spans GROUP BY trace_id")
    assert sorted(found) == sorted((trace, 3) for trace in traces)


def test_the_sender_is_killed_at_any_moment(tmp_path: Path) -> None:
    """Its last request is there whole or not at all, and the receiver goes on."""
    chance = random.Random(3)
    with Receiver(tmp_path / "history") as receiver:
        told: list[str] = []
        for _ in range(3):
            sender = subprocess.Popen(
                [sys.executable, "-c", SENDER, str(receiver.port)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert sender.stdout is not None
            told += [sender.stdout.readline().strip() for _ in range(chance.randrange(2, 9))]
            time.sleep(chance.random() / 50)
            sender.kill()
            told += sender.communicate(timeout=PATIENCE)[0].splitlines()
        status, errors = receiver.end()
    assert (status, "Traceback" in errors) == (0, False)
    sizes = dict(
        rows(tmp_path / "history", "SELECT trace_id, count(*) FROM spans GROUP BY trace_id")
    )
    assert set(sizes.values()) == {30}
    certain = [line.split() for line in told if line.count(" ") == 1]
    assert {status for _, status in certain} == {"200"}
    assert {trace for trace, _ in certain} <= set(sizes)


def locked(directory: Path) -> sqlite3.Connection:
    """A connection of another program that has locked the history for writing."""
    connection = sqlite3.connect(directory / "history.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def until_taken(receiver: Receiver, body: object) -> Answer:
    """Send as a sender does: again, as long as it is told to."""
    while (answer := receiver.post(body)).status == 503:
        time.sleep(0.1)
    return answer


def test_the_store_is_away_for_a_while(tmp_path: Path) -> None:
    """503, with when to come again; afterwards what is sent again is there once."""
    with Receiver(tmp_path / "history", environ=IMPATIENT) as receiver:
        assert receiver.post(request(span(trace_id(), 1))).status == 200
        bodies = [request(span(trace_id(), 1), span(trace_id(), 2)) for _ in range(5)]
        with closing(locked(receiver.directory)):
            for body in bodies:
                answer = receiver.post(body)
                assert (answer.status, answer.json["code"]) == (503, 14)
                assert int(answer.headers["retry-after"]) > 0
            assert len(known(receiver.directory)) == 1
        assert [until_taken(receiver, body).status for body in bodies] == [200] * 5
        status, errors = receiver.end()
    assert status == 0
    assert "the history cannot be written now" in errors
    (number, kinds), *_ = rows(
        tmp_path / "history", "SELECT count(*), count(DISTINCT trace_id) FROM spans"
    )
    assert (number, kinds) == (11, 11)
    assert rows(tmp_path / "history", "SELECT * FROM timeline WHERE event = 'loss'") == []


def test_it_does_not_start_while_the_history_cannot_be_opened(tmp_path: Path) -> None:
    """One sentence, status 1."""
    with Receiver(tmp_path / "history") as receiver:
        receiver.end()
    directory = tmp_path / "history"
    (directory / "history.db").write_bytes(b"something else, and long enough to be looked at" * 50)
    with pytest.raises(AssertionError, match="it ended with 1") as failed:
        Receiver(directory)
    assert len(str(failed.value).splitlines()) == 2


def test_what_has_come_is_finished_when_it_is_told_to_stop(tmp_path: Path) -> None:
    """A request that waits for the lock of another program is still answered, with 200."""
    with Receiver(tmp_path / "history") as receiver:
        assert receiver.post(request(span(trace_id(), 1))).status == 200
        trace = trace_id()
        body = json.dumps(request(span(trace, 1))).encode()
        with (
            closing(locked(receiver.directory)) as other,
            connected(receiver.port, head(len(body)) + body) as sender,
        ):
            for _ in range(3):  # what came before these has been read
                assert receiver.post(b"", Method="GET").status == 405
            receiver.process.terminate()
            while listens(receiver.port):
                time.sleep(0.01)
            other.rollback()
            assert answered(sender).status == 200
        receiver.process.wait(PATIENCE)
    assert receiver.process.returncode == 0
    assert (trace, f"{1:016x}") in known(tmp_path / "history")


def listens(port: int) -> bool:
    """Whether connections are accepted."""
    try:
        with connected(port):
            return True
    except ConnectionError:
        return False
