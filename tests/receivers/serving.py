# SPDX-License-Identifier: Apache-2.0
"""A real receiver on a free port of this machine, and what its API says."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import requests
from click.testing import CliRunner, Result

from otel_taskhistory.cli import cli

PATIENCE: Final = 170.0
"""Seconds after which it is taken to hang; nothing is measured by it."""

LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[object], folder: Path, ready: str, **variables: str
) -> Iterator[None]:
    """Run a server in a folder until the end of the block, from when a URL answers on.

    What it says goes to a file in that folder.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "PYTHON")) and not name.lower().endswith("_proxy")
    }
    said = folder / "said.txt"
    with said.open("w") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**kept, "HOME": str(folder), **variables},
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or _answers(ready))
        assert process.poll() is None, said.read_text()
        yield
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(20)


def until(found: Callable[[], Any]) -> Any:
    """Wait until something is there, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (what := found()):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.2)
    return what


def ask(url: str, data: Any = None, **headers: str) -> Any:
    """What an API answers, in JSON."""
    with requests.Session() as session:
        session.trust_env = False  # no proxy leads to this machine
        method = "GET" if data is None else "POST"
        answer = session.request(method, url, json=data, headers=headers, timeout=30)
    assert answer.ok, answer.text
    return answer.json()


def forward(directory: Path, url: str, *arguments: str) -> Result:
    """Forward a history there, which must succeed."""
    given = ["forward", "--endpoint", url, "--directory", str(directory), *arguments]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0, done.output
    return done


def _answers(url: str) -> bool:
    try:
        with requests.Session() as session:
            session.trust_env = False
            return bool(session.get(url, timeout=5).ok)
    except requests.RequestException:
        return False
