# SPDX-License-Identifier: Apache-2.0
"""What answers are made of: texts that are cut and say so, names, tokens, pictures."""

from __future__ import annotations

from otel_taskhistory.history import Screenshot, TaskHistory
from otel_taskhistory.mcp import results
from otel_taskhistory.mcp.texts import name, piece
from otel_taskhistory.store.views import ModelCall, Step, Task


def text_of(value: str | None, most: int, ask: str) -> results.Text | None:
    """A text, cut after so many characters; then it says how to `ask` for the rest."""
    if value is None:
        return None
    beginning = piece(value, most)
    return results.Text(text=beginning.text, truncated=beginning.note(ask))


def continued(value: str | None, most: int, part: str) -> results.Text | None:
    """A text whose rest is asked for where it was cut."""
    if value is None:
        return None
    beginning = piece(value, most)
    ask = f"ask get_text with {part}, offset={beginning.characters}"
    return results.Text(text=beginning.text, truncated=beginning.note(ask))


def some(text: results.Text | None) -> results.Text:
    """A text where there must be one."""
    return results.Text(text="") if text is None else text


def part_of_step(step: Step, part: str) -> str:
    """What to ask `get_text` with for a value of a step."""
    return f"task_id={step.task_id!r}, step={step.step_id!r}, part={part!r}"


def named(text: str | None) -> str | None:
    """A name, short and visible; None when there is none."""
    return None if text is None else name(text)


def used(row: Task | Step | ModelCall) -> results.Used:
    """The tokens that something took."""
    return results.Used(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_tokens=row.cached_tokens,
        reasoning_tokens=row.reasoning_tokens,
        cost=row.cost,
    )


def picture_of(history: TaskHistory, picture: Screenshot) -> results.Picture:
    """A picture, and where its file is."""
    file = None
    if picture.path is not None:
        try:
            file = str(history.artifact(picture.path))
        except ValueError:  # not one of ours: a path that came with an imported span
            file = None
    return results.Picture(
        role=picture.role,
        sha256=name(picture.sha256),
        file=file,
        media_type=name(picture.media_type),
        width=picture.width,
        height=picture.height,
        bytes=picture.bytes,
        caption=named(picture.caption),
        status=picture.status,
    )
