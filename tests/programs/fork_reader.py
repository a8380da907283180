# SPDX-License-Identifier: Apache-2.0
"""A process that forks while another of its threads is reading a history, inside SQLite.

Argument: the directory of a history. The child reads it too, and ends as any program does.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading

from otel_taskhistory import TaskHistory


def main() -> None:
    """See above."""
    history = TaskHistory(sys.argv[1])
    inside, done = threading.Event(), threading.Event()

    def stall() -> int:
        inside.set()
        done.wait()
        return 1

    def query(connection: sqlite3.Connection) -> object:
        connection.create_function("stall", 0, stall)
        return connection.execute("SELECT stall()").fetchone()

    thread = threading.Thread(target=history._reading.read, args=(query,))
    thread.start()
    inside.wait()
    pid = os.fork()
    if not pid:
        print("child", len(history.tasks()), flush=True)
        return
    _, status = os.waitpid(pid, 0)
    done.set()
    thread.join()
    print("parent", len(history.tasks()), status, flush=True)


if __name__ == "__main__":
    main()
