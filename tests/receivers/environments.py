# SPDX-License-Identifier: Apache-2.0
"""One virtual environment per receiver of telemetry, made when it is first wanted.

``python -m tests.receivers.environments NAME…`` makes them in ``.cache/receivers``; with ``--lock``
it finds out anew what the packages that a file of ``requirements/`` names first need, and writes
that below them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = Path(__file__).parent / "requirements"
ENVIRONMENTS: Final = ROOT / ".cache" / "receivers"
NAMES: Final = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))

BELOW: Final = "# What they need (written by --lock):"
_STAMP: Final = ".made-from"


def ready(name: str) -> Path:
    """The Python of the environment of a receiver, which is made if it is not there.

    It is made anew when its requirements or the Python have changed.
    """
    folder = ENVIRONMENTS / name
    stamp = folder / _STAMP
    wanted = made_from(name)
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        _make(folder, "--no-deps", "--requirement", str(_file(name)))
        stamp.write_text(wanted, encoding="utf-8")  # last: what is half made is made anew
    return _python(folder)


def lock(name: str) -> None:
    """Find out what the named packages need now, and write it into the file."""
    folder = ENVIRONMENTS / f"{name}.lock"
    chosen, _, _ = _file(name).read_text(encoding="utf-8").partition(BELOW)
    named = [line for line in chosen.splitlines() if line and not line.startswith("#")]
    _make(folder, *named)
    frozen = _pip(folder, "freeze", "--all").splitlines()
    shutil.rmtree(folder)
    further = [line for line in frozen if line not in named]
    text = "\n".join([chosen.rstrip(), "", BELOW, *further, ""])
    _file(name).write_text(text, encoding="utf-8")


def made_from(name: str) -> str:
    """What an environment depends on, in one line."""
    digest = hashlib.sha256(_file(name).read_bytes()).hexdigest()
    return f"{sys.version} {digest}\n"


def _file(name: str) -> Path:
    return REQUIREMENTS / f"{name}.txt"


def _make(folder: Path, *packages: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    _pip(folder, "install", "--quiet", "--quiet", "--no-compile", *packages)


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


def main(arguments: list[str]) -> None:
    """Make the environments that are named, or all."""
    make = lock if "--lock" in arguments else ready
    names = [argument for argument in arguments if argument != "--lock"] or list(NAMES)
    for name in names:
        if name not in NAMES:
            sys.exit(f"there is no receiver {name!r} here; there are {', '.join(NAMES)}")
        make(name)
        print(f"{name}: ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
