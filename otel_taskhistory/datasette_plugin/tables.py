# SPDX-License-Identifier: Apache-2.0
"""How Datasette's own pages show the public tables: what they are, how one looks through them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.store.meanings import DESCRIPTIONS

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
        DESCRIPTIONS["tasks"],
        ("status", "agent", "model", "kind"),
        {"sort_desc": "id", "label_column": "goal"},
    ),
    "steps": Table(
        DESCRIPTIONS["steps"],
        ("status", "tool_name", "agent"),
        {"size": _HEAVY_ROWS},
    ),
    "model_calls": Table(
        DESCRIPTIONS["model_calls"],
        ("status", "model", "finish_reason"),
        {"size": _HEAVY_ROWS},
    ),
    "tool_calls": Table(DESCRIPTIONS["tool_calls"], ("name", "status"), {"size": 50}),
    "screenshots": Table(
        DESCRIPTIONS["screenshots"],
        ("role", "status", "media_type"),
        {"size": 50, "sort_desc": "id"},
    ),
    "timeline": Table(
        DESCRIPTIONS["timeline"],
        ("event",),
        {"sort_desc": "seq"},
    ),
    "spans": Table(DESCRIPTIONS["spans"], (), {"size": _HEAVY_ROWS}),
    "logs": Table(DESCRIPTIONS["logs"], (), {"size": _HEAVY_ROWS}),
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
