# SPDX-License-Identifier: Apache-2.0
"""The guides for frameworks say what their examples do, with the versions that are tested."""

from __future__ import annotations

import re

import pytest

from tests.frameworks.environments import BELOW, NAMES, REQUIREMENTS, ROOT, named
from tests.frameworks.expected import FRAMEWORKS
from tests.frameworks.guides import GUIDE, guides
from tests.frameworks.running import EXAMPLES, program_of


def test_each_framework_has_everything() -> None:
    """Requirements, expectations, an example and a guide, and none of them is left over."""
    assert [framework.name for framework in FRAMEWORKS] == list(NAMES)
    assert sorted(guides()) == list(NAMES)
    assert sorted(EXAMPLES.glob("with_*.py")) == sorted(map(program_of, NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_requirements_name_one_version_of_each_package(name: str) -> None:
    """An environment that is made anew next year has the same packages."""
    text = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line) for line in lines), lines
    assert BELOW in text
    assert named(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_names_the_tested_version(name: str) -> None:
    """The table of the page says which version of the framework the tests run."""
    tested = re.findall(r"^\| \[.*?\]\(#.*?\) \| (\S+) \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    assert any(line.partition("==")[2] in tested for line in named(name))
    assert len(tested) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_to_paste_are_those_of_the_example(name: str) -> None:
    """Whoever pastes them does what the tests run; only imports may be fewer."""
    example = program_of(name).read_text(encoding="utf-8").splitlines()
    left = iter(example)
    for line in guides()[name].splitlines():
        if line and not line.startswith(("import ", "from ")):
            assert line in left, f"not in the example, or not in this order: {line}"


def test_the_guide_is_reachable() -> None:
    """The README leads to it."""
    assert "docs/frameworks.md" in (ROOT / "README.md").read_text(encoding="utf-8")
