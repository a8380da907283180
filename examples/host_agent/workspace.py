# SPDX-License-Identifier: Apache-2.0
"""The files the agent may read: a few named directories, and nothing outside of them.

Paths are written with ``/`` and begin with the name of such a directory, for example
``sqlite_utils/db.py``. So nothing that the agent reads or says depends on where Python keeps
its packages on this machine.
"""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MAX_FILES = 200
MAX_LINES = 200
MAX_MATCHES = 50


class Workspace:
    """Named directories with the agent's file tools on them; every method only reads."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = {name: path.resolve() for name, path in roots.items()}

    @classmethod
    def of_installed(cls, *projects: str) -> Workspace:
        """The code and the metadata of installed distributions, e.g. ``sqlite-utils``."""
        roots: dict[str, Path] = {}
        for project in projects:
            package = project.replace("-", "_")
            spec = find_spec(package)
            if spec is not None and spec.submodule_search_locations:
                roots[package] = Path(spec.submodule_search_locations[0])
            metadata = metadata_directory(project)
            if metadata is not None:
                roots[metadata.name] = metadata
        return cls(roots)

    @property
    def names(self) -> list[str]:
        """The names that paths may begin with."""
        return sorted(self._roots)

    def resolve(self, path: str) -> Path:
        """Where `path` is on this machine.

        Raises:
            PermissionError: it leads out of the workspace.
            FileNotFoundError: there is nothing by that name.
        """
        first, _, rest = path.strip("/").partition("/")
        root = self._roots.get(first)
        if root is None:
            raise PermissionError(f"{path}: only {', '.join(self.names)} can be read")
        found = (root / rest).resolve()
        if not found.is_relative_to(root):
            raise PermissionError(f"{path}: leads out of {first}")
        if not found.exists():
            raise FileNotFoundError(f"{path}: no such file or directory")
        return found

    def list_files(self, path: str, pattern: str = "*") -> dict[str, Any]:
        """Files below a directory whose name matches `pattern`, the largest first."""
        files: list[dict[str, Any]] = [
            {"path": name, "bytes": file.stat().st_size} for name, file in self._walk(path, pattern)
        ]
        files.sort(key=lambda entry: (-entry["bytes"], entry["path"]))
        return {"total": len(files), "files": files[:MAX_FILES]}

    def read_file(
        self, path: str, first_line: int = 1, max_lines: int = MAX_LINES
    ) -> dict[str, Any]:
        """Some lines of a text file, counted from 1."""
        lines = self._text(path).splitlines()
        start = max(first_line, 1) - 1
        part = lines[start : start + min(max(max_lines, 1), MAX_LINES)]
        return {
            "path": path,
            "first_line": start + 1,
            "total_lines": len(lines),
            "text": "\n".join(part),
        }

    def measure_module(self, path: str) -> dict[str, Any]:
        """Size and content of a Python module: lines, code lines, functions, classes."""
        text = self._text(path)
        nodes = list(ast.walk(ast.parse(text)))
        lines = [line.strip() for line in text.splitlines()]
        return {
            "path": path,
            "lines": len(lines),
            "code_lines": sum(1 for line in lines if line and not line.startswith("#")),
            "functions": sum(
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes
            ),
            "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        }

    def search_text(self, path: str, text: str, pattern: str = "*") -> dict[str, Any]:
        """Lines that contain `text`, letter by letter, in one file or in the files below `path`."""
        matches = [
            {"path": name, "line": number, "text": line.strip()[:200]}
            for name, file in self._walk(path, pattern)
            for number, line in enumerate(_decoded(file).splitlines(), start=1)
            if text in line
        ]
        return {"total": len(matches), "matches": matches[:MAX_MATCHES]}

    def module_imports(self, path: str) -> dict[str, Any]:
        """The modules of the workspace that a Python module imports, in the order of its text."""
        package = path.strip("/").split("/")[:-1]
        found: dict[str, None] = {}
        nodes = [n for n in ast.walk(ast.parse(self._text(path))) if isinstance(n, ast.stmt)]
        for node in sorted(nodes, key=lambda n: n.lineno):
            for dotted in _imported(node, package):
                module = self._module_path(dotted)
                if module is not None and module != path:
                    found[module] = None
        return {"path": path, "imports": list(found)}

    def _module_path(self, dotted: list[str]) -> str | None:
        """``["a", "b"]`` → ``a/b.py`` or ``a/b/__init__.py``, whichever is in the workspace."""
        if not dotted or dotted[0] not in self._roots:
            return None
        base = "/".join(dotted)
        for candidate in (f"{base}.py", f"{base}/__init__.py"):
            try:
                self.resolve(candidate)
            except (FileNotFoundError, PermissionError):
                continue
            return candidate
        return None

    def _walk(self, path: str, pattern: str) -> Iterator[tuple[str, Path]]:
        """Name in the workspace and real path of each file at or below `path`, sorted."""
        top = self.resolve(path)
        if top.is_file():
            yield path, top
            return
        for file in sorted(top.rglob("*")):
            relative = file.relative_to(top).as_posix()
            wanted = "__pycache__" not in relative and fnmatch.fnmatch(file.name, pattern)
            # A link may lead out of the workspace; what it shows is not the agent's to read.
            if wanted and file.is_file() and not file.is_symlink():
                yield f"{path.strip('/')}/{relative}", file

    def _text(self, path: str) -> str:
        return _decoded(self.resolve(path))


def _decoded(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _imported(node: ast.stmt, package: list[str]) -> Iterator[list[str]]:
    """Dotted names that an import statement within `package` may mean, as lists of parts."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name.split(".")
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        base = base + (node.module.split(".") if node.module else [])
        submodules = [[*base, alias.name] for alias in node.names]
        # ``from . import x`` means the submodule x, and needs the package itself as well.
        yield from [base, *submodules] if node.module else [*submodules, base]


def metadata_directory(project: str) -> Path | None:
    """The ``.dist-info`` directory of an installed distribution, None when there is none."""
    try:
        files = distribution(project).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.parts[0].endswith(".dist-info"):
            return Path(str(file.locate())).parents[len(file.parts) - 2]
    return None
