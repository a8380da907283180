# SPDX-License-Identifier: Apache-2.0
"""The Host Agent behind ``otel-taskhistory demo``: the example ``examples/host_agent``.

The example is meant to be read and copied, so it lives where examples live. A wheel carries it as
the subpackage ``otel_taskhistory.demo.host_agent``; in a checkout that name is found in
``examples/``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TextIO, cast

_CHECKOUT = Path(__file__).resolve().parents[2] / "examples"
if not Path(__file__).with_name("host_agent").is_dir():
    __path__.append(str(_CHECKOUT))


def run_demo(directory: Path | None = None, owner: str | None = None, *, out: TextIO) -> list[str]:
    """Let the Host Agent carry out its goals; returns the ids of the tasks, all in the history.

    Args:
        directory: the history to record in; None for what environment and defaults say.
        owner: its owner; None for what environment and defaults say.
        out: where a line per step is printed while the agent works.

    Raises:
        TaskHistoryError: the history cannot be used.
    """
    # By name, as a type checker looks for a subpackage only below this directory.
    demo = import_module(f"{__name__}.host_agent.demo")
    return cast("list[str]", demo.run_demo(directory, owner, out=out))
