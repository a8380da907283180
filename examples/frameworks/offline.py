# SPDX-License-Identifier: Apache-2.0
"""What the examples of this folder share: a goal, a tool, and a model that says what stands here.

The model needs no network, no key and no money; each example hands its turns to a framework in the
form that this framework's models give. With a real model nothing of this is needed but `show`.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_taskhistory import TaskHistory

SYSTEM: Final = "You keep a storeroom. Count before you answer."
GOAL: Final = "How many of the parts A-17 and B-2 do we have?"
MODEL: Final = "offline-1"

GATE: Final = "OFFLINE_MODEL_GATE"
"""Names a folder when somebody outside wants to say when the model answers, see `Script`."""

_STOCK: Final = {"A-17": 3}
_PATIENCE: Final = 60.0  # seconds; a model that nobody lets answer gives up
_BETWEEN_LOOKS: Final = 0.02


def count_stock(part: str) -> dict[str, object]:
    """Count how many of a part are in the storeroom.

    Args:
        part: number of the part, for example A-17.
    """
    if part not in _STOCK:
        raise LookupError(f"there is no part {part}")
    return {"part": part, "count": _STOCK[part]}


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says once: a text, and maybe one call of the tool."""

    text: str
    call_id: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0


TURNS: Final = (
    Turn("I count A-17.", "call_1", {"part": "A-17"}, 100, 10),
    Turn("Now B-2.", "call_2", {"part": "B-2"}, 150, 12),
    Turn("We have 3 of A-17. There is no part B-2.", None, {}, 200, 14),
)


class Script:
    """The turns, one after the other.

    When `GATE` names a folder, turn N first writes the file ``N.asked`` there, then waits for a
    file ``N.answer`` and fails if that says ``fail``: so that somebody can look at the history
    while the model is thinking, or see what becomes of a run whose model fails.
    """

    def __init__(self) -> None:
        self._asked = 0

    def answer(self) -> Turn:
        """The next turn."""
        number = self._ask()
        until = time.monotonic() + _PATIENCE
        while not _may_answer(number, until):
            time.sleep(_BETWEEN_LOOKS)
        return TURNS[number - 1]

    async def answer_async(self) -> Turn:
        """The next turn, without keeping an event loop from its other work."""
        number = self._ask()
        until = time.monotonic() + _PATIENCE
        while not _may_answer(number, until):  # noqa: ASYNC110 - another process lets it
            await asyncio.sleep(_BETWEEN_LOOKS)
        return TURNS[number - 1]

    def _ask(self) -> int:
        self._asked += 1
        if gate := os.environ.get(GATE):
            Path(gate, f"{self._asked}.asked").touch()
        return self._asked


def _may_answer(number: int, until: float) -> bool:
    """Whether turn `number` may be said now.

    Raises:
        RuntimeError: the model is made to fail.
        TimeoutError: nobody let it answer.
    """
    gate = os.environ.get(GATE)
    if not gate:
        return True
    answer = Path(gate, f"{number}.answer")
    if not answer.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody let the model answer: there is no {answer}")
        return False
    if answer.read_text(encoding="utf-8") == "fail":
        raise RuntimeError("the model is overloaded")
    return True


def show() -> None:
    """Print the latest task of this agent's history, as another program could at any time."""
    with TaskHistory() as history:
        task = history.task("latest")
        print(f"{task.status}: {task.goal}")
        for step in history.steps(task.task_id):
            print(f"  {step.step_index}. {step.status}, agent {step.agent}, model {step.model}")
            for call in history.tool_calls(task.task_id, step.step_id):
                print(f"     {call.name}({call.arguments}): {call.status}, {call.result}")
        print(f"  {task.input_tokens} + {task.output_tokens} tokens; {task.result or task.error}")
