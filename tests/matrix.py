# SPDX-License-Identifier: Apache-2.0
"""The tests under other Pythons, and with the oldest packages that we say we work with.

``python -m tests.matrix NAME… [-- PYTEST ARGUMENTS]`` runs some of ``3.11``, ``3.12``, ``3.13``
(newest packages) and ``oldest`` (Python 3.11, and of each package that we name the lowest version
that ``pyproject.toml`` allows); all that can be had by default. The environments are kept in
``.cache/matrix`` and made anew when what they are made from has changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
ENVIRONMENTS: Final = ROOT / ".cache" / "matrix"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

OLDEST: Final = "oldest"
OLDEST_PYTHON: Final = "3.11"
PYTHONS: Final = tuple(
    found[1]
    for line in PROJECT["project"]["classifiers"]
    if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
)
NAMES: Final = (*PYTHONS, OLDEST)

NEED_NEWER: Final = ("opentelemetry-exporter-otlp-json-http", "opentelemetry-util-genai")
"""What only tests use and what cannot be installed beside the oldest OpenTelemetry."""
_STAMP: Final = ".made-from"


def lowest() -> list[str]:
    """Each package that we need or that an extra brings, with the lowest version that we allow."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    named = {line for lines in (project["dependencies"], *extras) for line in lines}
    named = {line for line in named if _name(line) != project["name"]}
    return sorted(f"{_name(line)}=={_lower_bound(line)}" for line in named)


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]


def _lower_bound(requirement: str) -> str:
    """The version behind ``>=``.

    Raises:
        ValueError: the requirement has none, so nobody knows what it works with.
    """
    found = re.search(r">=\s*([\w.]+)", requirement)
    if found is None:
        raise ValueError(f"{requirement} says no lowest version")
    return found[1]


def requirements(name: str) -> list[str]:
    """What is installed beside our own files."""
    tools: list[str] = PROJECT["dependency-groups"]["test"]
    if name != OLDEST:
        return tools
    held = lowest()
    apart = {*map(_name, held), *NEED_NEWER}
    return [*held, *(line for line in tools if _name(line) not in apart)]


def python_of(version: str) -> str | None:
    """An interpreter of this version: on PATH, of pyenv, or of uv, which may fetch it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = [sys.executable, shutil.which(f"python{version}")]
    places += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    if uv := shutil.which("uv"):
        subprocess.run([uv, "python", "install", "--quiet", version], check=False)
        found = subprocess.run(
            [uv, "python", "find", version], capture_output=True, text=True, check=False
        )
        places.append(found.stdout.strip())
    return next((place for place in places if place and _version(place) == version), None)


def _version(python: str) -> str:
    """What a command says its version is; ``""`` when it is no Python."""
    ask = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def ready(name: str) -> Path | None:
    """The Python of an environment, which is made if it is not there; None without interpreter."""
    interpreter = python_of(OLDEST_PYTHON if name == OLDEST else name)
    if interpreter is None:
        return None
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = folder / _STAMP
    ours = {key: PROJECT["project"].get(key) for key in ("dependencies", "entry-points")}
    text = f"{interpreter} {ROOT} {ours} {requirements(name)}"
    wanted = hashlib.sha256(text.encode()).hexdigest()
    if not (stamp.exists() and stamp.read_text("utf-8") == wanted):
        print(f"== {name}: making the environment", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        # That of Python 3.11.0 takes long to find out what goes together.
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "--editable", str(ROOT), *requirements(name)], check=True)
        stamp.write_text(wanted, "utf-8")  # last: what is half made is made anew
    return python


def run(name: str, arguments: list[str]) -> int:
    """Run the tests in an environment; pytest's exit status, or 1 without an interpreter."""
    python = ready(name)
    if python is None:
        version = OLDEST_PYTHON if name == OLDEST else name
        print(
            f"== {name}: there is no Python {version} on PATH, of pyenv or of uv; with uv on PATH"
            f" (pip install uv) it is fetched",
            flush=True,
        )
        return 1
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    if name == OLDEST:
        # Old releases use what later ones of others have ended; users see none of that.
        command += ["-W", "ignore::DeprecationWarning", "-W", "ignore::PendingDeprecationWarning"]
    print(f"== {name}: {subprocess.check_output([str(python), '--version'], text=True).strip()}")
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(given: list[str]) -> int:
    """Run the named ones, or all; 0 when the tests of all that ran passed and none was missing."""
    at = given.index("--") if "--" in given else len(given)
    names, arguments = given[:at] or list(NAMES), given[at + 1 :]
    for name in names:
        if name not in NAMES:
            sys.exit(f"there is no {name!r} here; there are {', '.join(NAMES)}")
    failed = [name for name in names if run(name, arguments)]
    print(f"== passed: {', '.join(n for n in names if n not in failed) or 'none'}")
    if failed:
        print(f"== failed or missing: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
