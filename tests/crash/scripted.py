# SPDX-License-Identifier: Apache-2.0
"""What the agents of the crash tests say, computed from the name of a step alone.

So whoever looks into the history afterwards knows what must be there without having been told.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

STEPS: Final = 7
"""Steps of a task at most; its conversation grows with each."""

POOL: Final = 3
"""Pictures that are shown again and again, by all threads; numbers below it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which step it is; all numbers count from 0."""

    round: int
    thread: int
    task: int
    step: int

    @property
    def name(self) -> str:
        """The name of the step."""
        return f"r{self.round}-t{self.thread}-k{self.task}-s{self.step}"

    @classmethod
    def of(cls, name: str) -> Place:
        """The place that a step's name tells."""
        return cls(*(int(part[1:]) for part in name.split("-")))

    @property
    def goal(self) -> str:
        """The goal of its task."""
        return f"goal of r{self.round}-t{self.thread}-k{self.task}"

    @property
    def status(self) -> str:
        """How the step ends."""
        return {4: "failed", 6: "cancelled"}.get(self.step, "succeeded")

    @property
    def decision(self) -> str:
        """What the model answers; up to 40,000 characters."""
        return f"decision of {self.name} " + "because " * (5_000 if self.step == 3 else self.step)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the tool is called with."""
        return {"selector": self.name, "times": self.step}

    @property
    def tool_result(self) -> str:
        """What the tool gives back."""
        return f"tool result of {self.name}"

    @property
    def result(self) -> str:
        """What the step says at its end."""
        return f"result of {self.name}"

    @property
    def screenshots(self) -> tuple[int, ...]:
        """Numbers of the pictures that the step takes: none, a repeated, a fresh one, or both."""
        shots = []
        if self.step % 2:
            shots.append(self.thread % POOL)
        if self.step % 3 != 1:
            shots.append(self._fresh(0))
        return tuple(shots)

    def _fresh(self, which: int) -> int:
        return POOL + int.from_bytes(hashlib.sha256(f"{self.name}/{which}".encode()).digest()[:6])

    @property
    def _seen(self) -> int | None:
        """Number of the picture that the model is shown anew in this step."""
        if self.step % 3 == 0:
            return None
        return self._fresh(1) if self.step % 3 == 1 else (self.thread + 1) % POOL

    def messages(self) -> list[dict[str, Any]]:
        """What is sent to the model: the whole conversation of the task so far."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": f"rules, {self.goal}"}]
        for number in range(self.step + 1):
            place = Place(self.round, self.thread, self.task, number)
            if number:
                messages.append({"role": "assistant", "content": f"answer before {place.name}"})
            text = f"asked in {place.name}"
            seen = place._seen
            if seen is None:
                messages.append({"role": "user", "content": text})
                continue
            url = f"data:image/png;base64,{base64.b64encode(picture(seen)).decode()}"
            messages.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": text},
                        {"type": "image_url", "image_url": {"url": url}},
                    ],
                }
            )
        return messages

    def sent(self) -> list[str]:
        """Texts, and digests of pictures, of `messages` in their order."""
        found = []
        for message in self.messages():
            content = message["content"]
            if isinstance(content, str):
                found.append(content)
                continue
            found.append(content[0]["text"])
            data = content[1]["image_url"]["url"].partition(",")[2]
            found.append(sha256(base64.b64decode(data)))
        return found


def stored(prompt: str) -> list[str]:
    """Likewise of a prompt as it is in the history: GenAI messages as JSON.

    Its pictures are whole, as `TaskHistory` gives them, or named, as the database shows them.

    Raises:
        ValueError, LookupError, TypeError: it is none.
    """
    found = []
    for message in json.loads(prompt):
        for part in message["parts"]:
            content = part["content"]
            if part["type"] == "blob":
                named = content.removeprefix("artifact:sha256:")
                content = named if named != content else sha256(base64.b64decode(content))
            found.append(content)
    return found


@cache
def picture(number: int) -> bytes:
    """A PNG of noise; the same number gives the same bytes."""
    noise = random.Random(number)
    width, height = 40, noise.randrange(8, 160)
    rows = b"".join(b"\0" + noise.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()
