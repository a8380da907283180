# SPDX-License-Identifier: Apache-2.0
"""Rows of the public tables as dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.views import ModelCall, Screenshot, Step, Task, TimelineRecord, ToolCall

Row = TypeVar("Row", Task, Step, ModelCall, ToolCall, Screenshot, TimelineRecord)

SAID: Final = frozenset({"prompt", "decision"})
"""Columns that are put together from shared contents: see `Texts`."""


def columns(kind: type[Any], *, without: frozenset[str] = frozenset()) -> str:
    """The columns of a table as SQL, NULL in the place of those left out."""
    names = (field.name for field in fields(kind))
    return ", ".join(f"NULL AS {name}" if name in without else name for name in names)


def from_row(kind: type[Row], row: Sequence[Any]) -> Row:
    """A row whose values are in the order of `columns`."""
    return kind(*row)


def said(
    texts: Texts, row: Sequence[int | None], wanted: frozenset[str]
) -> tuple[str | None, str | None]:
    """Prompt and decision, those that are wanted; `row` has node and text of each."""
    prompt = texts.said(row[0], row[1]) if "prompt" in wanted else None
    decision = texts.said(row[2], row[3]) if "decision" in wanted else None
    return prompt, decision
