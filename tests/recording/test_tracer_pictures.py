# SPDX-License-Identifier: Apache-2.0
"""Screenshots: what the sink stores, and what a step says where there is none."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from otel_taskhistory import semconv
from otel_taskhistory.recording import pictures
from otel_taskhistory.recording.tracer import TaskTracer

PNG = b"\x89PNG\r\n\x1a\n and so on"
DIGEST = hashlib.sha256(PNG).hexdigest()


@pytest.fixture
def alone(kit: Any) -> TaskTracer:
    """A tracer that has no sink."""
    return TaskTracer(kit.provider)


def test_a_screenshot_is_stored_by_the_sink_and_an_event_of_the_step(kit: Any) -> None:
    """The event has all that is known; the checkpoint comes after it, the file before it."""
    with kit.tasks.task("g") as task, task.step("s") as step:
        picture = step.screenshot(PNG, caption="the form")
        step.screenshot(PNG)
    assert kit.sink.pictures == [PNG, PNG]
    assert (picture.status, picture.path) == ("ok", "ab/cd.png")
    first, second = kit.one("s").events
    assert first.name == semconv.TASKHISTORY_SCREENSHOT_EVENT
    assert dict(first.attributes) == {
        semconv.TASKHISTORY_SCREENSHOT_SHA256: "ab" * 32,
        semconv.TASKHISTORY_SCREENSHOT_PATH: "ab/cd.png",
        semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE: "image/png",
        semconv.TASKHISTORY_SCREENSHOT_WIDTH: 640,
        semconv.TASKHISTORY_SCREENSHOT_HEIGHT: 480,
        semconv.TASKHISTORY_SCREENSHOT_BYTES: 1234,
        semconv.TASKHISTORY_SCREENSHOT_CAPTION: "the form",
        semconv.TASKHISTORY_SCREENSHOT_STATUS: "ok",
    }
    assert semconv.TASKHISTORY_SCREENSHOT_CAPTION not in second.attributes
    checkpoint = kit.sink.checkpoints[0]
    assert checkpoint.event == "step.screenshot"
    assert checkpoint.events == [semconv.TASKHISTORY_SCREENSHOT_EVENT]
    assert checkpoint.detail == {"sha256": "ab" * 32, "bytes": 1234, "status": "ok"}


def test_no_picture_is_an_empty_screenshot(kit: Any) -> None:
    """A browser that gave none is part of the history."""
    with kit.tasks.task("g") as task, task.step("s") as step:
        assert step.screenshot(None).status == "empty"
    assert kit.sink.pictures == []
    (event,) = kit.one("s").events
    assert event.attributes[semconv.TASKHISTORY_SCREENSHOT_STATUS] == "empty"
    assert event.attributes[semconv.TASKHISTORY_SCREENSHOT_BYTES] == 0
    assert [one.event for one in kit.sink.checkpoints] == ["step.screenshot"]


@pytest.mark.parametrize("given", [bytes, bytearray, memoryview])
def test_without_a_sink_size_and_hash_are_kept(kit: Any, alone: TaskTracer, given: Any) -> None:
    """So that a file kept elsewhere can be found again; no byte of it rides on the span."""
    with alone.task("g") as task, task.step("s") as step:
        picture = step.screenshot(given(PNG), caption="c")
    assert (picture.sha256, picture.bytes, picture.status) == (DIGEST, len(PNG), "not_stored")
    (event,) = kit.one("s").events
    assert dict(event.attributes) == {
        semconv.TASKHISTORY_SCREENSHOT_SHA256: DIGEST,
        semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE: "image/png",
        semconv.TASKHISTORY_SCREENSHOT_BYTES: len(PNG),
        semconv.TASKHISTORY_SCREENSHOT_CAPTION: "c",
        semconv.TASKHISTORY_SCREENSHOT_STATUS: "not_stored",
    }


def test_without_a_sink_a_file_is_read_and_a_pil_image_measured(
    alone: TaskTracer, tmp_path: Path
) -> None:
    """A path may be a str or a Path; a PIL image has a size in pixels."""
    file = tmp_path / "shot.png"
    file.write_bytes(PNG)
    with alone.task("g") as task, task.step() as step:
        for path in (file, str(file)):
            picture = step.screenshot(path)
            assert (picture.sha256, picture.bytes) == (DIGEST, len(PNG))
            assert picture.status == "not_stored"
        drawn = step.screenshot(Image.new("RGB", (3, 2)))
    assert (drawn.width, drawn.height, drawn.bytes) == (3, 2, 18)
    assert drawn.status == "not_stored"


def test_what_is_no_picture_never_fails_the_step(
    kit: Any, alone: TaskTracer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    """Missing, huge, a pipe, a directory, not a picture at all: the event says what it is."""
    monkeypatch.setattr(pictures, "MAX_BYTES", 4)
    large, empty = tmp_path / "large.png", tmp_path / "empty.png"
    large.write_bytes(PNG)
    empty.touch()
    odd: list[tuple[Any, str]] = [
        (large, "too_large"),
        (empty, "empty"),
        (b"", "empty"),
        (tmp_path / "missing.png", "broken"),
        ("nul\0byte", "broken"),
        ("x" * 10_000, "broken"),
        (tmp_path, "unsupported"),
        (42, "unsupported"),
        (object(), "unsupported"),
    ]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        odd.append((tmp_path / "pipe", "unsupported"))
    with alone.task("g") as task, task.step("s") as step:
        assert [step.screenshot(image).status for image, _ in odd] == [how for _, how in odd]
        assert step.screenshot(large).bytes == len(PNG)
    assert kit.status("s") == "succeeded"
    assert told() == []


def test_a_sink_that_fails_costs_the_file_not_the_event(kit: Any, told: Any) -> None:
    """Size and hash are kept, the failure is counted and told without what it was about."""
    with kit.tasks.task("g") as task, task.step("s") as step:
        kit.sink.broken = True
        assert step.screenshot(PNG).status == "not_stored"
    (event,) = kit.one("s").events
    assert event.attributes[semconv.TASKHISTORY_SCREENSHOT_SHA256] == DIGEST
    assert len(told()) == 2  # the picture, and the checkpoint
    assert not any("secret" in line for line in told())
