# SPDX-License-Identifier: Apache-2.0
"""``docs/forward.md``: each command is run as it is printed, and says what is printed below it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from otel_taskhistory.cli.forward import forward_command
from otel_taskhistory.transport.forwarder import outbound, posting, sending
from tests.recorded import one_task, recording
from tests.transport.forwarding import ROOT, Receiver, environ

PAGE = (ROOT / "docs" / "forward.md").read_text(encoding="utf-8")
PORT = "127.0.0.1:4318"


def consoles() -> list[str]:
    """What stands in the blocks of what is typed and answered."""
    return re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)


def test_commands_say_what_the_page_says(tmp_path: Path) -> None:
    """All of them in one shell, one after the other, on a history of ten spans."""
    history = tmp_path / "history"
    with recording(history) as tasks:
        one_task(tasks, steps=2)
        one_task(tasks, steps=2)
    lines = "".join(consoles()).splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert len(commands) > 6
    said = "\n".join(line for line in lines if not line.startswith("$ "))
    with Receiver(tmp_path) as receiver:
        here = f"127.0.0.1:{receiver.port}"
        done = subprocess.run(
            ["bash", "-c", "exec 2>&1\n" + "\n".join(commands).replace(PORT, here)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environ(
                OTEL_TASKHISTORY_DIRECTORY=str(history),
                PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin",
            ),
        )
        assert done.stdout.rstrip("\n").replace(here, PORT).splitlines() == said.splitlines()
        last = receiver.requests()[-1]["headers"]
    assert (last["authorization"], last["x-team"]) == ("Bearer abc", "agents")


def test_every_option_is_on_the_page_or_explains_itself() -> None:
    """Nobody has to guess; and none is there that the command does not know."""
    known = {name for option in forward_command.params for name in option.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    others = {"--directory", "--owner", "--task", "--again", "--ca-file"}
    assert known - named <= others
    assert named - known <= {"--task"}


def test_numbers_on_the_page_are_those_of_the_program() -> None:
    """Bounds are said once in each place, and are the same."""
    assert f"at most {outbound.SPANS} spans and about {outbound.BYTES // 2**20} MiB" in PAGE
    assert f"at most {posting.LONGEST_WAIT / 60:.0f} minutes" in PAGE
    first, longest = sending._FIRST_PAUSE, sending._LONGEST_PAUSE
    assert f"after {first:g} s to {longest:g} s" in PAGE
