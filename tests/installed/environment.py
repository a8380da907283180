# SPDX-License-Identifier: Apache-2.0
"""A Python in which our wheel is installed as users install it, without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from sysconfig import get_path

ROOT = Path(__file__).resolve().parents[2]


def built(kind: str, folder: Path, source: Path = ROOT) -> Path:
    """The wheel (``wheel``) or source distribution (``sdist``) of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


def installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with this wheel, and with what it needs from our own.

    What we need stays where it is: a ``.pth`` file puts that folder behind the new one. Whatever is
    written in such files there is not read again, so our checkout is not on this Python's path.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True)
    packages = Path(found.stdout.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "what_it_needs.pth").write_text(f"{get_path('purelib')}\n", encoding="utf-8")
    return python
