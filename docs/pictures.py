# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the documentation anew: ``.venv/bin/python -m docs.pictures``.

Runs the demo into a temporary history, serves it, and lets a headless Chromium look at it. Needs
Chromium on the path and what `make test` installs. The pictures differ with each run (ids, times):
make them when a page has changed, not with each build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image

from otel_taskhistory import TaskHistory

IMAGES: Final = Path(__file__).parent / "images"
_SIZE: Final = {"width": 1240, "height": 860}
_TALL: Final = {"width": 1240, "height": 1280}
_MOST_BYTES: Final = 200_000


def main() -> int:
    """Record, serve, look."""
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "history"
        _run("demo", "--directory", str(history))
        task_id, step_id = _most_telling(history)
        with _served(history) as address, _browser() as page:
            page.set_viewport_size(_TALL)
            page.goto(f"{address}-/taskhistory/tasks/{task_id}?step={step_id}")
            page.wait_for_load_state("networkidle")
            _keep(page, "task.webp")
            page.set_viewport_size(_SIZE)
            page.goto(address)
            page.wait_for_load_state("networkidle")
            _keep(page, "tasks.webp")
    return 0


def _run(*arguments: str) -> None:
    command = [sys.executable, "-m", "otel_taskhistory", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _most_telling(directory: Path) -> tuple[str, str]:
    """The task with most steps, and its last step but one: tools, results and a long prompt."""
    with TaskHistory(directory) as history:
        task = max(history.tasks(), key=lambda task: task.step_count)
        steps = history.steps(task.task_id, without=("prompt", "decision"))
        return task.task_id, steps[max(len(steps) - 2, 0)].step_id


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "otel_taskhistory", "serve", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--directory", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError(f"no address was printed, but {line!r}")
        yield found[0]
    finally:
        server.terminate()
        server.wait(timeout=10)


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("there is no Chromium here")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser.new_page(viewport=_SIZE, color_scheme="light", timezone_id="UTC")
        browser.close()


def _keep(page: Any, name: str) -> None:
    """Write what the page shows, as small as it may be and sharp enough to be read."""
    picture = Image.open(BytesIO(page.screenshot()))
    data = BytesIO()
    picture.save(data, "WEBP", quality=82, method=6)
    if len(data.getvalue()) > _MOST_BYTES:
        raise RuntimeError(f"{name} has {len(data.getvalue())} bytes, more than {_MOST_BYTES}")
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / name).write_bytes(data.getvalue())
    print(f"{IMAGES / name}: {len(data.getvalue())} bytes")


if __name__ == "__main__":
    sys.exit(main())
