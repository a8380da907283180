# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import hashlib
import ntpath
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from otel_taskhistory.store import artifacts
from otel_taskhistory.store.artifacts import ArtifactFolder, PutResult

PICTURE = (Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png").read_bytes()
SHA256 = hashlib.sha256(PICTURE).hexdigest()
RELATIVE = f"{SHA256[:2]}/{SHA256}.png"
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and links as POSIX has them")


@pytest.fixture(params=["dir_fd", "paths"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ArtifactFolder:
    """A folder that does not exist yet, also as on a system without dir_fd."""
    if request.param == "paths":
        monkeypatch.setattr(artifacts, "_HAS_DIR_FD", False)
    elif not artifacts._HAS_DIR_FD:
        pytest.skip("no dir_fd here")
    return ArtifactFolder(tmp_path / "artifacts")


@pytest.fixture
def umask() -> Iterator[None]:
    """Put the umask back, whatever the test does with it."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


def _all_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# --- put ---------------------------------------------------------------------------------------


def test_put_and_read(folder: ArtifactFolder) -> None:
    """What was put comes back byte for byte from a path made of its hash."""
    result = folder.put(PICTURE, "png")
    assert result == PutResult(SHA256, RELATIVE, len(PICTURE), created=True)
    assert folder.read(RELATIVE) == PICTURE
    assert folder.path(RELATIVE).read_bytes() == PICTURE
    assert _all_files(folder.root) == [RELATIVE]


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(3_000_000)], ids=["empty", "one", "large"])
def test_any_size(folder: ArtifactFolder, data: bytes) -> None:
    """Nothing is too small or too large to be kept."""
    result = folder.put(data, "bin")
    assert result.size == len(data)
    assert folder.read(result.path) == data


def test_short_writes(folder: ArtifactFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes less than asked for at a time loses nothing."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:100]))
    assert folder.read(folder.put(PICTURE, "png").path) == PICTURE


def test_the_same_picture_is_one_file(folder: ArtifactFolder) -> None:
    """Putting it again writes nothing, says so, and makes the file young again."""
    path = folder.path(folder.put(PICTURE, "png").path)
    os.utime(path, (1000, 1000))
    inode = path.stat().st_ino
    assert folder.put(PICTURE, "png") == PutResult(SHA256, RELATIVE, len(PICTURE), created=False)
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1000
    assert _all_files(folder.root) == [RELATIVE]


@pytest.mark.parametrize("content", [b"", PICTURE[:50], PICTURE + b"x"], ids=len)
def test_a_file_of_a_wrong_size_is_replaced(folder: ArtifactFolder, content: bytes) -> None:
    """A file that was cut is written anew when its picture comes again."""
    path = folder.path(folder.put(PICTURE, "png").path)
    path.write_bytes(content)
    assert folder.put(PICTURE, "png").created
    assert path.read_bytes() == PICTURE


@pytest.mark.parametrize("extension", ["", "PNG", "p/g", "../x", "tar.gz", "png\n", "toolonger"])
def test_odd_extensions(folder: ArtifactFolder, extension: str) -> None:
    """An extension that could lead elsewhere is refused before anything is written."""
    with pytest.raises(ValueError, match="not an extension"):
        folder.put(PICTURE, extension)
    assert not folder.root.exists()


def is_reserved(path: PureWindowsPath) -> bool:
    """Whether Windows keeps a name for itself, such as ``NUL``."""
    if sys.version_info >= (3, 13):
        return ntpath.isreserved(path)
    return path.is_reserved()


def test_names_are_safe_everywhere(folder: ArtifactFolder) -> None:
    """Windows accepts every stored path as it is; names are short; nothing depends on case."""
    for number in range(40):
        relative = folder.put(b"%d" % number, "jpg").path
        windows = PureWindowsPath(relative)
        assert not is_reserved(windows)
        assert not windows.is_absolute()
        assert windows.as_posix() == relative == relative.lower()
        assert not set(relative) & set('<>:"\\|?*')
        assert len(relative) < 80


@POSIX
@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(folder: ArtifactFolder, umask: None, mask: int) -> None:
    """Files are 0600 and directories 0700, parents that had to be made included."""
    folder = ArtifactFolder(folder.root / "deep" / "deeper")
    os.umask(mask)
    path = folder.path(folder.put(PICTURE, "png").path)
    assert _mode(path) == 0o600
    directories = [path.parent, folder.root, folder.root.parent, folder.root.parent.parent]
    assert [_mode(directory) for directory in directories] == [0o700] * 4


def test_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder named by a relative path stays where it was when the process moves."""
    monkeypatch.chdir(tmp_path)
    folder = ArtifactFolder(Path("artifacts"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.put(PICTURE, "png")
    assert _all_files(tmp_path) == [f"artifacts/{RELATIVE}"]


@POSIX
def test_order_of_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content is durable before its name, a new directory before what is in it, no sync is idle."""
    folder = ArtifactFolder(tmp_path / "artifacts")
    log: list[str] = []
    fsync, replace = os.fsync, os.replace

    def logging_fsync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        kinds = {tmp_path.stat().st_ino: "parent", folder.root.stat().st_ino: "root"}
        is_file = stat.S_ISREG(info.st_mode)
        log.append(f"file {info.st_size}" if is_file else kinds.get(info.st_ino, "fan-out"))
        fsync(descriptor)

    def logging_replace(*arguments: Any, **keywords: Any) -> None:
        log.append("rename")
        replace(*arguments, **keywords)

    monkeypatch.setattr(os, "fsync", logging_fsync)
    monkeypatch.setattr(os, "replace", logging_replace)
    folder.put(PICTURE, "png")
    written = [f"file {len(PICTURE)}", "rename", "fan-out"]
    assert log == ["parent", "root", *written]
    log.clear()
    folder.put(PICTURE, "png")
    assert log == ["fan-out"], "the first writer may have died before it came to this"
    log.clear()
    folder.path(RELATIVE).write_bytes(b"")
    folder.put(PICTURE, "png")
    assert log == written


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), SystemExit()]
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failure_leaves_nothing(
    folder: ArtifactFolder, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    """Whatever goes wrong between open and rename, and Ctrl-C too, the temporary file is gone."""
    folder.put(b"another", "bin")
    (folder.root / RELATIVE[:2]).mkdir(mode=0o700, exist_ok=True)  # so that only the file is synced

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        folder.put(PICTURE, "png")
    monkeypatch.undo()
    assert len(_all_files(folder.root)) == 1
    assert folder.put(PICTURE, "png").created


@POSIX
@pytest.mark.parametrize(("number", "fatal"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_directories_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fatal: bool
) -> None:
    """A file system that cannot sync directories still works; an I/O error there is reported."""
    folder = ArtifactFolder(tmp_path)
    fsync = os.fsync

    def fsync_of_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_of_files_only)
    if fatal:
        with pytest.raises(OSError, match=os.strerror(number)):
            folder.put(PICTURE, "png")
    else:
        assert folder.put(PICTURE, "png").created


def test_a_file_where_a_directory_should_be(folder: ArtifactFolder) -> None:
    """A file in place of the root or of a fan-out directory is an OSError and stays as it is."""
    folder.root.write_text("a file")
    with pytest.raises(OSError, match="where a directory"):
        folder.put(PICTURE, "png")
    folder.root.unlink()
    folder.root.mkdir()
    fan_out = folder.root / RELATIVE[:2]
    fan_out.write_text("a file")
    with pytest.raises(OSError, match="where a directory"):
        folder.put(PICTURE, "png")
    with pytest.raises(OSError, match="where a directory"):
        folder.read(RELATIVE)
    assert _all_files(folder.root) == [RELATIVE[:2]]
    assert list(folder.walk()) == []


def test_a_directory_where_the_file_should_be(folder: ArtifactFolder) -> None:
    """A directory in place of the file is an OSError, and no temporary file stays behind."""
    folder.path(RELATIVE).mkdir(parents=True)
    for action in (
        lambda: folder.put(PICTURE, "png"),
        lambda: folder.read(RELATIVE),
        lambda: folder.remove(RELATIVE),
    ):
        with pytest.raises(OSError, match=r".") as caught:
            action()
        assert not isinstance(caught.value, FileNotFoundError)
    assert _all_files(folder.root) == []


@POSIX
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(folder: ArtifactFolder) -> None:
    """Without permission it is an OSError, and nothing is left."""
    folder.root.mkdir()
    folder.root.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            folder.put(PICTURE, "png")
        assert list(folder.root.iterdir()) == []
    finally:
        folder.root.chmod(0o700)


def test_giving_up(folder: ArtifactFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that vanishes each time is an OSError in the end, not an endless loop."""
    calls: list[str] = []

    def vanished(*arguments: Any) -> None:
        calls.append("settle")
        raise FileNotFoundError(errno.ENOENT, "gone")

    monkeypatch.setattr(artifacts, "_settle", vanished)
    with pytest.raises(FileNotFoundError):
        folder.put(PICTURE, "png")
    assert 1 < len(calls) < 100


def test_a_removed_directory_is_made_again(
    folder: ArtifactFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When another process empties and removes the directory just before the write, put goes on."""
    settle = artifacts._settle
    vanish = [folder.root / RELATIVE[:2], folder.root]

    def late(*arguments: Any) -> bool:
        while vanish:
            vanish.pop(0).rmdir()
        return settle(*arguments)

    monkeypatch.setattr(artifacts, "_settle", late)
    assert folder.put(PICTURE, "png").created
    assert folder.read(RELATIVE) == PICTURE


# --- links -------------------------------------------------------------------------------------


@POSIX
def test_a_linked_directory_is_refused(folder: ArtifactFolder, tmp_path: Path) -> None:
    """Nothing is written, read, listed or removed through a fan-out directory that is a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / RELATIVE[3:]).write_bytes(PICTURE)
    folder.root.mkdir()
    (folder.root / RELATIVE[:2]).symlink_to(outside)
    for action in (
        lambda: folder.put(PICTURE, "png"),
        lambda: folder.read(RELATIVE),
        lambda: folder.remove(RELATIVE),
    ):
        with pytest.raises(NotADirectoryError, match="symbolic link"):
            action()
    with pytest.raises(ValueError, match="symbolic link"):
        folder.path(RELATIVE)
    assert list(folder.walk()) == []
    assert folder.sweep_temporaries(0, 2**40) == 0
    assert _all_files(outside) == [RELATIVE[3:]]


@POSIX
def test_a_linked_file_is_replaced_not_followed(folder: ArtifactFolder, tmp_path: Path) -> None:
    """A link under a picture's name is neither read nor taken for the picture; put replaces it."""
    secret = tmp_path / "secret"
    secret.write_bytes(PICTURE)
    path = folder.root / RELATIVE
    path.parent.mkdir(parents=True)
    path.symlink_to(secret)
    with pytest.raises(OSError, match="not a regular file"):
        folder.read(RELATIVE)
    with pytest.raises(ValueError, match="symbolic link"):
        folder.path(RELATIVE)
    assert list(folder.walk()) == []
    secret.chmod(0o644)
    assert folder.put(PICTURE, "png").created
    assert stat.S_ISREG(path.lstat().st_mode)
    assert _mode(secret) == 0o644
    other = b"x" * len(os.fsencode(secret))  # as long as the link itself
    path = folder.path(folder.put(other, "bin").path)
    path.unlink()
    path.symlink_to(secret)
    assert folder.put(other, "bin").created
    assert folder.path(path.relative_to(folder.root).as_posix()).read_bytes() == other


@POSIX
def test_a_named_pipe_is_not_waited_for(folder: ArtifactFolder) -> None:
    """A pipe under a picture's name neither blocks a reader nor counts as a file."""
    path = folder.root / RELATIVE
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        folder.read(RELATIVE)
    assert list(folder.walk()) == []


@POSIX
def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    """Where the history lies is the user's choice: a link as the root itself is followed."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "artifacts").symlink_to(tmp_path / "disk")
    folder = ArtifactFolder(tmp_path / "artifacts")
    folder.put(PICTURE, "png")
    assert _all_files(tmp_path / "disk") == [RELATIVE]
    (tmp_path / "disk").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        folder.put(PICTURE, "png")


@pytest.mark.parametrize(
    "relative",
    [
        "",
        ".",
        "..",
        "../" + RELATIVE,
        "/" + RELATIVE,
        RELATIVE + "/..",
        RELATIVE + "\n",
        RELATIVE + "\0",
        RELATIVE.upper(),
        RELATIVE.replace("/", "\\"),
        RELATIVE.replace("/", "//"),
        RELATIVE[3:],
        RELATIVE[:-4],
        "00/" + RELATIVE[3:] if RELATIVE[:2] != "00" else "01/" + RELATIVE[3:],
        "../../etc/passwd",
        RELATIVE[:2] + "/../" + RELATIVE,
        RELATIVE[:2] + "/taskhistory-" + "0" * 32 + ".tmp",
        "C:" + RELATIVE,
    ],
)
def test_other_paths_are_refused(folder: ArtifactFolder, relative: str) -> None:
    """Only what put can have returned is looked up: no traversal, no other spelling."""
    folder.put(PICTURE, "png")
    for action in (folder.path, folder.read, folder.remove):
        with pytest.raises(ValueError, match="not the path of an artifact"):
            action(relative)
    assert _all_files(folder.root) == [RELATIVE]


# --- remove, walk, sweep -----------------------------------------------------------------------


def test_remove(folder: ArtifactFolder) -> None:
    """A removed file is gone with its empty directory; one that is not there is no error."""
    assert folder.remove(RELATIVE) is False
    folder.put(PICTURE, "png")
    assert folder.remove(RELATIVE) is True
    assert list(folder.root.iterdir()) == []
    assert folder.remove(RELATIVE) is False
    with pytest.raises(FileNotFoundError):
        folder.read(RELATIVE)


def test_remove_keeps_a_directory_in_use(folder: ArtifactFolder) -> None:
    """A directory with anything else in it stays, and so does what is in it."""
    folder.put(PICTURE, "png")
    foreign = folder.root / RELATIVE[:2] / "notes.txt"
    foreign.write_text("mine")
    assert folder.remove(RELATIVE) is True
    assert foreign.read_text() == "mine"


def test_walk_passes_over_foreign_files(folder: ArtifactFolder) -> None:
    """Only our files are listed, with size and time; whatever else lies there is left out."""
    assert list(folder.walk()) == []
    paths = {folder.put(b"%d" % number, "gif").path for number in range(20)}
    for relative in ("owner.json", "ab.txt", "zz/x", f"{RELATIVE}.bak"):
        foreign = folder.root / relative
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.write_text("x")
    (folder.root / RELATIVE[:2] / f"taskhistory-{'0' * 32}.tmp").write_text("x")
    found = dict(folder.walk())
    assert set(found) == paths
    assert all(info.st_size in (1, 2) and info.st_mtime > 0 for info in found.values())


def test_walk_while_files_go(folder: ArtifactFolder) -> None:
    """Files may be removed while they are listed, with their directories."""
    paths = sorted(folder.put(b"%d" % number, "gif").path for number in range(20))
    found = []
    for relative, _ in folder.walk():
        found.append(relative)
        folder.remove(relative)
    assert sorted(found) == paths
    assert list(folder.root.iterdir()) == []


def test_sweep_takes_only_our_old_temporaries(folder: ArtifactFolder) -> None:
    """Of all the files only our own temporary ones of the given age are removed."""
    assert folder.sweep_temporaries(600, 10_000) == 0
    folder.put(PICTURE, "png")
    names = {
        f"{RELATIVE[:2]}/taskhistory-{'1' * 32}.tmp": 9000.0,
        f"ee/taskhistory-{'2' * 32}.tmp": 9400.0,
        f"ee/taskhistory-{'3' * 32}.tmp": 9401.0,
        "ee/other.tmp": 0.0,
        f"ee/taskhistory-{'4' * 31}.tmp": 0.0,
        f"ee/taskhistory-{'5' * 32}.tmp.bak": 0.0,
        f"taskhistory-{'6' * 32}.tmp": 0.0,
    }
    for name, time in names.items():
        path = folder.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
        os.utime(path, (time, time))
    os.utime(folder.root / RELATIVE, (0, 0))
    assert folder.sweep_temporaries(600, 10_000) == 2
    assert _all_files(folder.root) == sorted({RELATIVE, *list(names)[2:]})


def test_sweep_removes_an_emptied_directory(folder: ArtifactFolder) -> None:
    """A directory that held nothing but leftovers goes with them."""
    path = folder.root / "ab" / f"taskhistory-{'1' * 32}.tmp"
    path.parent.mkdir(parents=True)
    path.write_text("half")
    os.utime(path, (0, 0))
    assert folder.sweep_temporaries(0, 1) == 1
    assert list(folder.root.iterdir()) == []


# --- several at a time -------------------------------------------------------------------------


def test_threads(folder: ArtifactFolder) -> None:
    """Threads that put the same pictures at the same time end up with one whole file of each."""
    pictures = [PICTURE + b"%d" % number for number in range(10)]
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def work() -> None:
        barrier.wait()
        try:
            for picture in pictures:
                folder.put(picture, "png")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = [relative for relative, _ in folder.walk()]
    assert _all_files(folder.root) == sorted(found)
    assert sorted(map(folder.read, found)) == sorted(pictures)


PUT_AND_REMOVE = """
import sys
from pathlib import Path
from otel_taskhistory.store.artifacts import ArtifactFolder

folder = ArtifactFolder(Path(sys.argv[1]))
sys.stdin.readline()
for round in range(150):
    path = folder.put(b"the same %d" % (round % 3), "png").path
    folder.remove(path)
print("done")
"""


def test_processes_that_put_and_remove(tmp_path: Path) -> None:
    """Processes may put and remove the same files, and their directories, all at once."""
    command = [sys.executable, "-c", PUT_AND_REMOVE, str(tmp_path / "artifacts")]
    pipe = subprocess.PIPE
    agents = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for agent in agents:
        assert agent.stdin is not None
        agent.stdin.write("go\n")
        agent.stdin.flush()
    outputs = [agent.communicate()[0].strip() for agent in agents]
    assert outputs == ["done"] * 4
    assert _all_files(tmp_path) == []
    folder = ArtifactFolder(tmp_path / "artifacts")
    assert folder.read(folder.put(PICTURE, "png").path) == PICTURE


DIE_BEFORE_RENAME = """
import os, signal, sys
from pathlib import Path
from otel_taskhistory.store.artifacts import ArtifactFolder

os.replace = lambda *arguments, **keywords: os.kill(os.getpid(), signal.SIGKILL)
ArtifactFolder(Path(sys.argv[1])).put(b"the picture", "png")
"""


@POSIX
def test_leftover_of_a_killed_writer(tmp_path: Path) -> None:
    """A writer killed before the rename leaves one temporary file: seen by nobody, then swept."""
    command = [sys.executable, "-c", DIE_BEFORE_RENAME, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    folder = ArtifactFolder(tmp_path)
    (leftover,) = _all_files(tmp_path)
    assert list(folder.walk()) == []
    written = (tmp_path / leftover).stat().st_mtime
    assert folder.sweep_temporaries(600, written + 599) == 0
    assert folder.put(b"the picture", "png").created
    assert folder.sweep_temporaries(600, written + 600) == 1
    assert [relative for relative, _ in folder.walk()] == _all_files(tmp_path)
    assert folder.read(_all_files(tmp_path)[0]) == b"the picture"


@POSIX
def test_no_descriptor_is_left_open(folder: ArtifactFolder) -> None:
    """Neither success nor failure leaks a file descriptor."""

    def lowest_free() -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    before = lowest_free()
    folder.put(PICTURE, "png")
    folder.put(PICTURE, "png")
    folder.read(RELATIVE)
    next(folder.walk())
    folder.remove(RELATIVE)
    (folder.root / RELATIVE[:2]).write_text("a file")
    for action in (lambda: folder.put(PICTURE, "png"), lambda: folder.read(RELATIVE)):
        with pytest.raises(NotADirectoryError):
            action()
    assert lowest_free() == before
