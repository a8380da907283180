# SPDX-License-Identifier: Apache-2.0
"""Arize Phoenix on SQLite: a server of its own, and spans over OTLP/HTTP on loopback."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import workload
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from serve import serve

_SECONDS = 120.0


class Server:
    """The server, and an exporter that sends to it."""

    def __init__(self) -> None:
        ports = _free_ports(2)
        environment = {
            **os.environ,
            "PHOENIX_WORKING_DIR": str(Path.cwd()),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(ports[0]),
            "PHOENIX_GRPC_PORT": str(ports[1]),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("phoenix")), "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        self._wait_until_ready(ports[0])
        self.exporter = OTLPSpanExporter(f"http://127.0.0.1:{ports[0]}/v1/traces", timeout=_SECONDS)

    def stop(self) -> None:
        """End it, by force if need be."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _wait_until_ready(self, port: int) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                with closing(socket.create_connection(("127.0.0.1", port), 2)):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def in_batches(spans: int, seed: int, size: int) -> list[float]:
    """Spans in batches, each until it is in the database; ms a span, batch by batch.

    Raises:
        RuntimeError: Phoenix did not take them.
        TimeoutError: it took them, but they are not there.
    """
    took = []
    ended = workload.collected(workload.tasks, workload.said(spans, seed))
    for batch in workload.batches(ended, size):
        there = _rows()
        began = time.perf_counter()
        if _server.exporter.export(batch) is not SpanExportResult.SUCCESS:
            raise RuntimeError("Phoenix refused the spans")
        while _rows() < there + len(batch):
            if time.perf_counter() > began + _SECONDS:
                raise TimeoutError("Phoenix has not stored the spans")
            time.sleep(0.02)
        took.append((time.perf_counter() - began) * 1000 / len(batch))
    return took


def _rows() -> int:
    with closing(sqlite3.connect("file:phoenix.db?mode=ro", uri=True, timeout=30)) as connection:
        return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    _server = Server()
    try:
        serve({"in_batches": in_batches}, {"arize-phoenix": version("arize-phoenix")})
    finally:
        _server.stop()
