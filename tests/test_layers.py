# SPDX-License-Identifier: Apache-2.0
"""The layers of the package: a module imports only from its own or a lower one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "otel_taskhistory"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "semconv", "settings", "units", "text", "_version"}),
    frozenset({"recording", "spans", "images", "thumbnails", "redaction"}),
    frozenset({"conventions"}),
    frozenset({"store"}),
    frozenset({"exporter", "log_exporter", "completion_hook", "history", "watch"}),
    frozenset({"processor", "snapshots", "transport", "pages"}),
    frozenset({"configure", "cli", "datasette_plugin", "demo", "mcp"}),
    frozenset({"", "__main__", "testing"}),
)
"""Lowest first; each name is a module or a subpackage, and ``""`` the package itself."""

FORBIDDEN: dict[str, frozenset[str]] = {
    "errors": frozenset({"opentelemetry", "sqlite3", "sqlite_utils", "PIL"}),
    "semconv": frozenset({"opentelemetry", "sqlite3", "sqlite_utils", "PIL"}),
    "settings": frozenset({"opentelemetry", "sqlite3", "sqlite_utils", "PIL"}),
    "recording": frozenset({"opentelemetry.sdk", "sqlite3", "sqlite_utils", "PIL"}),
    "conventions": frozenset({"sqlite3", "sqlite_utils", "opentelemetry.sdk", "PIL"}),
    "store": frozenset({"opentelemetry"}),
    "history": frozenset({"opentelemetry.sdk"}),
}
"""What a module or subpackage imports from nowhere, not even within a function or for its types."""

RECORDING_KNOWS = frozenset({"recording", "errors", "semconv", "settings", "units"})
"""All of the package that the agent's side may import."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target."""

    target: str
    """The dotted name of a module; inside the package, of an existing one where there is one."""
    line: int


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; the examples are no part of it."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join((PACKAGE, *parts))] = path
    return found


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every import in a module's source, lazy and type-only ones included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                # `from package import name`: the name may be a module, which is then what is meant.
                inner = f"{base}.{alias.name}"
                own = within(base, PACKAGE)
                yield Import(inner if not own or inner in modules() else base, node.lineno)


def within(name: str, package: str) -> bool:
    """Whether a dotted name is a package or something in it."""
    return name == package or name.startswith(f"{package}.")


def room(module: str) -> str:
    """The part of a dotted name that the layers go by."""
    return module.removeprefix(PACKAGE).removeprefix(".").split(".")[0]


def layer(module: str) -> int:
    """The number of a module's layer, lowest 0."""
    for number, names in enumerate(LAYERS):
        if room(module) in names:
            return number
    raise AssertionError(f"{module} has no layer: give it one in LAYERS, and in the docs")


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Every import in a module's source that its layer or a rule does not allow."""
    found = []
    for imported in imports(source, module, is_package=is_package):
        where = f"{module}:{imported.line} imports {imported.target}"
        if within(imported.target, PACKAGE):
            if layer(imported.target) > layer(module):
                found.append(f"{where}, which lies higher")
            elif room(module) == "recording" and room(imported.target) not in RECORDING_KNOWS:
                found.append(f"{where}, which the agent's side does not know")
        found += [
            f"{where}, which is forbidden there"
            for forbidden in FORBIDDEN.get(room(module), ())
            if within(imported.target, forbidden)
        ]
    return found


def source_of(module: str) -> tuple[str, bool]:
    """A module's text, and whether it is a package."""
    path = modules()[module]
    return path.read_text(encoding="utf-8"), path.name == "__init__.py"


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_from_its_own_or_a_lower_layer(module: str) -> None:
    """Layers hold, and each room leaves alone what it must not know."""
    source, is_package = source_of(module)
    layer(module)
    assert violations(source, module, is_package=is_package) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("store.reader", "from otel_taskhistory.exporter import TaskHistoryExporter"),
        ("store.reader", "from ..history import TaskHistory"),
        ("store.reader", "from otel_taskhistory import TaskHistory"),
        ("store.reader", "def f():\n    import opentelemetry.trace"),
        ("store.reader", "from opentelemetry import trace"),
        ("conventions.genai", "import sqlite3"),
        ("conventions.genai", "if TYPE_CHECKING:\n    from sqlite_utils.db import Database"),
        ("conventions.genai", "from otel_taskhistory import store"),
        ("recording.tracer", "from opentelemetry.sdk.trace import TracerProvider"),
        ("recording.tracer", "from opentelemetry import sdk"),
        ("recording.tracer", "from otel_taskhistory.spans.record import SpanRecord"),
        ("history", "import opentelemetry.sdk.trace as trace"),
        ("settings", "from PIL import Image"),
        ("spans.sdk", "import otel_taskhistory"),
        ("exporter", "from otel_taskhistory import configure"),
    ],
)
def test_the_check_finds_what_it_looks_for(module: str, source: str) -> None:
    """Each kind of forbidden import is found, however it is written."""
    if source == "from otel_taskhistory import store":
        assert f"{PACKAGE}.store" in modules()
    assert len(violations(source, f"{PACKAGE}.{module}")) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("recording.tracer", "from opentelemetry.trace import Span"),
        ("recording.tracer", "from otel_taskhistory import semconv\nfrom . import sink"),
        ("store.reader", "import sqlite3\nfrom otel_taskhistory.errors import TaskNotFound"),
        ("store.reader", "from otel_taskhistory.store import database"),
        ("exporter", "from otel_taskhistory.spans.sdk import record\nimport opentelemetry.sdk"),
        ("configure", "from otel_taskhistory.processor import TaskHistoryProcessor"),
    ],
)
def test_the_check_allows_what_is_allowed(module: str, source: str) -> None:
    """Imports of the own and of lower layers pass."""
    assert violations(source, f"{PACKAGE}.{module}") == []


def test_the_reading_side_needs_no_sdk() -> None:
    """Nothing that `history` or `store` import, directly or not, imports the SDK."""
    waiting = [name for name in modules() if room(name) in ("history", "store")]
    assert waiting
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        # The package itself offers the public names of both sides, and is loaded in any case.
        if module in seen or module == PACKAGE or module not in modules():
            continue
        seen.add(module)
        waiting.append(module.rpartition(".")[0])
        source, is_package = source_of(module)
        for imported in imports(source, module, is_package=is_package):
            assert not within(imported.target, "opentelemetry.sdk"), f"{module}:{imported.line}"
            waiting.append(imported.target)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A fresh `import otel_taskhistory` loads neither Pillow nor Datasette nor protobuf."""
    heavy = ("PIL", "datasette", "google.protobuf", "opentelemetry.proto", "pydantic")
    program = (
        f"import sys, {PACKAGE}; assert {PACKAGE}.__file__;"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("[]", "", 0)
