# SPDX-License-Identifier: Apache-2.0
"""Keeps a history within two tasks, and dies by SIGKILL at a chosen place.

Arguments: the directory of the history, the name of a point, and at which of its passings to die;
``none`` for a point is not to die. It says each point that it passes.
"""

from __future__ import annotations

import os
import signal
import sys

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store import faults
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.retainer import Retainer


def main() -> None:
    """Small steps, so that each of them is passed more than once."""
    directory, wanted, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    passed = 0

    def at(name: str) -> None:
        nonlocal passed
        print(name, flush=True)
        passed += name == wanted
        if name == wanted and passed == times:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.armed = at
    settings = Settings.resolve(
        directory=directory, retention=Retention(None, 2, 64 * 2**20), durability="full"
    )
    database = Database(settings)
    retainer = Retainer(database, ArtifactFolder(settings.artifacts), settings)
    while retainer.step(rows=40).more:
        pass
    retainer.run(pause=lambda seconds: None)
    database.close()


if __name__ == "__main__":
    main()
