# SPDX-License-Identifier: Apache-2.0
"""The loop of a peer's program: a line of JSON in, a line of JSON out. Plain Python only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(commands: dict[str, Callable[..., Any]], versions: dict[str, str]) -> None:
    """Carry out ``{"do": NAME, …}`` until stdin ends; first say which versions there are."""
    # What the peer prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(commands[asked.pop("do")](**asked)), file=answers, flush=True)
