# SPDX-License-Identifier: Apache-2.0
"""Agents in a process of their own, for `bench.slow_disk`: a line of JSON in, a line out.

``["threads", 32, 2.0]`` lets so many of them work for so many seconds; the answer is the list of
how many steps a second they did together. ``["cpu", 1, 2.0]`` answers with ms of CPU a step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import Any, Final

from bench import ours
from bench.peers import workload
from otel_taskhistory.recording.handles import Step

PROMPT: Final = 8
"""Messages that a prompt is kept to."""


class Agent:
    """Takes steps of 1 KB of new text each."""

    def __init__(self, recorded: ours.Recorder, number: int) -> None:
        self._tasks = recorded.tasks
        self._number = number
        self._said = 0
        # Texts are made before: making them would count as time that recording takes.
        texts = workload.Texts(time.time_ns() + number)
        self._texts = [texts.text(250) for _ in range(64)]
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": self._texts[0]}]
        self.steps = 0

    def work(self, until: float) -> None:
        """In a thread."""
        with self._tasks.task(f"goal {self._number}") as task:
            while time.monotonic() < until:
                with task.step("look") as step:
                    self._take(step)

    async def work_async(self, until: float) -> None:
        """As an asyncio task."""
        async with self._tasks.task(f"goal {self._number}") as task:
            while time.monotonic() < until:
                async with task.step("look") as step:
                    self._take(step)
                await asyncio.sleep(0)  # what else an agent waits for, without the waiting

    def _take(self, step: Step) -> None:
        self._messages.append({"role": "user", "content": self._text()})
        step.prompt(self._messages, model="large")
        answer = self._text()
        step.decision(answer, usage={"input_tokens": 500, "output_tokens": 60})
        with step.tool_call("open", {"page": self._text()}, call_id="c") as call:
            call.result(self._text())
        step.result("looked")
        self._messages.append({"role": "assistant", "content": answer})
        if len(self._messages) > PROMPT:
            del self._messages[1:3]
        self.steps += 1

    def _text(self) -> str:
        # Another one each time, though its words are the same.
        self._said += 1
        return f"{self._number}.{self._said} {time.time_ns()} {self._texts[self._said % 64]}"


def steps_a_second(recorded: ours.Recorder, kind: str, number: int, seconds: float) -> float:
    """How many steps so many agents take together."""
    workers = [Agent(recorded, index) for index in range(number)]
    began = time.monotonic()
    until = began + seconds
    if kind == "asyncio":
        asyncio.run(_all(workers, until))
    else:
        threads = [threading.Thread(target=worker.work, args=(until,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    took = time.monotonic() - began
    ours.settle(recorded.exporter)
    return sum(worker.steps for worker in workers) / took


async def _all(workers: list[Agent], until: float) -> None:
    await asyncio.gather(*(worker.work_async(until) for worker in workers))


def main() -> None:
    """Answer until there is nothing more."""
    with ours.recorder(durability="full") as recorded:
        ours.warm(recorded)
        for line in sys.stdin:
            kind, number, seconds = json.loads(line)
            if kind == "cpu":
                cpu = time.process_time()
                rate = steps_a_second(recorded, "threads", number, seconds)
                answer = (time.process_time() - cpu) * 1000 / (rate * seconds)
            else:
                answer = steps_a_second(recorded, kind, number, seconds)
            print(json.dumps([answer]), flush=True)


if __name__ == "__main__":
    main()
