# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of the forwarder, of the receiving end and of the agent, at random moments.

Whatever dies when: what was committed arrives, and what arrives twice was on its way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Program, one
from tests.store.deliveries import own_step, own_task, span, span_id, store, write
from tests.store.keeping import record, trace_id
from tests.transport.forwarding import PATIENCE, Receiver, committed, finish, start, twice

SPANS = 5
"""Spans of a request here."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def until(true: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def runs(receiver: Receiver) -> list[list[dict[str, Any]]]:
    """The requests, by the run of the forwarder that sent them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for request in receiver.requests():
        found.setdefault(request["headers"]["x-run"], []).append(request)
    return list(found.values())


def test_kill_9_of_the_forwarder(directory: Path, tmp_path: Path) -> None:
    """Each next run goes on where the killed one was; at most its last request comes again."""
    random.seed(3)
    record(directory, range(1, 40))
    with Receiver(tmp_path) as receiver:
        for number in range(3):
            before = len(receiver.requests())
            wanted = before + random.randint(1, 6)
            run = start(directory, receiver.url, "--header", f"x-run={number}", spans=SPANS)
            until(lambda wanted=wanted: len(receiver.requests()) >= wanted)  # type: ignore[misc]
            time.sleep(random.random() / 50)
            run.kill()
            run.communicate()
        finish(start(directory, receiver.url, "--header", "x-run=last", spans=SPANS))
        assert set(receiver.kept()) == committed(directory)
        killed = runs(receiver)
        on_their_way = {
            (one[0], one[1]) for requests in killed[:-1] for one in requests[-1]["kept"]
        }
        assert twice(receiver.kept()) <= on_their_way
        # In order but for what came again.
        first = list(dict.fromkeys(receiver.kept()))
        assert first == sorted(first, key=lambda key: key[0])


def test_kill_9_of_the_receiving_end(directory: Path, tmp_path: Path) -> None:
    """The forwarder waits until it is back, and goes on; requests without an answer come again."""
    random.seed(7)
    record(directory, range(1, 40))
    with Receiver(tmp_path) as receiver:
        run = start(directory, receiver.url, "--header", "x-run=1", spans=SPANS)
        cut: set[tuple[str, str]] = set()
        for _ in range(3):
            wanted = len(receiver.requests()) + random.randint(1, 6)
            until(lambda wanted=wanted: len(receiver.requests()) >= wanted)  # type: ignore[misc]
            receiver.kill()
            cut |= {(one[0], one[1]) for one in receiver.requests()[-1]["kept"]}
            receiver.start()
        finish(run)
        assert set(receiver.kept()) == committed(directory)
        assert twice(receiver.kept()) <= cut


def test_kill_9_of_the_agent(directory: Path, tmp_path: Path) -> None:
    """All that it had committed arrives; what it left open arrives closed, after it has gone."""
    with Receiver(tmp_path) as receiver, Program("agent", directory, "succeeds") as agent:
        while agent.line() != "step 1 ended":
            agent.go_on()
        finish(start(directory, receiver.url))
        assert len(receiver.kept()) == 2  # the step and its tool call
        agent.go_on()
        agent.until("step 2 begun")
        agent.kill()
        finish(start(directory, receiver.url))
        assert len(receiver.kept()) == 4
        assert one(directory, "SELECT count(*) FROM tasks WHERE status = 'running'") == 0
        assert set(receiver.kept()) == committed(directory)
        assert twice(receiver.kept()) == set()
        assert all(found.end_time_unix_nano for found in receiver.spans())


def test_following_goes_on_with_what_comes_until_told(directory: Path, tmp_path: Path) -> None:
    """While an agent writes: steps as they end, through an absence of the receiver, to SIGTERM."""
    with Receiver(tmp_path) as receiver, store(directory) as writer:
        write(writer, [own_task(1, end=None), own_step(2)])
        run = start(directory, receiver.url, "--follow", "--retry-for", "0")
        until(lambda: len(receiver.kept()) == 1)
        write(writer, [own_step(3, end=None), own_step(4)])
        until(lambda: len(receiver.kept()) == 2)
        receiver.kill()
        write(writer, [own_step(3)])
        receiver.start()
        until(lambda: len(receiver.kept()) == 3)
        write(writer, [own_task(1), span(1, trace_id=trace_id(2))])
        until(lambda: len(receiver.kept()) == 5)
        assert [key[1] for key in receiver.kept()] == [span_id(n) for n in (2, 4, 3, 1, 1)]
        run.terminate()
        out, errors = finish(run)
        assert out.startswith("sent 5 spans")
        assert "Ctrl-C ends it" in errors
        assert one(directory, "SELECT change FROM _forwards") == 5


def test_following_a_wrong_endpoint_ends_at_once(directory: Path, tmp_path: Path) -> None:
    """What never worked is not waited for: somebody has to change a setting."""
    record(directory, range(1, 3))
    with Receiver(tmp_path) as receiver:
        receiver.script({"status": 401})
        _, errors = finish(start(directory, receiver.url, "--follow"), 1)
        assert "it answered 401" in errors
        assert len(receiver.requests()) == 1


def test_told_to_stop_it_says_what_is_left(directory: Path, tmp_path: Path) -> None:
    """SIGTERM while it waits for an endpoint ends it soon, with what was acknowledged kept."""
    record(directory, range(1, 3))
    with Receiver(tmp_path) as receiver:
        receiver.script({}, {"status": 503, "headers": {"retry-after": "30"}})
        run = start(directory, receiver.url, spans=SPANS)
        until(lambda: len(receiver.requests()) == 2)
        run.terminate()
        _, errors = finish(run, 1)
        assert "it was told to stop; 1 span of 1 trace wait to be sent; 5 spans went" in errors
        receiver.script()
        finish(start(directory, receiver.url))
        assert len(receiver.kept()) == 1
