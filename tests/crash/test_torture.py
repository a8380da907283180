# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.crash import torture
from tests.crash.checks import Broken, Checker
from tests.crash.reports import read

SIGKILL = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")


@SIGKILL
def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Whenever an agent is killed, what had returned is whole and the next one goes on.

    A few rounds only; ``python -m tests.crash.torture`` does 200.
    """
    lines: list[str] = []
    summary = torture.torture(tmp_path, rounds=12, seed=1, tell=lines.append)
    assert summary.ways.total() == 12
    assert set(summary.ways) == set(torture.WAYS)
    assert summary.steps > summary.open_steps > 0
    assert len(lines) == 1


@SIGKILL
def test_a_broken_promise_is_told_with_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails, says what is broken and how to see it again, and keeps the history."""

    def broken(*args: object, **kwargs: object) -> None:
        raise Broken("a step is gone")

    monkeypatch.setattr(Checker, "check", broken)
    monkeypatch.setattr(torture, "WAYS", ("time",))
    directory = tmp_path / "kept"
    assert torture.main(["--rounds", "3", "--seed", "17", "--directory", str(directory)]) == 1
    told = capsys.readouterr().err
    assert "a step is gone" in told
    assert "--seed 17" in told
    assert (directory / "history" / "history.db").exists()


def test_what_an_end_confirms() -> None:
    """A checkpoint must be there when an end that was called after it has returned."""
    ended = [
        "opening",
        "open",
        "task 0 " + "a" * 32,
        "step 0 s0 r0-t0-k0-s0",
        "prompt 0 s0",
        "task 1 " + "b" * 32,
        "ending 1 step s1",
        "decision 0 s0",
        "step 1 s1 r0-t1-k0-s0",
        "ended 1 step s1",
        "tool 0 s0",
    ]
    seen = read(ended, alone=False)
    first = next(step for step in seen.steps if step.step_id == "s0")
    assert first.confirmed == {"step", "prompt"}
    assert first.returned == ["step", "prompt", "decision", "tool"]
    alone = read(ended, alone=True)
    first = next(step for step in alone.steps if step.step_id == "s0")
    assert first.confirmed == set(first.returned)
