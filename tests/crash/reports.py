# SPDX-License-Identifier: Apache-2.0
"""What the agent said before it was killed, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.crash.scripted import Place

CHECKPOINTS: Final = ("step", "prompt", "decision", "tool", "shot")
"""Reports of calls that return without waiting for a commit in progress, in their order."""


@dataclass(slots=True)
class SeenStep:
    """One step, as far as it was reported."""

    step_id: str
    task_id: str
    place: Place
    confirmed: set[str] = field(default_factory=set)
    """Which of its checkpoints must be in the history."""
    returned: list[str] = field(default_factory=list)
    """Its checkpoints that have returned, in their order, ``shot`` perhaps several times."""
    shots: list[int] = field(default_factory=list)
    """Numbers of the pictures, in their order."""
    confirmed_shots: int = 0
    tool_ended: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """All that an agent reported."""

    opening: bool
    """It was about to open the history."""
    open: bool
    closed: bool
    """It closed the history."""
    tasks: dict[str, bool]
    """By task id: whether its end had returned."""
    steps: list[SeenStep]
    """In the order of their starts."""
    unconfirmed: int
    """Checkpoints that had returned while others were being committed, just before the end."""


def read(lines: Iterable[str], *, alone: bool) -> Seen:
    """Make sense of reports.

    A checkpoint is committed before it returns when nobody else is committing, so with one thread
    (`alone`) always. With several it may be left to the next commit. Commits are in the order of
    the calls: when an end was called after the checkpoint had returned, and has itself returned,
    then the checkpoint must be there too.
    """
    reports = [line.split() for line in lines]
    certain = len(reports) if alone else _certain(reports)
    tasks: dict[str, bool] = {}
    steps: dict[str, SeenStep] = {}
    current: dict[str, str] = {}
    unconfirmed = 0
    for position, words in enumerate(reports):
        kind = words[0]
        if kind == "task":
            current[words[1]] = words[2]
            tasks[words[2]] = False
        elif kind == "ended":
            if words[2] == "task":
                tasks[words[3]] = True
            elif words[2] == "step":
                steps[words[3]].ended = True
            else:
                steps[words[3]].tool_ended = True
        elif kind in CHECKPOINTS:
            if kind == "step":
                step = SeenStep(words[2], current[words[1]], Place.of(words[3]))
                steps[words[2]] = step
            step = steps[words[2]]
            step.returned.append(kind)
            if kind == "shot":
                step.shots.append(int(words[3]))
            if position < certain:
                step.confirmed.add(kind)
                step.confirmed_shots = len(step.shots)
            else:
                unconfirmed += 1
    said = {words[0] for words in reports}
    return Seen(
        "opening" in said,
        "open" in said,
        "closed" in said,
        tasks,
        list(steps.values()),
        unconfirmed,
    )


def _certain(reports: list[list[str]]) -> int:
    """The reports before this one are of checkpoints that must have been committed."""
    called: dict[tuple[str, ...], int] = {}
    last = 0
    for position, words in enumerate(reports):
        if words[0] == "ending":
            called[tuple(words[1:])] = position
        elif words[0] == "ended":
            last = max(last, called[tuple(words[1:])])
    return last
