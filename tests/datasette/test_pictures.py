# SPDX-License-Identifier: Apache-2.0
"""Pictures by their hash: typed from content, nothing in them runs, nothing else is given out."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from otel_taskhistory.datasette_plugin import pictures
from otel_taskhistory.datasette_plugin.answers import FILE_POLICY
from otel_taskhistory.thumbnails import SIZES, make_thumbnail, placeholder
from tests.recorded import PICTURES, recording

from .conftest import Open
from .recorded_here import Recorded, sha256_of

SHOWN = {
    ".gif": "image/gif",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
LIES = {
    "jpeg_named.png": "image/jpeg",
    "png_named.jpg": "image/png",
    "html_named.png": None,
    "text_named.jpg": None,
    "svg_script.svg": None,
    "zero_byte.png": None,
}
"""Files that are not what their name says; None for what is no picture."""

KEPT = "private, max-age=31536000, immutable"


def stored(recorded: Recorded) -> dict[str, Path]:
    """By hash, every file of the artifact folder."""
    return {
        path.stem: path for path in recorded.artifacts.glob("*/*") if not path.name.startswith(".")
    }


def file_of(recorded: Recorded, name: str) -> Path:
    """Where a picture of the test data is stored."""
    return stored(recorded)[sha256_of(name)]


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
async def test_a_picture_is_what_its_content_says(
    datasette: Any, recorded: Recorded, path: Path
) -> None:
    """Byte for byte, of a type that cannot run; all else is a file to be saved."""
    response = await datasette.client.get(f"/-/taskhistory/artifacts/{sha256_of(path.name)}")
    if sha256_of(path.name) not in stored(recorded):  # nothing was there to be stored
        assert path.name == "zero_byte.png"
        assert response.status_code == 404
        return
    assert response.status_code == 200
    assert hashlib.sha256(response.content).hexdigest() == sha256_of(path.name)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"] == FILE_POLICY
    assert response.headers["cache-control"] == KEPT
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    wanted = LIES[path.name] if path.name in LIES else SHOWN[path.suffix]
    way = response.headers["content-disposition"].partition(";")[0]
    if wanted is None:
        assert response.headers["content-type"] == "application/octet-stream"
        assert way == "attachment"
    else:
        assert response.headers["content-type"] == wanted
        assert way == "inline"


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
async def test_a_thumbnail_is_a_small_picture(
    datasette: Any, recorded: Recorded, path: Path
) -> None:
    """Of every picture; of what cannot be seen a placeholder, for ever, as the hash is for ever."""
    sha256 = sha256_of(path.name)
    for width in (None, *SIZES):
        size = "" if width is None else f"?w={width}"
        response = await datasette.client.get(f"/-/taskhistory/thumbnails/{sha256}{size}")
        if sha256 not in stored(recorded):
            assert response.status_code == 404
            continue
        made = make_thumbnail(await asyncio.to_thread(path.read_bytes), width or 320)
        assert (response.status_code, response.content) == (200, made.data)
        assert response.headers["content-type"] == made.media_type
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == FILE_POLICY
        assert response.headers["cache-control"] == KEPT


@pytest.mark.parametrize("kind", ["artifacts", "thumbnails"])
@pytest.mark.parametrize(
    "sha256",
    [
        "",
        "0" * 63,
        "0" * 65,
        "G" * 64,
        "..%2f..%2fhistory.db",
        "%2e%2e/%2e%2e/etc/passwd",
        "%2fetc%2fpasswd",
        "0" * 64 + "%00.png",
        "0" * 64 + "%0a",
        "٣" * 64,
        ".otel-taskhistory.json",
    ],
)
async def test_what_is_no_hash_is_nothing(datasette: Any, kind: str, sha256: str) -> None:
    """Only 64 hex digits name a picture; no path, no other file of the folder."""
    address = f"/-/taskhistory/{kind}/{sha256}"
    # Datasette tries another way of writing an address that it does not know.
    response = await datasette.client.get(address, follow_redirects=True)
    assert response.status_code == 404
    assert b"SQLite" not in response.content
    assert b"root:" not in response.content
    assert "immutable" not in response.headers.get("cache-control", "")


async def test_a_hash_in_capitals_is_another_name(datasette: Any) -> None:
    """One picture has one address."""
    sha256 = sha256_of("png_ok.png").upper()
    assert (await datasette.client.get(f"/-/taskhistory/artifacts/{sha256}")).status_code == 404


async def test_a_file_that_no_row_names_is_not_given_out(
    datasette: Any, recorded: Recorded
) -> None:
    """Also when it lies in the artifact folder under its true hash."""
    data = b"\x89PNG\r\n\x1a\n stray"
    sha256 = hashlib.sha256(data).hexdigest()
    folder = recorded.artifacts / sha256[:2]
    folder.mkdir(exist_ok=True)
    (folder / f"{sha256}.png").write_bytes(data)
    for kind in ("artifacts", "thumbnails"):
        response = await datasette.client.get(f"/-/taskhistory/{kind}/{sha256}")
        assert response.status_code == 404
        assert response.headers["cache-control"] == "no-store"


async def test_a_file_that_is_gone_or_another_is_not_there(
    datasette: Any, recorded: Recorded
) -> None:
    """404, with a picture for those who look at a page; not kept, for it may come back."""
    gone, other = file_of(recorded, "png_ok.png"), file_of(recorded, "png_rgba.png")
    gone.unlink()
    other.write_bytes(b"<script>alert(1)</script>")
    for name in ("png_ok.png", "png_rgba.png"):
        response = await datasette.client.get(f"/-/taskhistory/artifacts/{sha256_of(name)}")
        assert response.status_code == 404
        assert b"alert" not in response.content
        small = await datasette.client.get(f"/-/taskhistory/thumbnails/{sha256_of(name)}")
        assert (small.status_code, small.content) == (404, placeholder(320).data)
        assert small.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_link_out_of_the_folder_is_not_followed(
    datasette: Any, recorded: Recorded, tmp_path: Path, what: str
) -> None:
    """Neither the file nor its folder may be one, even when the content is right."""
    path = file_of(recorded, "png_ok.png")
    outside = tmp_path / "outside" / path.parent.name
    outside.mkdir(parents=True)
    shutil.copy(path, outside)
    if what == "file":
        path.unlink()
        path.symlink_to(outside / path.name)
    else:
        shutil.rmtree(path.parent)
        path.parent.symlink_to(outside)
    for kind in ("artifacts", "thumbnails"):
        address = f"/-/taskhistory/{kind}/{sha256_of('png_ok.png')}"
        assert (await datasette.client.get(address)).status_code == 404


@pytest.mark.parametrize("wanted", ["0", "161", "-160", "100000", "160.0", "0160", "x", "٣٢٠"])
async def test_other_sizes_are_refused(datasette: Any, wanted: str) -> None:
    """So that nobody has thousands of each picture made."""
    address = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}?w={wanted}"
    assert (await datasette.client.get(address)).status_code == 400


async def test_one_thumbnail_is_made_once_however_many_ask(
    datasette: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who come while it is being made wait for it; one who goes away does not end it."""
    made: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(data: bytes, width: int) -> Any:
        made.append(width)
        begun.set()
        assert go_on.wait(60)
        return make_thumbnail(data, width)

    monkeypatch.setattr(pictures, "make_thumbnail", slow)
    address = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}?w=160"
    waiting = [asyncio.create_task(datasette.client.get(address)) for _ in range(20)]
    await asyncio.to_thread(begun.wait, 60)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    assert waiting[0].cancelled()
    go_on.set()
    responses = await asyncio.gather(*waiting[1:])
    assert {response.status_code for response in responses} == {200}
    assert len({response.content for response in responses}) == 1
    assert (await datasette.client.get(address)).status_code == 200
    assert made == [160]


async def test_a_page_of_many_pictures_is_made_by_two_at_a_time(
    directory: Path, open_datasette: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are asked for at once: the others wait without a picture in memory."""
    with recording(directory) as tasks, tasks.task("many") as task, task.step("many") as step:
        for number in range(60):
            buffer = io.BytesIO()
            Image.new("RGB", (30, 20), (number, 0, 0)).save(buffer, "PNG")
            step.screenshot(buffer.getvalue())
    now, most = 0, 0
    lock = threading.Lock()

    def counted(data: bytes, width: int) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        made = make_thumbnail(data, width)
        with lock:
            now -= 1
        return made

    monkeypatch.setattr(pictures, "make_thumbnail", counted)
    datasette = await open_datasette(directory / "history.db")
    hashes = [path.stem for path in (directory / "artifacts").glob("*/*")]
    assert len(hashes) == 60
    responses = await asyncio.gather(
        *(datasette.client.get(f"/-/taskhistory/thumbnails/{sha256}") for sha256 in hashes)
    )
    assert {response.status_code for response in responses} == {200}
    assert len({response.content for response in responses}) > 30
    assert 1 <= most <= 2


async def test_what_is_kept_is_bounded(
    datasette: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes; asked for again it is made again."""
    made: list[int] = []

    def counted(data: bytes, width: int) -> Any:
        made.append(width)
        return make_thumbnail(data, width)

    monkeypatch.setattr(pictures, "make_thumbnail", counted)
    monkeypatch.setattr(pictures, "_KEPT_BYTES", 4_000)
    first = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}"
    answer = await datasette.client.get(first)
    await datasette.client.get(first)
    assert made == [320]
    for name in ("png_1bit.png", "png_rgba.png", "jpeg_gray.jpg"):
        await datasette.client.get(f"/-/taskhistory/thumbnails/{sha256_of(name)}")
    assert (await datasette.client.get(first)).content == answer.content
    assert len(made) == 5


async def test_thumbnails_leave_no_file(
    datasette: Any, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither beside the history nor anywhere in the home of its user."""
    home = Path(os.environ["HOME"])

    def everything() -> list[str]:
        return sorted(str(path) for root in (recorded.directory, home) for path in root.rglob("*"))

    before = everything()
    for sha256 in stored(recorded):
        await datasette.client.get(f"/-/taskhistory/thumbnails/{sha256}")
    assert everything() == before
