# SPDX-License-Identifier: Apache-2.0
"""Attribute names: each is a documented constant, is used, and is spelled out nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_taskhistory import semconv

PACKAGE = Path(semconv.__file__).parent
CONSTANTS = {name: value for name, value in vars(semconv).items() if name.isupper()}
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "semconv.py"
}
REGISTRY_OF_KEYS = "recording/keys.py"
"""Names within recorded JSON, which are no attributes, are constants there."""

NAME_OF_AN_ATTRIBUTE = re.compile(r"(?<![\w.-])(?:gen_ai|taskhistory)\.")
"""Anywhere in a text, so that names within SQL are found too; `otel-taskhistory.` is none."""


def documented(source: str) -> dict[str, str]:
    """Constants that a module assigns, by name, with the string below each or an empty one."""
    found = {}
    body = ast.parse(source).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            below = following.value if isinstance(following, ast.Expr) else None
            text = below.value if isinstance(below, ast.Constant) else ""
            found[statement.target.id] = text if isinstance(text, str) else ""
    return found


def names_used(source: str) -> set[str]:
    """Constants that a module reads, as ``semconv.NAME`` or imported by name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").endswith("semconv"):
            found.update(alias.name for alias in node.names)
    return found


def spelled_out(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string that spells out an attribute's name; docstrings do not count."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and NAME_OF_AN_ATTRIBUTE.search(node.value)
        ):
            yield node.lineno, node.value


def is_foreign(path: str) -> bool:
    """Whether a module reads the dialect of another instrumentation."""
    return path.startswith("conventions/") and path not in (
        "conventions/__init__.py",
        "conventions/taskhistory.py",
        "conventions/outcome.py",
    )


def test_every_constant_is_documented() -> None:
    """The string below a constant says what the attribute holds."""
    docs = documented(Path(semconv.__file__).read_text(encoding="utf-8"))
    assert docs.keys() == CONSTANTS.keys()
    assert [name for name, text in docs.items() if not text.endswith(".")] == []


def test_no_name_has_two_constants() -> None:
    """One attribute, one constant."""
    assert len(set(CONSTANTS.values())) == len(CONSTANTS)


def test_every_constant_is_used() -> None:
    """A constant that nothing writes or reads is a promise that nobody keeps."""
    used = set().union(*(names_used(source) for source in SOURCES.values()))
    assert CONSTANTS.keys() - used == set()


def test_every_key_is_documented() -> None:
    """The names within recorded JSON are documented as attributes are."""
    texts = documented(SOURCES[REGISTRY_OF_KEYS])
    assert [name for name, text in texts.items() if not text] == []


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path != REGISTRY_OF_KEYS and not is_foreign(path)]
)
def test_no_name_is_spelled_out_elsewhere(path: str) -> None:
    """Outside semconv.py a name is a constant, so that a typing error cannot go unseen."""
    assert list(spelled_out(SOURCES[path])) == []


@pytest.mark.parametrize("path", list(filter(is_foreign, SOURCES)))
def test_dialects_spell_out_only_names_that_are_theirs(path: str) -> None:
    """What only one dialect says is named where it is read; what has a constant is named by it."""
    known = set(CONSTANTS.values())
    assert [
        (line, text)
        for line, text in spelled_out(SOURCES[path])
        if text in known or "taskhistory." in text
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        'x = "gen_ai.request.model"',
        'x = f"taskhistory.{name}"',
        'db.execute("select attributes ->> \'$.\\"taskhistory.role\\"\' from spans")',
        'if name.startswith("gen_ai."): pass',
    ],
)
def test_the_check_finds_a_spelled_out_name(source: str) -> None:
    """In a string, an f-string, a piece of SQL or a prefix."""
    assert len(list(spelled_out(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""Reads ``gen_ai.request.model``."""',
        'X = 1\n"""Written to ``taskhistory.role``."""',
        'log = getLogger("otel_taskhistory.store")',
        'name = ".otel-taskhistory.json"',
        "x = semconv.GEN_AI_REQUEST_MODEL",
    ],
)
def test_the_check_leaves_other_text_alone(source: str) -> None:
    """Docstrings may name attributes, and names of our modules and files are none."""
    assert list(spelled_out(source)) == []


def test_the_check_sees_how_constants_are_used() -> None:
    """As an attribute of the module and by import, but not by mere mention in a text."""
    assert "A_B" in names_used("from otel_taskhistory import semconv\nx = semconv.A_B")
    assert "A_B" in names_used("from otel_taskhistory.semconv import A_B")
    assert "A_B" not in names_used("x = 'A_B'")


def test_the_check_sees_a_constant_without_a_text() -> None:
    """Documentation is the string right below, and nothing else."""
    assert documented('A: F = "a"\n"""Said."""\nB: F = "b"\nC: F = "c"\n') == {
        "A": "Said.",
        "B": "",
        "C": "",
    }
