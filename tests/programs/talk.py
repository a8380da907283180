# SPDX-License-Identifier: Apache-2.0
"""How the programs beside this one talk to the test that started them."""

from __future__ import annotations

import os
import sys


def say(line: str) -> None:
    """Tell the test, by one write: lines of several threads do not mix."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def pause(where: str) -> None:
    """Tell the test where we are, and wait until it lets us go on."""
    say(where)
    sys.stdin.readline()
