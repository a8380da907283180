# SPDX-License-Identifier: Apache-2.0
"""One virtual environment per framework, made when it is first wanted and kept in ``.cache``.

``python -m tests.frameworks.environments NAME…`` makes them; with ``--lock`` it finds out anew what
the packages that a file of ``requirements/`` names first need, and writes that below them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = Path(__file__).parent / "requirements"
ENVIRONMENTS: Final = ROOT / ".cache" / "frameworks"
NAMES: Final = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))

BELOW: Final = "# What they need (written by --lock):"
_STAMP: Final = ".made-from"
_AT_A_TIME: Final = 3


def ready(name: str) -> Path:
    """The Python of the environment of a framework, which is made if it is not there.

    It is made anew when what it is made from has changed: its requirements, our dependencies and
    entry points, the Python, the place of this folder.
    """
    folder = ENVIRONMENTS / name
    stamp = folder / _STAMP
    wanted = _made_from(name)
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        _make(folder, "--no-deps", "--requirement", str(REQUIREMENTS / f"{name}.txt"))
        _pip(folder, "check")
        stamp.write_text(wanted, encoding="utf-8")  # last: what is half made is made anew
    return _python(folder)


def named(name: str) -> list[str]:
    """The packages that somebody chose, each with its version."""
    chosen, _, _ = _requirements(name).partition(BELOW)
    return [line for line in chosen.splitlines() if line and not line.startswith("#")]


def lock(name: str) -> None:
    """Find out what the named packages need now, and write it into the file."""
    folder = ENVIRONMENTS / f"{name}.lock"
    chosen, _, _ = _requirements(name).partition(BELOW)
    _make(folder, *named(name))
    frozen = _pip(folder, "freeze", "--all", "--exclude", "otel-taskhistory").splitlines()
    shutil.rmtree(folder)
    further = [line for line in frozen if line not in named(name)]
    text = "\n".join([chosen.rstrip(), "", BELOW, *further, ""])
    (REQUIREMENTS / f"{name}.txt").write_text(text, encoding="utf-8")


def _requirements(name: str) -> str:
    return (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")


def _make(folder: Path, *packages: str) -> None:
    """An environment with these packages and, as they are here at any time, our own files."""
    shutil.rmtree(folder, ignore_errors=True)
    # Our own pip does the installing: each environment gets the one that its packages ask for.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    with tempfile.TemporaryDirectory() as built:
        # What `pip install --editable .` does, without fetching the build backend each time.
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable", "-d", built]
        subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
        (wheel,) = Path(built).glob("*.whl")
        _pip(folder, "install", "--quiet", "--quiet", "--no-compile", *packages, str(wheel))


def _pip(folder: Path, *arguments: str) -> str:
    """What pip says to a command.

    Raises:
        SystemExit: it could not do it; the message says what and why.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(_python(folder))]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--no-input", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"pip {' '.join(arguments)}, in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _made_from(name: str) -> str:
    """What an environment depends on, in one line; our files are used as they are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = [project[key] for key in ("dependencies", "scripts", "entry-points")]
    digest = hashlib.sha256(f"{installed}{_requirements(name)}".encode())
    return f"{sys.version} {ROOT} {digest.hexdigest()}\n"


def main(arguments: list[str]) -> None:
    """Make the environments that are named, or all; some at a time, as most of it is waiting."""
    make = lock if "--lock" in arguments else ready
    names = [argument for argument in arguments if argument != "--lock"] or list(NAMES)
    for name in names:
        if name not in NAMES:
            sys.exit(f"there is no framework {name!r} here; there are {', '.join(NAMES)}")

    def made(name: str) -> None:
        begun = time.monotonic()
        make(name)
        print(f"{name}: ready after {time.monotonic() - begun:.0f} s", flush=True)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(made, names))


if __name__ == "__main__":
    main(sys.argv[1:])
