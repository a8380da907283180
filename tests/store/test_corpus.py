# SPDX-License-Identifier: Apache-2.0
"""What real instrumentations wrote: stored whole, and made out as sensible tasks and steps."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.spans.encode import decode
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.rebuild import rebuild_span
from tests.otlp import records_in
from tests.store.deliveries import check, public, rows, stored

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FILES = sorted(f for f in CORPUS.glob("*.jsonl") if not f.name.endswith(".logs.jsonl"))


def plain(value: Any) -> Any:
    """A value to be compared: NaN equals itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_real_traces(tmp_path: Path, file: Path) -> None:
    """Nothing is lost or marked, and the order of arrival makes no difference."""
    records = list(records_in(file))
    database = stored(tmp_path / "one", [records])
    check(database)
    assert len(rows(database, "SELECT * FROM spans")) == len(records)
    folder = ArtifactFolder(tmp_path / "one" / "artifacts")
    with closing(sqlite3.connect(database)) as connection:
        for record in records:
            row = rebuild_span(
                connection,
                lambda path: folder.path(path).read_bytes(),
                record.trace_id,
                record.span_id,
            )
            read = decode(row["attributes"])
            assert {key: plain(value) for key, value in read.items()} == {
                key: plain(value) for key, value in record.attributes.items()
            }
            assert (row["name"], row["kind"], row["marks"]) == (record.name, record.kind, None)
            assert [event["name"] for event in decode(row["events"])] == [
                event.name for event in record.events
            ]
    random.Random(file.stem).shuffle(records)
    assert public(stored(tmp_path / "other", [[one] for one in records])) == public(database)


STEPS = {
    "agent-framework__native__tools": [
        ("support_agent", 3, ["lookup_order", "boom", None]),
    ],
    "google-adk__native-semconv__parallel-tools": [
        ("support_agent", 2, ["lookup_order", None]),
    ],
    "openai__genai-spanonly__chat-loop-under-user-root": [(None, 2, [None, None])],
    "pydantic-ai__native-v5__subagent-conversation": [
        ("main_agent", 3, ["ask_geo", None, None]),
        ("main_agent", 1, [None]),
    ],
    "strands__native-latest-spanattrs__tools": [
        ("support_agent", 3, ["lookup_order", "boom", None]),
        ("support_agent", 1, [None]),
    ],
    "util-genai__spanonly__workflow-agent-tool": [("support_agent", 1, ["lookup_order"])],
}


@pytest.mark.parametrize("name", STEPS)
def test_what_agents_did(tmp_path: Path, name: str) -> None:
    """A step for each model call, with its prompt, its decision and the tool it asked for."""
    database = stored(tmp_path, [list(records_in(CORPUS / f"{name}.jsonl"))])
    found = []
    for task in rows(database, "SELECT * FROM tasks WHERE kind = 'agent' ORDER BY started_ns"):
        steps = rows(
            database,
            "SELECT * FROM steps WHERE task_id = ? ORDER BY step_index",
            task["task_id"],
        )
        for step in steps:
            assert isinstance(json.loads(step["prompt"]), list)
            assert isinstance(json.loads(step["decision"]), list)
            assert step["model"]
        assert task["status"] == "succeeded"
        assert task["step_count"] == len(steps)
        found.append((task["agent"], len(steps), [step["tool_name"] for step in steps]))
    assert found == STEPS[name]


def test_goals_are_what_the_user_asked(tmp_path: Path) -> None:
    """Where an agent span says what it was given."""
    file = CORPUS / "strands__native-latest-spanattrs__tools.jsonl"
    database = stored(tmp_path, [list(records_in(file))])
    found = rows(database, "SELECT goal, result FROM tasks ORDER BY started_ns")
    assert [row["goal"] for row in found] == ["Where is order A-17?", "And again?"]
    assert all(row["result"] for row in found)
