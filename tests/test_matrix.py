# SPDX-License-Identifier: Apache-2.0
"""What `make test-matrix` runs: the Pythons that we say we work with, and the oldest packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import matrix


def test_the_pythons_are_those_that_the_package_names() -> None:
    """From the lowest that is allowed on, without a gap."""
    assert matrix.PYTHONS == ("3.11", "3.12", "3.13")
    assert matrix.PROJECT["project"]["requires-python"] == f">={matrix.OLDEST_PYTHON}"
    assert matrix.PYTHONS[0] == matrix.OLDEST_PYTHON


def test_every_requirement_of_ours_has_a_lowest_version() -> None:
    """So that the oldest one can be tested; each package has one such version, in every extra."""
    held = matrix.lowest()
    names = [line.partition("==")[0] for line in held]
    assert len(names) == len(set(names))
    assert {"opentelemetry-sdk", "sqlite-utils", "click", "datasette", "pyarrow"} <= set(names)
    assert "otel-taskhistory" not in names


def test_tools_do_not_raise_what_is_to_be_old() -> None:
    """A package of ours is installed by its lowest version only."""
    wanted = matrix.requirements(matrix.OLDEST)
    names = [matrix._name(line) for line in wanted]
    assert len(names) == len(set(names))
    assert not set(matrix.NEED_NEWER) & set(names)
    assert "pytest" in names
    assert set(matrix.NEED_NEWER) <= {matrix._name(line) for line in matrix.requirements("3.13")}


def test_a_missing_python_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And counts as failed: nobody takes for tested what was not."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    other = next(name for name in matrix.PYTHONS if name != "{}.{}".format(*sys.version_info))
    assert matrix.main([other]) == 1
    said = capsys.readouterr().out
    assert f"there is no Python {other}" in said
    assert f"failed or missing: {other}" in said


def test_this_python_is_found() -> None:
    """The one that runs the tests is one of those that are looked for."""
    assert matrix.python_of("{}.{}".format(*sys.version_info)) == sys.executable


def test_an_unknown_name_is_refused() -> None:
    """With those there are."""
    with pytest.raises(SystemExit, match=r"there are 3\.11, 3\.12, 3\.13, oldest"):
        matrix.main(["2.7"])
