# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.installed.clean``: the wheel and the source distribution in clean environments.

Each is built, installed by pip into a new environment with what it needs from the package index,
and runs the demo there, in an empty folder. Exits 1 when anything of that goes wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.installed.environment import built

GOALS: Final = 8


def check(kind: str, folder: Path) -> None:
    """Build, install and run one of ``wheel`` and ``sdist``; `SystemExit` says what went wrong."""
    package = built(kind, folder)
    environment = folder / "environment"
    scripts = environment / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(scripts / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-qq", str(package)], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)

    home = folder / "home"
    home.mkdir()
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "PYTHON", "XDG_"))}

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [str(scripts / "otel-taskhistory"), *arguments],
            cwd=home,
            env=keep | {"HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or done.stderr:
            sys.exit(f"{package.name}: {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    command("demo")
    tasks = json.loads(command("tasks", "--json"))
    if len(tasks) != GOALS:
        sys.exit(f"{package.name}: the demo left {len(tasks)} tasks, not {GOALS}")
    print(f"{package.name}: installed, its demo left {len(tasks)} tasks", flush=True)


def main() -> None:
    """Both of them."""
    for kind in ("wheel", "sdist"):
        with tempfile.TemporaryDirectory() as folder:
            check(kind, Path(folder))


if __name__ == "__main__":
    main()
