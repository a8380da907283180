# SPDX-License-Identifier: Apache-2.0
"""What real instrumentations wrote is made out as sensible tasks and steps.

That it is stored whole, in whatever order it comes, is in ``tests/corpus``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.otlp import records_in
from tests.store.deliveries import rows, stored

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
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
