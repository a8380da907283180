# SPDX-License-Identifier: Apache-2.0
"""Examples that are one program each: they print what their own docstring says."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_prints_what_it_says(name: str) -> None:
    """Run by the command that stands there, it prints that block, and warns of nothing."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text("utf-8"))) or ""
    assert f"``python examples/{name}``" in docstring
    printed = textwrap.dedent(docstring.partition(".. code-block:: text\n\n")[2])
    assert printed
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == printed


def test_every_example_says_what_to_run_and_what_one_sees() -> None:
    """A folder has a README with a command in it; what is run by its framework has a docstring."""
    for folder in EXAMPLES.iterdir():
        if folder.is_dir() and folder.name not in ("frameworks", "__pycache__"):
            readme = (folder / "README.md").read_text("utf-8")
            assert "```console\n$ " in readme, folder
    for program in EXAMPLES.glob("frameworks/with_*.py"):
        docstring = ast.get_docstring(ast.parse(program.read_text("utf-8"))) or ""
        assert f"python examples/frameworks/{program.name}" in docstring
