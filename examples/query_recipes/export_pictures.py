# SPDX-License-Identifier: Apache-2.0
"""Give me the screenshots of a task as files in their order. With the Python API.

``python export_pictures.py AGENT FOLDER``: of the newest task of this agent.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from otel_taskhistory import TaskHistory

ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}


def main() -> None:
    """Copy them; names come from number and hash only, as captions may hold anything."""
    agent, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with TaskHistory() as history:
        tasks = history.tasks(agent=agent, limit=1)
        if not tasks:
            sys.exit(f"no task of {agent}")
        (task,) = tasks
        shots = [s for s in history.screenshots(task.task_id) if s.role == "screenshot"]
        for number, shot in enumerate(shots, start=1):
            if shot.path is None or shot.status != "ok":
                print(f"{number:03}: not there ({shot.status})")
                continue
            ending = ENDINGS.get(shot.media_type or "", "bin")
            target = folder / f"{number:03}-{str(shot.sha256)[:8]}.{ending}"
            shutil.copyfile(history.artifact(shot.path), target)
            print(f"{target.name}: {shot.width} x {shot.height}, {shot.caption!r}")


if __name__ == "__main__":
    main()
