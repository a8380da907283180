# SPDX-License-Identifier: Apache-2.0
"""Archives: whole tasks with their pictures, in and out; and what is no archive changes nothing."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory import TaskHistory
from otel_taskhistory.cli import cli
from tests.corpus.tables import RECORDINGS
from tests.recorded import PICTURES, chat, data_url, one_task, recording
from tests.store.deliveries import check, public

PICTURE = PICTURES / "png_rgba.png"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of two tasks of ours, with pictures, and one of a framework."""
    directory = tmp_path_factory.mktemp("original") / "history"
    with recording(directory) as tasks:
        one_task(tasks, "first", steps=3)
        with tasks.task("pictures", agent="desk") as task, task.step() as step:
            image = {"type": "image_url", "image_url": {"url": data_url("png_ok.png")}}
            step.prompt([*chat("look"), {"role": "user", "content": [image]}], model="m")
            step.screenshot(PICTURE, caption="before")
    run("import", RECORDINGS / "strands__native-latest__tools.jsonl", to=directory)
    return directory


@pytest.fixture(scope="module")
def archive(original: Path) -> Path:
    """An archive of all of it."""
    target = original.parent / "all.zip"
    run("export", "--all", "-o", target, to=original)
    return target


def invoke(*arguments: str | Path, to: Path) -> Result:
    """What the command says."""
    return CliRunner().invoke(cli, [*map(str, arguments), "--directory", str(to)])


def run(*arguments: str | Path, to: Path) -> Result:
    """Likewise; it must succeed."""
    result = invoke(*arguments, to=to)
    assert result.exit_code == 0, result.output
    return result


def tables(directory: Path) -> dict[str, Any]:
    """Everything public but by whom it was committed here."""
    check(directory / "history.db")
    found: dict[str, Any] = public(directory / "history.db")
    tasks = [json.loads(row) for row in found["tasks"]]
    found["tasks"] = [{key: row[key] for key in row if key != "process"} for row in tasks]
    return found


def test_the_copy_is_whole_and_makes_the_same_archive(
    original: Path, archive: Path, tmp_path: Path
) -> None:
    """Rows, pictures and, exported again, every byte."""
    there = tmp_path / "there"
    run("import", archive, to=there)
    assert tables(there) == tables(original)
    with TaskHistory(there) as history:
        (shot,) = (
            shot
            for task in history.tasks()
            for shot in history.screenshots(task.task_id)
            if shot.role == "screenshot"
        )
        assert shot.status == "ok"
        assert history.artifact(str(shot.path)).read_bytes() == PICTURE.read_bytes()
    run("export", "--all", "-o", tmp_path / "again.zip", to=there)
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_to_import_again_changes_nothing(original: Path, archive: Path) -> None:
    """Also into the history from which it came."""
    before = tables(original)
    result = run("import", archive, to=original)
    assert "4 tasks, 4 of them the same before" in result.output
    assert tables(original) == before


def test_another_version_of_a_task_is_refused_as_a_whole(
    original: Path, archive: Path, tmp_path: Path
) -> None:
    """It names the task and both ways on; nothing of the archive is in."""
    there = tmp_path / "there"
    with TaskHistory(original) as history:
        task_id = next(task.task_id for task in history.tasks() if task.goal == "first")
    run("export", task_id, "-o", tmp_path / "one.jsonl", to=original)
    changed = (tmp_path / "one.jsonl").read_bytes().replace(b"all done", b"all won!")
    (tmp_path / "one.jsonl").write_bytes(changed)
    run("import", tmp_path / "one.jsonl", to=there)
    before = tables(there)
    result = invoke("import", archive, to=there)
    assert result.exit_code == 1
    assert task_id in result.output
    assert "--as-new" in result.output
    assert tables(there) == before
    assert not list((there / "artifacts").rglob("*.png"))


def test_a_copy_beside_the_original(original: Path, archive: Path, tmp_path: Path) -> None:
    """New ids everywhere, a link to the original, and the same story."""
    there = tmp_path / "there"
    run("import", archive, to=there)
    run("import", "--as-new", archive, to=there)
    with TaskHistory(there) as history:
        tasks = list(history.tasks(kind=None, limit=50))
        firsts = [task for task in tasks if task.goal == "first"]
        assert len(tasks) == 8
        assert len({task.task_id for task in tasks}) == 8
        told = [
            [(step.name, step.status, step.prompt, step.decision) for step in steps]
            for steps in (history.steps(task.task_id) for task in firsts)
        ]
        assert told[0] == told[1]
        copies = history.read(
            lambda c: c.execute(
                "SELECT trace_id, json_extract(links, '$[0].trace_id') FROM spans"
                " WHERE links LIKE '%taskhistory.copy_of%'"
            ).fetchall()
        )
    pairs = {frozenset(pair) for pair in copies}
    assert frozenset(task.trace_id for task in firsts) in pairs
    assert len(pairs) >= 3


def rewritten(archive: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The archive with other members; the manifest stays as it was unless it is changed."""
    with zipfile.ZipFile(archive) as read:
        members = {info.filename: read.read(info) for info in read.infolist()}
    change(members)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as write:
        for name, data in members.items():
            write.writestr(name, data)
    return target


def relisted(members: dict[str, bytes], **said: Any) -> None:
    """Make the manifest agree with the members."""
    manifest = json.loads(members.pop("manifest.json"))
    manifest["members"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in members.items()
    }
    members["manifest.json"] = json.dumps(manifest | said).encode()


def first_of(members: dict[str, bytes], folder: str) -> str:
    """The first member of a folder."""
    return next(name for name in members if name.startswith(folder))


def damage_task(members: dict[str, bytes]) -> None:
    """A byte of a task's lines."""
    name = first_of(members, "tasks/")
    members[name] = members[name].replace(b"spanId", b"spanID")


def damage_picture(members: dict[str, bytes]) -> None:
    """A byte of a picture."""
    name = first_of(members, "artifacts/")
    members[name] = members[name][:-1] + b"x"


def add_outside(members: dict[str, bytes]) -> None:
    """A path that leads out."""
    members["../../x"] = b"x"
    relisted(members)


def add_absolute(members: dict[str, bytes]) -> None:
    """A path from the root."""
    members["/etc/x"] = b"x"
    relisted(members)


def add_unlisted(members: dict[str, bytes]) -> None:
    """What no manifest names."""
    members["tasks/" + "a" * 32 + ".jsonl"] = b""


def take_away(members: dict[str, bytes]) -> None:
    """What the manifest names is not there."""
    del members[first_of(members, "artifacts/")]


def rename_picture(members: dict[str, bytes]) -> None:
    """A picture under the name of another."""
    members["artifacts/" + "a" * 64 + ".png"] = members.pop(first_of(members, "artifacts/"))
    relisted(members)


def newer(members: dict[str, bytes]) -> None:
    """Of a version to come."""
    relisted(members, version=2)


def other_zip(members: dict[str, bytes]) -> None:
    """Any other zip."""
    members.clear()
    members["a.txt"] = b"hello"


def wrong_trace(members: dict[str, bytes]) -> None:
    """A task's lines under the name of another."""
    name = first_of(members, "tasks/")
    members["tasks/" + "b" * 32 + ".jsonl"] = members.pop(name)
    ids = sorted(name[6:-6] for name in members if name.startswith("tasks/"))
    relisted(members, tasks=ids)


def bad_line(members: dict[str, bytes]) -> None:
    """A line that is no OTLP."""
    members[first_of(members, "tasks/")] += b"{nothing\n"
    relisted(members)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (damage_task, "sha256 differs"),
        (damage_picture, "sha256 differs"),
        (add_outside, "no place in an archive"),
        (add_absolute, "no place in an archive"),
        (add_unlisted, "not what its manifest lists"),
        (take_away, "not what its manifest lists"),
        (rename_picture, "not named after what is in it"),
        (newer, "pip install --upgrade"),
        (other_zip, "no archive of otel-taskhistory"),
        (wrong_trace, "of another trace"),
        (bad_line, "cannot be read"),
    ],
)
def test_nothing_of_a_wrong_archive_is_imported(
    archive: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], told: str
) -> None:
    """One sentence with the cause, and no row, no file."""
    wrong = rewritten(archive, tmp_path / "wrong.zip", change)
    result = invoke("import", wrong, to=tmp_path / "there")
    assert result.exit_code == 1
    assert told in result.output
    is_empty(tmp_path / "there")


def is_empty(directory: Path) -> None:
    """No task and no file; nothing outside either."""
    if (directory / "history.db").exists():
        assert not any(tables(directory).values())
    assert not list((directory / "artifacts").rglob("*.png"))
    assert not (directory.parent / "x").exists()
    assert not (directory.parent.parent / "x").exists()


def test_a_cut_archive_is_told(archive: Path, tmp_path: Path) -> None:
    """As from a download that broke off."""
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-100])
    result = invoke("import", cut, to=tmp_path / "there")
    assert result.exit_code == 1
    assert "damaged or cut" in result.output
    is_empty(tmp_path / "there")


def test_a_size_that_is_a_lie_costs_nothing(archive: Path, tmp_path: Path) -> None:
    """A member that expands beyond what it says is left at that."""
    bomb = rewritten(
        archive,
        tmp_path / "bomb.zip",
        lambda members: members.update({first_of(members, "tasks/"): b"\n" * 50_000_000}),
    )
    result = invoke("import", bomb, to=tmp_path / "there")
    assert result.exit_code == 1
    assert "not as large" in result.output
    is_empty(tmp_path / "there")


def test_two_members_of_one_name_are_refused(archive: Path, tmp_path: Path) -> None:
    """Which of the two would be meant?"""
    double = tmp_path / "double.zip"
    double.write_bytes(archive.read_bytes())
    with zipfile.ZipFile(double, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("manifest.json", "{}")
    result = invoke("import", double, to=tmp_path / "there")
    assert result.exit_code == 1
    assert "same name" in result.output


def test_an_encrypted_member_is_refused(archive: Path, tmp_path: Path) -> None:
    """It is told, not asked for a password."""
    data = bytearray(archive.read_bytes())
    at = data.find(b"PK\x01\x02")
    flags = struct.unpack_from("<H", data, at + 8)[0]
    struct.pack_into("<H", data, at + 8, flags | 1)
    locked = tmp_path / "locked.zip"
    locked.write_bytes(data)
    result = invoke("import", locked, to=tmp_path / "there")
    assert result.exit_code == 1
    assert "encrypted" in result.output


def test_as_new_is_for_archives(tmp_path: Path) -> None:
    """Lines have no copies."""
    (tmp_path / "a.jsonl").write_text("{}")
    result = invoke("import", "--as-new", tmp_path / "a.jsonl", to=tmp_path / "there")
    assert result.exit_code == 1
    assert "no archive" in result.output
