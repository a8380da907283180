# SPDX-License-Identifier: Apache-2.0
"""How Datasette's own pages show the public tables: what they are, how one looks through them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_HEAVY_ROWS: Final = 20
"""Rows a page where each may hold a conversation; Datasette's own number is 100."""


@dataclass(frozen=True, slots=True)
class Table:
    """What Datasette is told of a table or view."""

    description: str
    facets: tuple[str, ...] = ()
    """Columns with few values that divide the rows in a way that people ask for."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """``size``, ``sort_desc``, …, as Datasette calls them."""


TABLES: Final = {
    "tasks": Table(
        "One assignment carried out by the agent: a trace.",
        ("status", "agent", "model", "kind"),
        {"sort_desc": "id", "label_column": "goal"},
    ),
    "steps": Table(
        "One turn of the agent within a task: the prompt as it was sent, the decision, the tool.",
        ("status", "tool_name", "agent"),
        {"size": _HEAVY_ROWS},
    ),
    "model_calls": Table(
        "One request to a model.",
        ("status", "model", "finish_reason"),
        {"size": _HEAVY_ROWS},
    ),
    "tool_calls": Table("One invocation of a tool.", ("name", "status"), {"size": 50}),
    "screenshots": Table(
        "The pictures of tasks and steps; the files are named by their content.",
        ("role", "status", "media_type"),
        {"size": 50, "sort_desc": "id"},
    ),
    "timeline": Table(
        "What happened to tasks and steps, in the order in which it was committed.",
        ("event",),
        {"sort_desc": "seq"},
    ),
    "spans": Table(
        "Everything OpenTelemetry knows of each span, as it came.", (), {"size": _HEAVY_ROWS}
    ),
    "logs": Table("Log records of instrumentations, as they came.", (), {"size": _HEAVY_ROWS}),
}


def settings_of_tables() -> dict[str, dict[str, Any]]:
    """For each public table Datasette's settings; new objects with every call."""
    return {
        name: {**({"facets": list(table.facets)} if table.facets else {}), **table.options}
        for name, table in TABLES.items()
    }


def add_to_config(config: dict[str, Any] | None, databases: list[str]) -> dict[str, Any]:
    """Datasette 1.0's configuration with ours for these databases; what somebody has set stays."""
    config = copy.deepcopy(config) if config else {}
    for database in databases:
        tables = (
            config.setdefault("databases", {}).setdefault(database, {}).setdefault("tables", {})
        )
        for name, ours in settings_of_tables().items():
            own = tables.setdefault(name, {})
            for key, value in ours.items():
                own.setdefault(key, value)
    return config


def metadata_of(databases: list[str]) -> dict[str, Any]:
    """Datasette 0.65's metadata for these databases; new objects, for Datasette changes them."""
    return {
        "databases": {
            database: {
                "tables": {
                    name: {**settings, "description": TABLES[name].description}
                    for name, settings in settings_of_tables().items()
                }
            }
            for database in databases
        }
    }
