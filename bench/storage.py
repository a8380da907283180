# SPDX-License-Identifier: Apache-2.0
"""Mark 7: bytes on disk of conversations that are sent again, as a whole, with every step.

Text only, and computer use with the last three screenshots as base64. The same spans go to Google
ADK's exporter; the same messages to `llm`'s log. Sizes are those of all files after closing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from bench import ours
from bench.harness import Benchmark, Check, Result, one, say
from bench.peer import peer
from bench.peers import workload
from otel_taskhistory import TaskHistoryExporter

ABOUT: Final = Benchmark(
    7, "bytes on disk of a conversation that is sent again each step", slow=True
)

PER_STEP: Final = 1000
"""Bytes that a step may take beside what it says."""
BATCH: Final = 50
"""Spans that are exported together: only their bytes are looked at here."""
PICTURE_BYTES: Final = 200_000
TEXT: Final[dict[str, Any]] = {"seed": 7}
COMPUTER_USE: Final[dict[str, Any]] = {"seed": 7, "picture": PICTURE_BYTES}


def run(quick: bool) -> Result:
    """See `ABOUT`."""
    result = Result("storage", ABOUT, quick)
    with peer("google-adk", "adk") as adk, peer("llm", "llm_log") as llm:
        result.versions = {**adk.versions, **llm.versions}
        counts = (20, 40) if quick else (200, 2000)
        for steps, times in zip(counts, (25.0, 250.0), strict=True):
            _text(result, steps, times, adk.ask("stored", name="text", steps=steps, talk=TEXT))
        if not quick:
            size = llm.ask("stored", steps=counts[0], talk=TEXT)["bytes"]
            result.series.append(one(f"llm's log, {counts[0]} steps", size, "B"))
        steps = 10 if quick else 50
        _pictures(result, steps, adk.ask("stored", name="use", steps=steps, talk=COMPUTER_USE))
    _doubling(result, (10, 20) if quick else (500, 1000, 2000, 4000))
    return result


def _text(result: Result, steps: int, times: float, adk: dict[str, Any]) -> None:
    say(f"text, {steps} steps ...")
    size, talk, tables = recorded(steps, TEXT)
    mine, theirs = f"ours, {steps} steps of text", f"Google ADK, {steps} steps of text"
    result.series += [one(mine, size, "B"), one(theirs, adk["bytes"], "B", than=mine)]
    result.series.append(one(f"the text itself, {steps} steps", talk.unique_text, "B", than=mine))
    result.checks += [
        Check(
            f"{steps} steps: bytes, times unique text + 1 KB a step",
            size / _allowed(talk, steps),
            2.0,
        ),
        Check(f"{steps} steps: ADK's bytes, times ours", adk["bytes"] / size, times, at_most=False),
    ]
    largest = ", ".join(
        f"{name} {bytes_ / steps:,.0f}" for name, bytes_ in list(tables.items())[:12]
    )
    result.notes.append(f"{steps} steps of text, bytes a step in: {largest}.")


def _pictures(result: Result, steps: int, adk: dict[str, Any]) -> None:
    say(f"pictures, {steps} steps ...")
    size, talk, _ = recorded(steps, COMPUTER_USE)
    mine, theirs = f"ours, {steps} steps of computer use", f"Google ADK, {steps} steps of it"
    result.series += [one(mine, size, "B"), one(theirs, adk["bytes"], "B", than=mine)]
    # What 2.0 × text and 1 KB a step are allowed is taken away first.
    rest = size - 2.0 * _allowed(talk, steps)
    result.checks += [
        Check("bytes beyond those of text, times the pictures'", rest / talk.unique_pictures, 1.05),
        Check("computer use: ADK's bytes, times ours", adk["bytes"] / size, 3.5, at_most=False),
    ]


def _doubling(result: Result, counts: tuple[int, ...]) -> None:
    sizes = []
    for steps in counts:
        say(f"text, {steps} steps ...")
        sizes.append(recorded(steps, TEXT)[0])
    for steps, before, size in zip(counts[1:], sizes, sizes[1:], strict=False):
        result.checks.append(
            Check(f"{steps} steps: bytes, times those of half", size / before, 2.2)
        )


def _allowed(talk: workload.Conversation, steps: int) -> int:
    return talk.unique_text + PER_STEP * steps


def _export(exporter: TaskHistoryExporter, spans: list[ReadableSpan]) -> None:
    exporter.export(spans)
    spans.clear()


def recorded(steps: int, talk: dict[str, Any]) -> tuple[int, workload.Conversation, dict[str, int]]:
    """(bytes of all files, what was said, bytes of each table) of a conversation in a history."""
    conversation = workload.Conversation(**talk)
    with ours.folder() as folder:
        exporter = TaskHistoryExporter(folder / "history", durability="normal")
        provider = TracerProvider(shutdown_on_exit=False)
        collector = workload.Collector()
        provider.add_span_processor(collector)
        for _ in workload.conversation(provider.get_tracer("bench.agent"), steps, conversation):
            if len(collector.spans) >= BATCH:
                _export(exporter, collector.spans)
        _export(exporter, collector.spans)
        ours.settle(exporter)
        exporter.shutdown()
        ours.check(exporter)
        files = [path for path in (folder / "history").rglob("*") if path.is_file()]
        return (
            sum(path.stat().st_size for path in files),
            conversation,
            ours.tables(Path(folder / "history" / "history.db")),
        )
