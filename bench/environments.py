# SPDX-License-Identifier: Apache-2.0
"""One virtual environment per peer, made when it is first wanted and kept in ``.cache``.

``python -m bench.environments NAME…`` makes them; with ``--lock`` it finds out anew what the
packages that a file of ``requirements/`` names first need, and writes that below them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
REQUIREMENTS: Final = Path(__file__).parent / "requirements"
ENVIRONMENTS: Final = ROOT / ".cache" / "bench"
NAMES: Final = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))

BELOW: Final = "# What they need (written by --lock):"
_STAMP: Final = ".made-from"


def ready(name: str) -> Path:
    """The Python of the environment of a peer, which is made if it is not there.

    It is made anew when its requirements, the Python or the place of this folder have changed.

    Raises:
        SystemExit: pip could not make it; the message says what and why.
    """
    folder = ENVIRONMENTS / name
    stamp = folder / _STAMP
    wanted = _made_from(name)
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        print(f"making the environment of {name} (once) ...", file=sys.stderr, flush=True)
        _make(folder, "--no-deps", "--requirement", str(REQUIREMENTS / f"{name}.txt"))
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
    frozen = _pip(folder, "freeze", "--all").splitlines()
    shutil.rmtree(folder)
    further = [line for line in frozen if line not in named(name)]
    text = "\n".join([chosen.rstrip(), "", BELOW, *further, ""])
    (REQUIREMENTS / f"{name}.txt").write_text(text, encoding="utf-8")


def _requirements(name: str) -> str:
    return (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")


def _make(folder: Path, *packages: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # Our own pip does the installing: each environment gets the one that its packages ask for.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    _pip(folder, "install", "--quiet", "--quiet", *packages)


def _pip(folder: Path, *arguments: str) -> str:
    """What pip says to a command."""
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
    """What an environment depends on, in one line."""
    digest = hashlib.sha256(_requirements(name).encode())
    return f"{sys.version} {ROOT} {digest.hexdigest()}\n"


def main(arguments: list[str]) -> None:
    """Make the environments that are named, or all."""
    make = lock if "--lock" in arguments else ready
    for name in [argument for argument in arguments if argument != "--lock"] or NAMES:
        if name not in NAMES:
            sys.exit(f"there is no peer {name!r} here; there are {', '.join(NAMES)}")
        begun = time.monotonic()
        make(name)
        print(f"{name}: ready after {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
