# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory forward`` and the receiver that it sends to, for the tests of both ends."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.processes import rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE = 120.0
"""Seconds after which a program is taken to hang; nothing is measured by it."""

SMALL_BATCHES = """
from otel_taskhistory.transport.forwarder import outbound
outbound.SPANS = int(__import__("os").environ["SPANS"])
from otel_taskhistory.cli import cli
cli()
"""
"""The command with so few spans a request that there is a moment between any two of them."""

Key = tuple[str, str]
"""Trace id and span id."""


def environ(**more: str) -> dict[str, str]:
    """The environment without what would lead elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OTEL_") and not name.lower().endswith("_proxy")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


class Receiver:
    """A scripted receiver in a process of its own; see `scripted_receiver`."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self.log = folder / "received.jsonl"
        self._script = Path(f"{self.log}.script")
        self._certificate = certificate
        self.port = 0
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, again on the port where it was."""
        more = [] if self._certificate is None else [str(self._certificate)]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "scripted_receiver.py"), self.log, str(self.port), *more],
            stdout=subprocess.PIPE,
            text=True,
            env=environ(),
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def url(self) -> str:
        """Where it listens, without the path."""
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    def script(self, *answers: dict[str, Any]) -> None:
        """Answer so from now on; what came before is forgotten."""
        self.log.unlink(missing_ok=True)
        self._script.unlink(missing_ok=True)
        if answers:
            self._script.write_text(json.dumps(answers))

    def requests(self) -> list[dict[str, Any]]:
        """What came; a line that is being written is left out."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def kept(self) -> list[Key]:
        """The spans that it has kept, in order, as often as it did."""
        return [(one[0], one[1]) for request in self.requests() for one in request["kept"]]

    def bodies(self) -> list[bytes]:
        """What came, not compressed any more."""
        return [base64.b64decode(request["body"]) for request in self.requests()]

    def spans(self) -> list[Any]:
        """The spans that came, as protobuf has them."""
        return [
            span
            for body in self.bodies()
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def committed(directory: Path) -> set[Key]:
    """All spans of a history that have ended, or whose process has."""
    return set(
        rows(
            directory,
            "SELECT trace.trace_id, own.span_id FROM _spans AS own"
            " JOIN _traces AS trace ON trace.id = own.trace"
            " LEFT JOIN _processes AS process ON process.id = own.process"
            " WHERE own.end_ns IS NOT NULL OR process.ended_ns IS NOT NULL",
        )
    )


def twice(keys: Sequence[Key]) -> set[Key]:
    """Those that are there more than once."""
    return {key for key, number in Counter(keys).items() if number > 1}


def start(
    directory: Path, url: str, *arguments: str, spans: int = 512, **more: str
) -> subprocess.Popen[str]:
    """``forward`` in a process of its own, with at most so many spans a request."""
    return subprocess.Popen(
        [
            *(sys.executable, "-c", SMALL_BATCHES, "forward", "--endpoint", url),
            *("--directory", str(directory), *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(SPANS=str(spans), **more),
    )


def finish(process: subprocess.Popen[str], status: int = 0) -> tuple[str, str]:
    """Wait for its end, which must be with this status; what it said."""
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, (process.returncode, out, errors)
    return out, errors
