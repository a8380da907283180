# SPDX-License-Identifier: Apache-2.0
"""Arize Phoenix from PyPI on this machine: what is forwarded arrives, its API shows the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import rows
from tests.receivers.environments import ready
from tests.receivers.serving import LOOPBACK, ask, forward, free_port, serving, until
from tests.recorded import one_task, recording


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it listens."""
    python, port = ready("phoenix"), free_port()
    url = f"http://{LOOPBACK}:{port}"
    folder = tmp_path_factory.mktemp("phoenix")
    with serving(
        [python, "-m", "phoenix.server.main", "serve"],
        folder,
        f"{url}/healthz",
        PHOENIX_HOST=LOOPBACK,
        PHOENIX_PORT=str(port),
        PHOENIX_GRPC_PORT=str(free_port()),
        PHOENIX_WORKING_DIR=str(folder),
        PHOENIX_TELEMETRY_ENABLED="false",
    ):
        yield url


def shown(phoenix: str, task_ids: set[str], spans: int) -> list[dict[str, Any]]:
    """The spans that it shows of these tasks, when there are so many."""

    def look() -> list[dict[str, Any]]:
        found = ask(f"{phoenix}/v1/projects/default/spans?limit=1000")["data"]
        mine = [one for one in found if one["context"]["trace_id"] in task_ids]
        return mine if len(mine) >= spans else []

    return list(until(look))


@pytest.mark.parametrize("policy", ["ids_only", "no_images", "scrub", "everything"])
def test_it_shows_the_tasks_that_were_forwarded(phoenix: str, tmp_path: Path, policy: str) -> None:
    """As traces with all their steps in place; with content when that was let through."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        ids = {one_task(tasks, f"goal by {policy} {n}", steps=2) for n in (1, 2)}
    done = forward(directory, phoenix, "--policy", policy)
    assert done.stdout == f"sent 10 spans to {phoenix}/v1/traces ({policy})\n"
    found = shown(phoenix, ids, 10)
    assert len(found) == 10
    recorded = rows(directory, "SELECT trace_id, span_id, parent_span_id, name FROM spans")
    assert {
        (one["context"]["trace_id"], one["context"]["span_id"], one["parent_id"], one["name"])
        for one in found
    } == set(recorded)
    traces = ask(f"{phoenix}/v1/projects/default/traces?limit=1000")["data"]
    assert ids <= {one["trace_id"] for one in traces}
    mine = [one for one in traces if one["trace_id"] in ids]
    assert [one["token_count_prompt"] for one in mine] == [20, 20]
    assert (f"goal by {policy}" in str(found)) == (policy != "ids_only")


def test_it_shows_what_was_interrupted(phoenix: str, tmp_path: Path) -> None:
    """Closed, as an error."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        task = tasks.task("never ends")
        step = task.step("nor does this")
    forward(directory, phoenix)
    found = shown(phoenix, {task.id}, 2)
    assert {one["context"]["span_id"] for one in found} == {
        step.id,
        *(row[0] for row in rows(directory, "SELECT span_id FROM spans WHERE name LIKE 'invoke%'")),
    }
    assert {one["status_code"] for one in found} == {"ERROR"}
    assert all(one["end_time"] for one in found)
