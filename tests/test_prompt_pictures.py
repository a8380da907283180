# SPDX-License-Identifier: Apache-2.0
"""A picture within a prompt is never lost: it becomes a file, or stays in the text."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.store.artifacts import ArtifactFolder
from tests.processes import SOUND_PNG, check, one, rows
from tests.recorded import recording

RUN = base64.b64encode(SOUND_PNG).decode()
URL = f"data:image/png;base64,{RUN}"


def prompt(words: str) -> list[dict[str, object]]:
    """A message with a text and a picture, and a longer text with the picture in it."""
    return [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": words},
                {"type": "image_url", "image_url": {"url": URL}},
            ],
        },
        {"role": "user", "content": f"{'before ' * 60}{URL}, {URL} after"},
    ]


def test_where_no_file_can_be_written_the_bytes_stay_in_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The prompt is whole; it is told once; a later message has a file again."""
    directory = tmp_path / "history"

    def refuse(folder: ArtifactFolder, data: bytes, extension: str) -> None:
        raise PermissionError(13, "no entry")

    with recording(directory) as tasks, tasks.task("a goal") as task:
        with monkeypatch.context() as patch:
            patch.setattr(ArtifactFolder, "put", refuse)
            for number in range(2):
                with task.step() as step:
                    step.prompt(prompt(f"{number}"))
        assert one(directory, "SELECT count(*) FROM _artifacts") == 0
        with task.step() as step:
            step.prompt(prompt("2"))
    with TaskHistory(directory) as history:
        first, second, third = history.steps("latest")
    for step_, words in ((first, "0"), (second, "1")):
        assert step_.prompt is not None
        assert step_.prompt.count(RUN) == 3
        assert json.loads(step_.prompt)[0]["parts"][0]["content"] == words
    assert third.prompt is not None
    # Its first message is new; its second is the very one that is there already.
    new, known = json.loads(third.prompt)
    assert (RUN in json.dumps(new), json.dumps(new).count("artifact:sha256:")) == (False, 1)
    assert known == json.loads(second.prompt or "")[1]
    assert rows(directory, "SELECT DISTINCT status, role FROM screenshots") == [("ok", "input")]
    told = [record for record in caplog.records if "kept within the text" in record.getMessage()]
    assert len(told) == 1
    check(directory)


def test_some_of_several_pictures_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stands where it stood, as a reference or as it came."""
    directory = tmp_path / "history"
    other = SOUND_PNG + b"\0"
    put = ArtifactFolder.put

    def refuse(folder: ArtifactFolder, data: bytes, extension: str) -> object:
        if data == other:
            raise PermissionError(13, "no entry")
        return put(folder, data, extension)

    monkeypatch.setattr(ArtifactFolder, "put", refuse)
    mixed = base64.b64encode(other).decode()
    text = f"{'x' * 300} {RUN} {mixed} {RUN} {mixed} end"
    with recording(directory) as tasks, tasks.task("a goal") as task, task.step() as step:
        step.prompt(text)
    with TaskHistory(directory) as history:
        (shown,) = history.steps("latest")
    reference = f"artifact:sha256:{one(directory, 'SELECT sha256 FROM _artifacts')}"
    assert shown.prompt == text.replace(RUN, reference)


def test_values_without_an_exact_representation_are_counted(tmp_path: Path) -> None:
    """Spans that hold any, once each; those that are reduced as a whole are counted as that."""
    directory = tmp_path / "history"
    with recording(directory) as tasks:
        with tasks.task("a goal") as task:
            with task.step() as step:
                step.prompt("half of an emoji \ud83e")
                step.decision("whole")
            with task.step() as step:
                step.prompt("whole")
        sink = tasks._recorder.sink()
        assert sink is not None
        stats = sink.stats()  # type: ignore[attr-defined]
    assert (stats["marked"], stats["reduced"]) == (1, 0)
    assert one(directory, "SELECT count(*) FROM spans WHERE marks IS NOT NULL") == 1
