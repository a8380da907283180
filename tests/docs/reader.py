# SPDX-License-Identifier: Apache-2.0
"""A reader who does what a page says: with a home of their own, a history, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.docs.blocks import Block, Command

ROOT = Path(__file__).parents[2]

_STATE = Path(".local", "state", "otel-taskhistory", "host-agent")

_GOES_ON = re.compile(
    r"otel-taskhistory (?:serve|receive|watch$|watch --running|forward .*--follow)|datasette "
)
"""Commands that end by Ctrl-C only."""

_TAKES_A_PORT = re.compile(r"(otel-taskhistory (?:serve|receive)|datasette \S+)(.*)")
_LONGEST = 60.0

_AGENT = """
from opentelemetry import trace

with trace.get_tracer("agent").start_as_current_span("work"):
    print("done")
"""
"""An agent that knows nothing of us."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


class Reader:
    """Runs blocks of one page.

    Args:
        folder: theirs alone; home and working folder are made in it.
        history: copied to where the default history is; None for a reader who has none yet.
        collector: address of something that takes OTLP.
        task_id: of a task of that history; stands for ids in pages.
    """

    def __init__(self, folder: Path, history: Path | None, collector: str, task_id: str) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self._collector, self._task_id = collector, task_id
        self._var = folder / "var"
        for made in (self.home, self.work, folder / "bin"):
            made.mkdir()
        (self.work / "agent.py").write_text(_AGENT, encoding="utf-8")
        if history is not None:
            shutil.copytree(history, self.home / _STATE)
        # The command of this tree, whichever one is installed.
        for name in ("otel-taskhistory", "python", "python3"):
            module = " -m otel_taskhistory" if name.startswith("otel") else ""
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
            program.chmod(0o700)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
            "HOME": str(self.home),
            "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "BROWSER": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        }

    def save(self, block: Block) -> None:
        """Save a block as the file that it is."""
        (self.work / block.marks["file"]).write_text(block.code + "\n", encoding="utf-8")

    def run_python(self, found: list[Block]) -> Done:
        """Run blocks of Python one after the other, each going on from those before."""
        parts = ["from tests.docs.at_hand import *"]
        for block in found:
            code = self._here(block.code)
            parts.append(f"exec(compile({code!r}, '{block.page}:{block.line}', 'exec'))")
        return self._run([sys.executable, "-c", "\n".join(parts)], self.work)

    def run_console(self, command: Command, where: Path) -> tuple[Done, Path]:
        """Run a command; how it ended, and in which folder the reader is then."""
        text = re.sub(r"\s+# .*$", "", self._here(command.text))
        if _GOES_ON.match(text):
            return self._run_until_it_speaks(
                _TAKES_A_PORT.sub(r"\1 --port 0\2", text), where
            ), where
        place, exported = self.home / "where", self.home / "exported"
        exported.touch()
        after = f"status=$?\npwd > {place}\nexport -p > {exported}\nexit $status"
        done = self._run(["bash", "-c", f". {exported}\n{text}\n{after}"], where)
        return done, Path(place.read_text(encoding="utf-8").strip())

    def begin(self) -> Path:
        """Open another terminal, in the reader's own folder."""
        (self.home / "exported").unlink(missing_ok=True)
        return self.work

    def _here(self, text: str) -> str:
        """A text of a page with what is not there replaced by what is."""
        text = text.replace("/var/lib/my-agent", str(self._var))
        text = text.replace("http://127.0.0.1:4318", self._collector)
        text = text.replace(".venv/bin/", "")
        return re.sub(r"\b(?=[a-f]*[0-9])[0-9a-f]{8}\b", self._task_id[:8], text)

    def _run(self, command: list[str], where: Path) -> Done:
        done = subprocess.run(
            command,
            cwd=where,
            env=self.environment,
            capture_output=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=_LONGEST,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def _run_until_it_speaks(self, text: str, where: Path) -> Done:
        """Start what goes on, wait for its first line, and press Ctrl-C."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=where,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        ) as running:
            late = threading.Timer(_LONGEST, running.kill)
            late.start()
            try:
                assert running.stdout is not None
                first = running.stdout.readline()
                running.send_signal(signal.SIGINT)
                rest = running.stdout.read()
                status = running.wait()
            finally:
                late.cancel()
                running.kill()
        return Done(0 if status in (130, -signal.SIGINT) else status, first + rest, "")


class Collector(BaseHTTPRequestHandler):
    """Takes whatever is sent."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def collector() -> ThreadingHTTPServer:
    """A running one on the loopback device."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
