# SPDX-License-Identifier: Apache-2.0
"""Artifacts: rows without files, files without rows, files whose content is another."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.backup import Wanted
from otel_taskhistory.store.doctor.findings import Finding, Progress, some
from otel_taskhistory.store.stamp import ARTIFACT_STAMP
from otel_taskhistory.units import format_size

GRACE_SECONDS: Final = 600.0
"""A file is written before its row; one without a row is no sign of anything before this age."""

_TEMPORARY: Final = re.compile(r"taskhistory-[0-9a-f]{32}\.tmp")
_OF_STAMP: Final = re.compile(re.escape(ARTIFACT_STAMP) + r"\.[0-9a-f]{16}")


def check_artifacts(
    folder: ArtifactFolder, wanted: list[Wanted], known: set[str], *, quick: bool, tell: Progress
) -> Iterator[Finding]:
    """Compare rows and files.

    Args:
        wanted: the files that rows name, read *before* this is called.
        known: paths of all rows, those of files that were never stored too.
        quick: by name and size only, without reading the files.
    """
    old = time.time() - GRACE_SECONDS
    there = {}
    without_row: dict[str, int] = {}
    for path, found in folder.walk():
        there[path] = found.st_size
        if path not in known and found.st_mtime < old:
            without_row[path] = found.st_size
    missing = [artifact.path for artifact in wanted if artifact.path not in there]
    damaged = list(_damaged(folder, wanted, there, quick=quick, tell=tell))
    if missing:
        yield Finding(
            "missing files",
            "error",
            "pictures that the history names have no file",
            "Their steps show size and hash, but no picture.",
            "Bring the files back from a backup, to the same names; else nothing can be done.",
            count=len(missing),
            items=some(missing),
        )
    if damaged:
        yield Finding(
            "damaged files",
            "error",
            "the content of pictures is not what was recorded",
            "Somebody has changed the files, or the disk has.",
            "Bring them back from a backup, to the same names. Check the disk.",
            count=len(damaged),
            items=some(damaged),
        )
    if without_row:
        yield Finding(
            "files without rows",
            "warning",
            f"pictures that no row names take {format_size(sum(without_row.values()))}",
            "An agent died between file and row, or a removal was interrupted.",
            "The next start of an agent removes them, and so does otel-taskhistory doctor --fix.",
            count=len(without_row),
            items=some(sorted(without_row)),
            fixable=True,
        )
    left = [str(path.relative_to(folder.root)) for path in leftovers(folder.root)]
    if left:
        yield Finding(
            "leftovers",
            "warning",
            "temporary files were left behind",
            "An agent died while it wrote them; they are parts of pictures.",
            "otel-taskhistory doctor --fix removes them.",
            count=len(left),
            items=some(left),
            fixable=True,
        )


def _damaged(
    folder: ArtifactFolder,
    wanted: list[Wanted],
    there: dict[str, int],
    *,
    quick: bool,
    tell: Progress,
) -> Iterator[str]:
    total = sum(artifact.size for artifact in wanted if artifact.path in there)
    done = 0
    for artifact in wanted:
        size = there.get(artifact.path)
        if size is None:
            continue
        if size != artifact.size:
            yield f"{artifact.path}: {size} bytes instead of {artifact.size}"
        elif not quick:
            try:
                digest = hashlib.sha256(folder.read(artifact.path)).hexdigest()
                if digest != artifact.sha256:
                    yield f"{artifact.path}: other content of the same size"
            except FileNotFoundError:  # removed meanwhile, with its row
                continue
            except (OSError, ValueError) as error:
                yield f"{artifact.path}: {error}"
        done += artifact.size
        tell("the pictures", done, total)


def leftovers(root: Path) -> Iterator[Path]:
    """Temporary files of ours, past the grace time, in an artifact folder."""
    old = time.time() - GRACE_SECONDS
    for folder in (root, *_fan_out(root)):
        pattern = _OF_STAMP if folder == root else _TEMPORARY
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        yield Path(entry.path)
                except FileNotFoundError:
                    continue


def _fan_out(root: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if re.fullmatch(r"[0-9a-f]{2}", entry.name) and entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
