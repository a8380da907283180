# SPDX-License-Identifier: Apache-2.0
"""Shell completion: commands, options, and ids of tasks with their goals."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_taskhistory.cli import cli
from otel_taskhistory.cli.completion import SHELLS
from tests.recorded import one_task, recording

ROOT = Path(__file__).parents[2]
PATIENCE = 60
VARIABLE = "_OTEL_TASKHISTORY_COMPLETE"


def asked(shell: str, *words: str, place: Path | None = None) -> list[str]:
    """What the program answers a shell that completes the last of these words."""
    position = words[-1] if shell == "fish" else str(len(words))
    environment = {
        **os.environ,
        VARIABLE: f"{shell}_complete",
        "COMP_WORDS": " ".join(["otel-taskhistory", *words]),
        "COMP_CWORD": position,
        "PYTHONPATH": str(ROOT),
    }
    if place is not None:
        environment["OTEL_TASKHISTORY_DIRECTORY"] = str(place)
    # As the console script, whose name the variable has.
    program = "import sys; sys.argv[0] = 'otel-taskhistory'; from otel_taskhistory.cli import main"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; main()"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_its_script(shell: str) -> None:
    """The one that makes it ask this program."""
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in done.stdout
    assert "otel-taskhistory" in done.stdout
    assert CliRunner().invoke(cli, ["completion", "nonsense"]).exit_code == 2


def test_commands_and_choices_are_completed() -> None:
    """By click, from what the commands say of themselves."""
    assert asked("bash", "sho") == ["plain,show"]
    assert "plain,failed" in asked("bash", "tasks", "--status", "f")


@pytest.mark.parametrize("command", ["show", "pin", "unpin"])
def test_ids_are_completed_the_newest_first(tmp_path: Path, command: str) -> None:
    """Short ones, with status and goal; of the history that the line or the environment names."""
    with recording(tmp_path / "one") as tasks:
        older = one_task(tasks, "older")
        newer = one_task(tasks, "newer\nwith \x1b[31mcolour")
    expected = [
        *("plain", "latest", "the newest task"),
        *("plain", newer[:8], "succeeded: newer with \\x1b[31mcolour"),
        *("plain", older[:8], "succeeded: older"),
    ]
    assert asked("zsh", command, "", place=tmp_path / "one") == expected
    assert asked("zsh", command, "--directory", str(tmp_path / "one"), "") == expected
    assert asked("bash", command, newer[:5], place=tmp_path / "one") == [f"plain,{newer[:8]}"]
    assert asked("bash", command, newer[:20], place=tmp_path / "one") == [f"plain,{newer}"]
    assert asked("fish", command, older[:6], place=tmp_path / "one") == [
        f"plain,{older[:8]}\tsucceeded: older"
    ]
    assert asked("bash", command, "zzz", place=tmp_path / "one") == [""]


def test_options_that_take_an_id_complete_it_too(tmp_path: Path) -> None:
    """As ``prune --task``."""
    with recording(tmp_path) as tasks:
        task_id = one_task(tasks)
    assert f"plain,{task_id[:8]}" in asked("bash", "prune", "--task", "", place=tmp_path)


def test_a_large_history_offers_the_newest(tmp_path: Path) -> None:
    """A screenful, not all."""
    with recording(tmp_path) as tasks:
        for number in range(60):
            with tasks.task(f"goal {number}"):
                pass
    offered = asked("bash", "show", "", place=tmp_path)
    assert len(offered) == 51
    assert offered[0] == "plain,latest"


@pytest.mark.parametrize("what", ["nothing", "empty", "damaged"])
def test_without_a_history_nothing_is_said(tmp_path: Path, what: str) -> None:
    """On neither output: a shell would show it in the middle of the line."""
    place = tmp_path / "place"
    if what != "nothing":
        place.mkdir()
        (place / "history.db").write_bytes(b"" if what == "empty" else b"x" * 5000)
    assert asked("bash", "show", "", place=place) == [""]


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An environment with the command as it is installed, and a history to complete from."""
    command = tmp_path / "bin" / "otel-taskhistory"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "sys.argv[0] = 'otel-taskhistory'\n"
        "from otel_taskhistory.cli import main\nmain()\n"
    )
    command.chmod(0o700)
    home = tmp_path / "home"
    home.mkdir()
    return {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local"),
        "TERM": "dumb",
        "OTEL_TASKHISTORY_DIRECTORY": str(tmp_path / "history"),
    }


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_itself_completes(tmp_path: Path, program: dict[str, str]) -> None:
    """The script as it is printed, in a real shell."""
    with recording(tmp_path / "history") as tasks:
        task_id = one_task(tasks)
    script = """
        eval "$(otel-taskhistory completion bash)"
        complete -p otel-taskhistory
        COMP_WORDS=(otel-taskhistory show %s) COMP_CWORD=2
        _otel_taskhistory_completion otel-taskhistory
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script % task_id[:3]],
        env=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _otel_taskhistory_completion otel-taskhistory",
        task_id[:8],
    ]


INTERACTIVE = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(otel-taskhistory completion bash)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit && compinit -u -D && eval "$(otel-taskhistory completion zsh)"',
    ),
}


@pytest.mark.parametrize("shell", INTERACTIVE)
def test_the_tab_key_completes_an_id(tmp_path: Path, program: dict[str, str], shell: str) -> None:
    """As somebody types it on a terminal: what follows the beginning of the id is put there."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    with recording(tmp_path / "history") as tasks:
        task_id = one_task(tasks)
    command, prepare = INTERACTIVE[shell]
    own, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=program, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = b""

        def until(wanted: str) -> None:
            nonlocal seen
            limit = time.monotonic() + PATIENCE
            while wanted.encode() not in seen:
                assert time.monotonic() < limit, seen[-2_000:]
                if select.select([own], [], [], 1)[0]:
                    seen += os.read(own, 65_536)

        try:
            os.write(own, f"{prepare}; echo rea''dy\n".encode())
            until("ready")
            os.write(own, f"echo otel-taskhistory; otel-taskhistory show {task_id[:4]}\t".encode())
            until(task_id[:8])
        finally:
            process.kill()
            os.close(own)


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_itself_completes(tmp_path: Path, program: dict[str, str]) -> None:
    """With the goal beside the id."""
    with recording(tmp_path / "history") as tasks:
        task_id = one_task(tasks, "a goal to be seen")
    script = (
        "otel-taskhistory completion fish | source;"
        f" complete -C 'otel-taskhistory show {task_id[:3]}'"
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=program,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{task_id[:8]}\tsucceeded: a goal to be seen"], done.stderr
