# SPDX-License-Identifier: Apache-2.0
"""MLflow's OTLP endpoint on this machine: what is forwarded arrives, its API shows the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_taskhistory.cli import cli
from tests.receivers.environments import ready
from tests.receivers.serving import LOOPBACK, ask, forward, free_port, serving, until
from tests.recorded import one_task, recording

EXPERIMENT = "x-mlflow-experiment-id=0"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it listens."""
    python, port = ready("mlflow"), free_port()
    url = f"http://{LOOPBACK}:{port}"
    folder = tmp_path_factory.mktemp("mlflow")
    with serving(
        [
            *(python, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", port),
            *("--workers", 1, "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
            *("--artifacts-destination", folder / "artifacts"),
        ],
        folder,
        f"{url}/health",
        MLFLOW_DISABLE_TELEMETRY="true",
    ):
        yield url


def shown(mlflow: str, task_ids: set[str]) -> list[dict[str, Any]]:
    """The traces that it shows of these tasks, when all are there."""
    where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}

    def look() -> list[dict[str, Any]]:
        asked = {"locations": [where], "max_results": 100}
        found = ask(f"{mlflow}/api/3.0/mlflow/traces/search", asked).get("traces", [])
        mine = [one for one in found if one["trace_id"].removeprefix("tr-") in task_ids]
        return mine if len(mine) == len(task_ids) else []

    return list(until(look))


@pytest.mark.parametrize("policy", ["ids_only", "everything"])
def test_it_shows_the_tasks_that_were_forwarded(mlflow: str, tmp_path: Path, policy: str) -> None:
    """As traces of the experiment that a header names, with their tokens."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        ids = {one_task(tasks, f"goal {n}", steps=2) for n in (1, 2)}
    done = forward(directory, mlflow, "--policy", policy, "--header", EXPERIMENT)
    assert done.stdout == f"sent 10 spans to {mlflow}/v1/traces ({policy})\n"
    found = shown(mlflow, ids)
    assert {one["state"] for one in found} <= {"OK", "STATE_UNSPECIFIED"}
    assert all('"input_tokens": 20' in str(one["trace_metadata"]) for one in found)


def test_without_the_header_that_it_wants_nothing_is_lost(mlflow: str, tmp_path: Path) -> None:
    """It refuses everything, which is not taken for a fault of the spans; what it wants is said."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        ids = {one_task(tasks, "goal", steps=20)}
    given = ["forward", "--endpoint", mlflow, "--directory", str(directory)]
    refused = CliRunner().invoke(cli, given)
    assert refused.exit_code == 1
    assert "it answered 422" in refused.stderr
    assert "x-mlflow-experiment-id" in refused.stderr.lower()
    assert "41 spans of 1 trace wait to be sent" in refused.stderr
    forward(directory, mlflow, "--header", EXPERIMENT)
    assert shown(mlflow, ids)
