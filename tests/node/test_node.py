# SPDX-License-Identifier: Apache-2.0
"""Agents in Node.js: what the official OpenTelemetry SDK for JavaScript sends is a task here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="an extra")

from otel_taskhistory import TaskHistory
from tests.transport.receiving import PATIENCE, Receiver

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = ROOT / "examples" / "node_agent"
PACKAGES = ("package.json", "package-lock.json")
NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")


@pytest.fixture(scope="module")
def programs() -> Path:
    """A folder outside of the source, with the packages and the programs that need them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node.js and npm")
    files = [HERE / name for name in PACKAGES]
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = ROOT / ".cache" / "node" / stamp
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{stamp}."))
        for file in files:
            shutil.copy(file, made)
        done = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=made,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and any(sign in done.stderr for sign in NO_NETWORK):
            shutil.rmtree(made)
            pytest.skip("the packages of OpenTelemetry for JavaScript cannot be fetched")
        assert done.returncode == 0, done.stderr
        try:
            made.rename(folder)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    for program in (*EXAMPLE.glob("*.mjs"), *HERE.glob("*.mjs")):
        (folder / program.name).write_bytes(program.read_bytes())
    return folder


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Where all of them send to."""
    with Receiver(tmp_path_factory.mktemp("node") / "history") as running:
        yield running


def run(
    programs: Path, receiver: Receiver, program: str, protocol: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        ["node", program, *arguments],
        cwd=programs,
        env={
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip" if protocol == "http/protobuf" else "none",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_the_example_is_a_whole_task(programs: Path, receiver: Receiver, protocol: str) -> None:
    """Goal, steps with the prompts as they were sent, decisions, tool calls, tokens, result."""
    goal = "How many bolts are in stock?"
    done = run(programs, receiver, "agent.mjs", protocol, goal)
    assert (done.returncode, done.stderr) == (0, "")
    with TaskHistory(receiver.directory) as history:
        task = history.task(done.stdout.strip())
        steps = history.steps(task.task_id)
        calls = [history.step(step.step_id) for step in steps]
    assert (task.kind, task.status, task.goal) == ("agent", "succeeded", goal)
    assert (task.agent, task.model, task.result) == (
        "stock-clerk",
        "script-1",
        "There are 120 bolts in stock.",
    )
    assert (task.input_tokens, task.output_tokens, task.span_count) == (100, 21, 4)
    assert [(step.step_index, step.status) for step in steps] == [
        (1, "succeeded"),
        (2, "succeeded"),
    ]
    sent = json.loads(steps[1].prompt or "")
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[1]["parts"][0]["content"] == goal
    assert sent[3]["parts"][0]["response"] == {"part": "bolts", "in_stock": 120}
    assert json.loads(steps[0].decision or "")[0]["parts"][0]["name"] == "count_stock"
    assert steps[0].tool_name == "count_stock"
    assert json.loads(steps[0].tool_arguments or "") == {"part": "bolts"}
    assert json.loads(steps[0].tool_result or "") == {"part": "bolts", "in_stock": 120}
    assert len(calls) == 2


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_an_error_in_it_is_one_here(programs: Path, receiver: Receiver, protocol: str) -> None:
    """The tool that raised, its step and the task failed, with what was said."""
    goal = f"How many washers, by {protocol}?"
    done = run(programs, receiver, "agent.mjs", protocol, goal)
    assert done.returncode == 1
    with TaskHistory(receiver.directory) as history:
        (task,) = [task for task in history.tasks(status="failed") if task.goal == goal]
        (step,) = history.steps(task.task_id)
    assert (task.error_type, step.status, step.tool_name) == (
        "RangeError",
        "failed",
        "count_stock",
    )
    assert "no such part: washers" in (task.error or "")


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_the_conventions_alone_do(programs: Path, receiver: Receiver, protocol: str) -> None:
    """What any instrumentation writes that follows them; attributes are as they were set."""
    done = run(programs, receiver, "genai.mjs", protocol)
    assert (done.returncode, done.stderr) == (0, "")
    trace = done.stdout.strip()
    with TaskHistory(receiver.directory) as history:
        task = history.task(trace)
        (step,) = history.steps(trace)
    assert (task.agent, task.model, task.status) == ("plain", "model-1", "succeeded")
    assert (task.goal, task.result) == ("Wie viele Schrauben? 🔩", "Zwölf.")
    assert (step.input_tokens, step.output_tokens, step.tool_name) == (7, 3, "count")
    from tests.processes import one

    said = json.loads(
        one(
            receiver.directory,
            "SELECT attributes FROM spans WHERE trace_id = ? AND parent_span_id IS NULL",
            trace,
        )
    )
    assert (said["whole"], said["part"], said["list"]) == (2**53 - 1, 0.1, ["a", "ü", "😀"])


def test_the_example_asks_for_the_packages_that_are_tested() -> None:
    """Its package.json is what is installed here, but for the name."""
    named = [json.loads((folder / "package.json").read_text()) for folder in (HERE, EXAMPLE)]
    assert named[0]["dependencies"] == named[1]["dependencies"]
