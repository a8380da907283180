# SPDX-License-Identifier: Apache-2.0
"""Mark 6: `step.screenshot` of 1080p pictures against write, fsync and rename of the same bytes.

Once with the bytes of a PNG, as browsers give them, and once with a PIL image, against the fastest
lossless encoding that Pillow has in a format we keep, with the same writing after it. (PNG without
compression is in the table, but no floor: it takes six times the disk.) Every picture is another
one. What is measured is the call: the rows of a picture come with the next
commit, which is not waited for when another one is in progress.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw

from bench import ours
from bench.harness import Benchmark, Check, Result, Series, measure, ratio
from otel_taskhistory.recording.handles import Task

ABOUT: Final = Benchmark(6, "step.screenshot() of 1080p, against write + fsync + rename")

PER_ROUND: Final = 5
WIDTH, HEIGHT = 1920, 1080

FORMATS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "PNG, level 0": ("PNG", {"compress_level": 0}),
    "PNG, level 1": ("PNG", {"compress_level": 1}),
    "PNG, level 2": ("PNG", {"compress_level": 2}),
    "PNG, level 1, run lengths": ("PNG", {"compress_level": 1, "compress_type": 3}),
    "WebP, method 0": ("WEBP", {"lossless": True, "quality": 0, "method": 0}),
}
"""Lossless encodings; which one is the fastest, with its bytes written, is measured first."""
NOT_COMPRESSED: Final = "PNG, level 0"


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    rounds = 2 if quick else 30
    result = Result("screenshots", ABOUT, quick)
    pictures = Pictures()
    with ours.folder() as folder:
        tried = measure(
            1 if quick else 7,
            {name: _encoded(folder, pictures, *how) for name, how in FORMATS.items()},
        )
    compressed = [series for series in tried if series.name != NOT_COMPRESSED]
    fastest = min(compressed, key=lambda series: series.median)
    with _task() as (task, folder):
        sides = {
            "screenshot(bytes of a PNG)": _taken(task, lambda: encode(pictures.next())),
            "the bytes written": _written(folder, lambda: encode(pictures.next())),
        }
        series = measure(rounds, sides, than="the bytes written")
        result.series += series
        result.checks.append(Check("bytes: times writing them", ratio(*series), 1.3))
    with _task() as (task, folder):
        floor = f"Pillow's {fastest.name}, written"
        sides = {
            "screenshot(PIL image)": _taken(task, pictures.next),
            floor: _encoded(folder, pictures, *FORMATS[fastest.name]),
        }
        series = measure(rounds, sides, than=floor)
        result.series += series
        result.checks.append(Check("PIL image: times encoding and writing", ratio(*series), 1.2))
    result.series += [
        Series(f"tried: {found.name}", found.rounds, "ms", f"tried: {fastest.name}")
        if found is not fastest
        else Series(f"tried: {found.name}", found.rounds)
        for found in tried
    ]
    size = len(encode(pictures.next()))
    result.notes.append(f"Such a picture has about {size / 1000:,.0f} KB as a PNG.")
    return result


class Pictures:
    """Pictures of a screen: areas of one colour, text, and a photograph (a fifth of it)."""

    def __init__(self) -> None:
        self._chance = random.Random(6)
        self._screen = Image.new("RGB", (WIDTH, HEIGHT), "#f5f5f7")
        draw = ImageDraw.Draw(self._screen)
        draw.rectangle((0, 0, WIDTH, 80), fill="#202430")
        draw.rectangle((0, 80, 320, HEIGHT), fill="#e8eaf0")
        for line in range(42):
            text = " ".join(self._word() for _ in range(24))
            draw.text((360, 100 + 23 * line), text, fill="#1a1a1a")
        noise = Image.frombytes("RGB", (160, 135), self._chance.randbytes(160 * 135 * 3))
        photograph = noise.resize((768, 540), Image.Resampling.BICUBIC)
        self._screen.paste(photograph, (1100, 500))

    def next(self) -> Image.Image:
        """The next one: what is typed has changed."""
        picture = self._screen.copy()
        ImageDraw.Draw(picture).text(
            (40, 30), " ".join(self._word() for _ in range(12)), fill="#ffffff"
        )
        return picture

    def _word(self) -> str:
        return "".join(self._chance.choices("abcdefghiklmnoprstuvwy", k=self._chance.randint(2, 9)))


def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a picture; by default as browsers make them."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def write(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or not there, also after power loss."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(data)
        os.fsync(descriptor)
    os.replace(temporary, path)


@contextmanager
def _task() -> Iterator[tuple[Task, Path]]:
    """A task of a history that has been used for a while, and a folder on the same disk."""
    with ours.folder() as folder, ours.recorder(durability="full") as recorded:
        ours.warm(recorded)
        artifacts = recorded.directory / "artifacts"
        # Pictures are spread over 256 folders; that the first in each makes it is not measured.
        for number in range(256):
            (artifacts / f"{number:02x}").mkdir(0o700, parents=True, exist_ok=True)
        with recorded.tasks.task("look") as task:
            yield task, folder


def _taken(task: Task, make: Callable[[], Any]) -> Callable[[], list[float]]:
    def side() -> list[float]:
        with task.step() as step:
            return _times(make, step.screenshot)

    return side


def _written(folder: Path, make: Callable[[], bytes]) -> Callable[[], list[float]]:
    numbers = iter(range(10**6))
    return lambda: _times(make, lambda data: write(folder / f"{next(numbers)}.png", data))


def _encoded(
    folder: Path, pictures: Pictures, kind: str, options: dict[str, Any]
) -> Callable[[], list[float]]:
    numbers = iter(range(10**6))

    def save(picture: Image.Image) -> None:
        write(folder / f"{kind}{next(numbers)}{len(options)}", encode(picture, kind, **options))

    return lambda: _times(pictures.next, save)


def _times(make: Callable[[], Any], use: Callable[[Any], object]) -> list[float]:
    """Ms that the use of each of a few pictures takes, not the making of it."""
    took = []
    for _ in range(PER_ROUND):
        made = make()
        began = time.perf_counter_ns()
        use(made)
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took
