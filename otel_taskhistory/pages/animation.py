# SPDX-License-Identifier: Apache-2.0
"""The screenshots of a task as an animation with captions, no larger than a limit.

The limit is kept by making the pictures smaller and by leaving some out; it is said how many.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from otel_taskhistory.history import Screenshot
from otel_taskhistory.pages.lettering import Lettering
from otel_taskhistory.pages.pictures import opened
from otel_taskhistory.pages.pieces import brief, error_text
from otel_taskhistory.pages.step_list import is_named
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.store.overview.steps import StepLine
from otel_taskhistory.text import duration, parse_time

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES: Final = 8 * 2**20
"""What most places take where animations are shown."""
MOST_FRAMES: Final = 150
WIDTH: Final = 800
HEIGHT: Final = 800
"""Within these a picture is shown at first."""

_BAR: Final = 46
_SMALLEST: Final = 240
_SHORTEST_MS, _LONGEST_MS, _LAST_MS = 700, 2_500, 3_500
_COLOURS: Final = {"failed": "#a11c2a", "interrupted": "#8a5200", "running": "#1f5fb8"}
_DARK: Final = "#1b2231"


@dataclass(frozen=True, slots=True)
class Animation:
    """What was made.

    Attributes:
        data: the file.
        frames: pictures in it.
        left_out: pictures that are not, for the sake of the limit.
        unreadable: pictures whose files are missing or damaged.
    """

    data: bytes
    frames: int
    left_out: int
    unreadable: int


@dataclass(slots=True)
class _Frame:
    line: StepLine
    shot: Screenshot


def animation(
    whole: WholeTask,
    kind: Literal["GIF", "WEBP"],
    most_bytes: int = MOST_BYTES,
    progress: Callable[[int], None] | None = None,
) -> Animation | None:
    """The animation; None when there is no picture that could be read.

    Args:
        progress: called with the number of each step that was looked at, from 1.
    """
    frames: list[_Frame] = []
    for number, line in enumerate(whole.steps(), start=1):
        shots = whole.history.screenshots(whole.task_id, line.step.step_id)
        own = [shot for shot in shots if shot.role == "screenshot"] or shots
        for shot in own:
            if shot.status == "ok" and (not frames or frames[-1].shot.sha256 != shot.sha256):
                frames.append(_Frame(line, shot))
        if progress is not None:
            progress(number)
    total = len(frames)
    size, every = 1.0, -(-total // MOST_FRAMES) or 1
    while frames:
        chosen = _thinned(frames, every)
        images, missing = _images(whole, chosen, int(WIDTH * size), int(HEIGHT * size))
        if not images:
            return None
        data = _encoded(images, _times([frame for frame, _ in images]), kind)
        if len(data) <= most_bytes or (len(images) <= 2 and WIDTH * size <= _SMALLEST):
            left_out = total - len(chosen)
            return Animation(data, len(images), left_out, missing)
        # Smaller first: what is written stays readable down to about half the size.
        if size > 0.55:
            size *= max(min((most_bytes / len(data)) ** 0.5, 0.9), 0.55)
        elif len(chosen) > 2:
            every += max(every // 2, 1)
        else:
            size *= 0.7
    return None


def _thinned(frames: list[_Frame], every: int) -> list[_Frame]:
    """Every so-manieth picture, those of failed steps and the last one in any case."""
    last = len(frames) - 1
    return [
        frame
        for number, frame in enumerate(frames)
        if number % every == 0
        or number == last
        or (frame.line.step.status == "failed" and every < len(frames) // 4)
    ]


def _images(
    whole: WholeTask, frames: list[_Frame], width: int, height: int
) -> tuple[list[tuple[_Frame, Image]], int]:
    """(pictures with their captions, all of one size; how many could not be read)."""
    from PIL import Image as Images

    shown: list[tuple[_Frame, Image]] = []
    missing = 0
    for frame in frames:
        data = whole.picture(frame.shot.sha256, frame.shot.path)
        picture = None if data is None else opened(data, width, height)
        if picture is None:
            missing += 1
        else:
            shown.append((frame, picture))
    wide = max((picture.width for _, picture in shown), default=0)
    wide = max(wide, min(320, width))
    high = max((picture.height for _, picture in shown), default=0)
    made = []
    for number, (frame, picture) in enumerate(shown, start=1):
        canvas = Images.new("RGB", (wide, high + _BAR), _DARK)
        mask = picture if picture.mode == "RGBA" else None
        canvas.paste(picture.convert("RGB"), ((wide - picture.width) // 2, 0), mask)
        _caption(canvas, frame, number, len(shown), high)
        made.append((frame, canvas))
    return made, missing


def _caption(canvas: Image, frame: _Frame, number: int, total: int, top: int) -> None:
    from PIL import ImageDraw

    step = frame.line.step
    draw = ImageDraw.Draw(canvas)
    large, small = Lettering(15), Lettering(12)
    draw.rectangle((0, top, canvas.width, top + _BAR), fill=_COLOURS.get(step.status, _DARK))
    done = round(canvas.width * number / total)
    draw.rectangle((0, top, done, top + 2), fill="#93a9ff")
    right = duration(step.duration_ms)
    edge = canvas.width - 10 - small.width(right)
    small.draw(draw, (edge, top + 8), right, "#c9d2e6")
    first, second = _words(frame)
    large.draw(draw, (10, top + 6), large.fitting(first, edge - 20), "#ffffff")
    small.draw(draw, (10, top + 26), small.fitting(second, canvas.width - 20), "#c9d2e6")


def _words(frame: _Frame) -> tuple[str, str]:
    step = frame.line.step
    name = step.name if is_named(step.name, step.model) else step.tool_name or ""
    why = error_text(step.error, step.error_type)
    second = why or frame.shot.caption or frame.line.said
    status = "" if step.status == "succeeded" else f" - {step.status}"
    return f"{step.step_index}  {brief(name, 80)}{status}", brief(second, 200)


def _times(frames: list[_Frame]) -> list[int]:
    """How long each picture stays, in ms: as it was, within what is good to watch."""
    moments = [parse_time(frame.shot.captured_at) for frame in frames]
    times = [_between(one, other) for one, other in pairwise(moments)]
    return [*times, _LAST_MS]


def _between(one: datetime | None, other: datetime | None) -> int:
    if one is None or other is None:
        return _SHORTEST_MS
    took = (other - one).total_seconds() * 1000
    return int(min(max(took, _SHORTEST_MS), _LONGEST_MS))


def _encoded(
    images: list[tuple[_Frame, Image]], times: list[int], kind: Literal["GIF", "WEBP"]
) -> bytes:
    from PIL import Image

    pictures = [picture for _, picture in images]
    buffer = io.BytesIO()
    if kind == "GIF":
        pictures = [
            picture.quantize(255, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            for picture in pictures
        ]
        pictures[0].save(
            buffer, "GIF", save_all=True, append_images=pictures[1:], duration=times, loop=0
        )
    else:
        pictures[0].save(
            buffer,
            "WEBP",
            save_all=True,
            append_images=pictures[1:],
            duration=times,
            loop=0,
            quality=70,
            method=3,
        )
    return buffer.getvalue()
