# SPDX-License-Identifier: Apache-2.0
"""The form of the code, where neither the formatter nor the linter nor the type checker looks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "otel_taskhistory"
EVERYWHERE = ("otel_taskhistory", "examples", "bench", "tests")

IGNORE = re.compile(r"#\s*(type:\s*ignore|noqa|pragma:)")
REASON = re.compile(
    r"#\s*(?:type:\s*ignore\[[\w, -]+\]|noqa: [A-Z0-9, ]+|pragma: no cover)"
    r"(?:\s*#\s*type:\s*ignore\[[\w, -]+\]|\s*#\s*noqa: [A-Z0-9, ]+)?"
    r"\s*(?:#|-|\()\s*\w+"
)


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file of some folders of this repository."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield path


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string in a source, f-strings without what is put into them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


NUMBERED = re.compile(r"(?:[\s(,=<>+*/-]|^)\?[1-9]")


def test_no_statement_has_numbered_parameters() -> None:
    """`?1` with a sequence is a `DeprecationWarning` before Python 3.12.4: `?`, or `:name`."""
    assert NUMBERED.search("WHERE id = ?1")
    assert not NUMBERED.search("-?0x[0-9a-f]{3000,}")
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources("otel_taskhistory", "examples", "bench", "tests/programs")
        for line, text in texts_of(path.read_text(encoding="utf-8"))
        if NUMBERED.search(text)
    ]
    assert found == []
