# SPDX-License-Identifier: Apache-2.0
"""A Host Agent on gevent: threads, locks and sleeps are greenlets'.

Arguments: the directory, and when the patch comes: ``before`` the package is imported, as gevent
asks for, or ``after`` it, as happens.
"""

from __future__ import annotations

import sys

from gevent import monkey

if sys.argv[2] == "before":
    monkey.patch_all()

import gevent

from otel_taskhistory.configure import configure

if sys.argv[2] == "after":
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", monkey.MonkeyPatchWarning)
        monkey.patch_all()

GREENLETS = 8
STEPS = 5


def main() -> None:
    """Greenlets that record at once, and let each other run in the middle of their steps."""
    tasks = configure(sys.argv[1])

    def agent(number: int) -> None:
        with tasks.task(f"goal {number}") as task:
            for turn in range(STEPS):
                with task.step() as step:
                    step.prompt(f"prompt {number} {turn}")
                    gevent.sleep(0)
                    step.decision(f"decision {number} {turn}")

    gevent.joinall([gevent.spawn(agent, number) for number in range(GREENLETS)], raise_error=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
