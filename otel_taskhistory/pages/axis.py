# SPDX-License-Identifier: Apache-2.0
"""The bars of a task as compact JSON, for the script to draw."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.pages.step_list import is_named
from otel_taskhistory.store.overview.axis import Axis, axis_of
from otel_taskhistory.text import one_line, parse_time

KINDS: Final = ("step", "model", "tool")
_NAME: Final = 80
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def axis(history: TaskHistory, task_id: str) -> dict[str, Any]:
    """Everything of a task on its axis.

    Returns:
        ``start`` (ms since 1970), ``length`` and ``now`` in ms after it (null once ended),
        ``status``; ``ids`` and ``indexes`` of the steps in the order of the list; ``agents``, each
        [name, depth, lanes of steps, lanes of calls]; ``names``; ``bars``, eight numbers each: kind
        (of `KINDS`), name, agent, status (of `STATUSES`), begin and length in ms (-1 while it
        runs), step (-1 for none), lane; ``shots``: ``sha256``, ``at``, ``step``; ``left_out``:
        [calls, pictures].

    Raises:
        TaskNotFound: there is no such task.
    """
    return as_json(history.read(lambda c: axis_of(c, task_id)))


def as_json(found: Axis, *, now: datetime | None = None) -> dict[str, Any]:
    """An axis in the form that `axis` returns."""
    start = min([found.started_ns, *(bar.started_ns for bar in found.bars)])
    names: dict[str, int] = {}
    shown: dict[tuple[bool, str], int] = {}
    agents = {lanes.name: number for number, lanes in enumerate(found.agents)}
    bars: list[float] = []
    end = found.ended_ns or start
    for bar in found.bars:
        until = bar.ended_ns
        named = (bar.kind == "step", bar.name)
        if named not in shown:
            shown[named] = names.setdefault(_shown(*named), len(names))
        end = max(end, until or bar.started_ns)
        bars += [
            KINDS.index(bar.kind),
            shown[named],
            agents.get(bar.agent, 0),
            STATUSES.index(bar.status) if bar.status in STATUSES else -1,
            _ms(bar.started_ns - start),
            -1 if until is None else _ms(max(until - bar.started_ns, 0)),
            bar.step,
            bar.lane,
        ]
    current = None
    if found.status == "running":
        since = (now or datetime.now(UTC)) - _EPOCH
        current = _ms(max(since // timedelta(microseconds=1) * 1000 - start, end - start))
    return {
        "start": start / 1e6,
        "length": current if current is not None else _ms(max(end - start, 0)),
        "now": current,
        "status": found.status,
        "ids": list(found.step_ids),
        "indexes": list(found.step_indexes),
        "agents": [
            [one_line(lanes.name)[:_NAME], lanes.depth, lanes.step_lanes, lanes.call_lanes]
            for lanes in found.agents
        ],
        "names": list(names),
        "bars": bars,
        "shots": {
            "sha256": [picture.sha256 for picture in found.pictures],
            "at": [_after(picture.captured_at, start) for picture in found.pictures],
            "step": [picture.step for picture in found.pictures],
        },
        "left_out": [found.calls_left_out, found.pictures_left_out],
    }


def _shown(of_step: bool, name: str) -> str:
    """The name on a bar: one that says nothing takes no room."""
    return one_line(name[: 4 * _NAME])[:_NAME] if not of_step or is_named(name) else ""


def _ms(ns: int) -> float:
    """Nanoseconds as ms: with a digit after the point where that can be seen."""
    ms = round(ns / 1e6, 1)
    return int(ms) if ms >= 10_000 or ms == int(ms) else ms


def _after(stored: str, start_ns: int) -> float:
    moment = parse_time(stored)
    if moment is None:
        return 0
    return _ms((moment - _EPOCH) // timedelta(microseconds=1) * 1000 - start_ns)
