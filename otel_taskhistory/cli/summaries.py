# SPDX-License-Identifier: Apache-2.0
"""The sections of ``stats``: agents, models and tools of a period, the largest tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from otel_taskhistory.cli.options import When
from otel_taskhistory.cli.terminal import Piece, Screen
from otel_taskhistory.history import STATUSES, TaskHistory
from otel_taskhistory.store.filters import moment_ns
from otel_taskhistory.store.summaries import (
    AgentUse,
    LargeTask,
    ModelUse,
    Summaries,
    Tokens,
    ToolUse,
    summaries,
)
from otel_taskhistory.text import count, duration, local_time, one_line, width
from otel_taskhistory.units import format_size

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN: Final = 15
"""Agents, models and tools of each section of the text; JSON has more."""
_NARROW: Final = 60
"""Columns below which each row is a few lines instead of one of a table."""
_NAME_ROOM: Final = 28

Fact = tuple[str, str]
"""What it is, and how much."""


def period_options(command: F) -> F:
    """``--since`` and ``--until``, of which tasks the figures are."""
    for option in reversed(
        [
            click.option(
                "--since",
                type=When(),
                metavar="WHEN",
                help="Of tasks begun then or later: a time (local unless it says a zone), or 2h,"
                " 30d ago.",
            ),
            click.option(
                "--until", type=When(), metavar="WHEN", help="Of tasks begun before that."
            ),
        ]
    ):
        command = option(command)
    return command


def read_summaries(
    history: TaskHistory, since: datetime | None = None, until: datetime | None = None
) -> Summaries:
    """The figures of the tasks that began in a period; None for no bound.

    Raises:
        click.UsageError: the period ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        raise click.UsageError(
            f"--until ({local_time(until.isoformat())}) is not after --since"
            f" ({local_time(since.isoformat())}): no task can have begun between them"
        )
    bounds = moment_ns("since", since), moment_ns("until", until)
    database = history.settings.database
    return history.read(lambda c: summaries(c, database, *bounds))


def summaries_json(found: Summaries) -> dict[str, Any]:
    """The figures as one JSON object; ``failure_rate`` is from 0 to 1."""
    facts = asdict(found)
    for tool, row in zip(found.tools, facts["tools"], strict=True):
        row["failure_rate"] = round(tool.failure_rate, 4)
    return facts


def print_summaries(screen: Screen, history: TaskHistory, found: Summaries) -> None:
    """Print the sections, as wide as the screen; a section without rows is left out.

    Where the bytes are by kind ``stats`` says at its top, of the whole history.
    """
    if found.since or found.until:
        _outcomes(screen, found)
    if found.losses.records:
        text = f"{count(found.losses.records, 'record')} of what could not be stored, the last at"
        last = local_time(found.losses.last_at)
        screen.block(f"{text} {last}", "bad", label=("lost", "dim"), room=10)
    _section(
        screen,
        "agents",
        [(agent.agent or "(no name)", _agent(agent)) for agent in found.agents],
        found.agents_total,
    )
    _section(
        screen,
        "models",
        [(model.model or "(no name)", _model(model)) for model in found.models],
        found.models_total,
    )
    _section(screen, "tools", [(tool.name, _tool(tool)) for tool in found.tools], found.tools_total)
    _largest(screen, history, found.largest)


def _outcomes(screen: Screen, found: Summaries) -> None:
    """What ``stats`` says of the whole history anyway, of the period."""
    bounds = [
        f"from {local_time(found.since)}" if found.since else "",
        f"up to {local_time(found.until)}" if found.until else "",
    ]
    screen.line()
    screen.block(" ".join(filter(None, bounds)), label=("period", "dim"), room=10)
    for label, by_status in (("tasks", found.tasks), ("steps", found.steps)):
        kinds = [f"{count(by_status[name])} {name}" for name in STATUSES if by_status.get(name)]
        total = count(sum(by_status.values()))
        text = f"{total} ({', '.join(kinds)})" if kinds else total
        screen.block(text, label=(label, "dim"), room=10)


def _agent(agent: AgentUse) -> list[Fact]:
    return [
        ("tasks", count(agent.tasks)),
        ("failed", _failed(agent.failed, agent.tasks)),
        ("steps", count(agent.steps)),
        *_used(agent.tokens),
    ]


def _model(model: ModelUse) -> list[Fact]:
    return [
        ("calls", count(model.calls)),
        ("failed", _failed(model.failed, model.calls)),
        *_used(model.tokens),
    ]


def _tool(tool: ToolUse) -> list[Fact]:
    return [
        ("calls", count(tool.calls)),
        ("failed", _failed(tool.failed, tool.calls)),
        ("median", duration(tool.median_ms)),
        ("p95", duration(tool.p95_ms)),
        ("longest", duration(tool.longest_ms)),
    ]


def _used(tokens: Tokens) -> list[Fact]:
    numbers = {
        "in": tokens.input,
        "out": tokens.output,
        "cached": tokens.cached,
        "reasoning": tokens.reasoning,
    }
    facts = [(name, count(number) if number else "") for name, number in numbers.items()]
    return [*facts, ("cost", f"{tokens.cost:.6g}" if tokens.cost else "")]


def _failed(failed: int, total: int) -> str:
    return f"{count(failed)} ({failed / total:.0%})" if failed and total else ""


def _section(screen: Screen, name: str, rows: Sequence[tuple[str, list[Fact]]], total: int) -> None:
    """A table where there is room for one, else some lines a row; empty columns are left out."""
    if not rows:
        return
    _heading(screen, name)
    shown = rows[:_SHOWN]
    kept = [n for n, _ in enumerate(shown[0][1]) if any(facts[n][1] for _, facts in shown)]
    headers = [shown[0][1][n][0] for n in kept]
    widths = [
        max(width(header), *(width(facts[n][1]) for _, facts in shown))
        for n, header in zip(kept, headers, strict=True)
    ]
    if screen.columns < _NARROW or sum(widths) + 2 * len(widths) + 12 > screen.columns:
        for own, facts in shown:
            screen.line((one_line(own), "name"), indent=2)
            pieces = [(f"{what} {value}", "") for what, value in facts if value]
            screen.line(*_separated(pieces), indent=4)
    else:
        # The name comes last: a table clips what stands there, never a number.
        screen.table(
            [*headers, name[:-1]],
            [[*((facts[n][1], "") for n in kept), (one_line(own), "name")] for own, facts in shown],
            right=set(range(len(kept))),
        )
    if total > len(shown):
        screen.line((f"… {count(len(shown))} of {count(total)}; --json has more", "dim"))


def _separated(pieces: list[Piece]) -> list[Piece]:
    return [(f" · {text}" if n else text, style) for n, (text, style) in enumerate(pieces)]


def _heading(screen: Screen, name: str) -> None:
    screen.line()
    screen.line((name, "bold"))


def _largest(screen: Screen, history: TaskHistory, largest: Sequence[LargeTask]) -> None:
    if not largest:
        return
    short = history.short_ids([task.task_id for task in largest])
    _heading(screen, "largest tasks")
    screen.table(
        ["size", "id", "goal"],
        [
            [
                (format_size(task.bytes), ""),
                (short[task.task_id], "name"),
                (one_line(task.goal or "") + (" (pinned)" if task.pinned else ""), ""),
            ]
            for task in largest
        ],
        right={0},
    )
