# SPDX-License-Identifier: Apache-2.0
"""Copies the pages to where Sphinx reads them, with links that lead out of ``docs/`` put right.

A site that is read from its folder has no repository beside it. So each example gets a page with
its files, and so do the changelog and its like; links lead to these. What has no page (a test, the
Makefile) is named and not linked.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Final

_NO_PAGES: Final = {"site", "_build", "__pycache__", "__init__.py", "pictures.py"}
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_OF_THE_PROJECT: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages beside the README; those that are there."""

_LANGUAGES: Final = {
    ".py": "python", ".mjs": "javascript", ".json": "json", ".sql": "sql", ".sh": "sh"
}  # fmt: skip


def copy_pages(root: Path, source: Path) -> None:
    """Fill `source` with the pages of ``docs/``, of the examples and of the project."""
    shutil.copytree(
        root / "docs",
        source,
        ignore=lambda folder, names: [name for name in names if name in _NO_PAGES],
    )
    for page in sorted(source.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        place = PurePosixPath("docs", *page.relative_to(source).parts)
        page.write_text(with_links(text, place, root), encoding="utf-8")
    _example_pages(root, source / "examples")
    names = [name for name in _OF_THE_PROJECT if (root / name).exists()]
    for name in names:
        text = with_links((root / name).read_text(encoding="utf-8"), PurePosixPath(name), root)
        (source / name.lower()).write_text(text, encoding="utf-8")
    listed = "\n".join(name.lower().removesuffix(".md") for name in names)
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write(f"\n```{{toctree}}\n:hidden:\n:caption: Project\n\n{listed}\n```\n")


def with_links(text: str, place: PurePosixPath, root: Path) -> str:
    """A page whose links to files outside of ``docs/`` lead to pages of the site.

    Args:
        text: of the page.
        place: of the page in the repository.
        root: of the repository; a link to what is not there is left alone, and found by Sphinx.
    """

    def on_the_site(match: re.Match[str]) -> str:
        said, link, anchor = match[1], match[2], match[3] or ""
        target = None if ":" in link else _normal(place.parent / link)
        if target is None or not (root / target).exists():
            return match[0]
        if target.parts[:1] == ("docs",):
            if place.parts[0] == "docs":
                return match[0]
            return f"[{said}](/{PurePosixPath(*target.parts[1:])}{anchor})"
        page = _page(target, root)
        return said if page is None else f"[{said}]({page}{anchor})"

    return _LINK.sub(on_the_site, text)


def _page(target: PurePosixPath, root: Path) -> str | None:
    """The page of the site that stands for a file or folder of the repository, if there is one."""
    if str(target) == "README.md":
        return "/index.md"
    if str(target) in _OF_THE_PROJECT:
        return f"/{str(target).lower()}"
    if target.parts[0] != "examples":
        return None
    if len(target.parts) == 1:
        return "/examples/index.md"
    return f"/examples/{target.parts[1].removesuffix('.py')}.md"


def _normal(path: PurePosixPath) -> PurePosixPath | None:
    """Without ``..``; None when it leads out of the repository."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


# --- examples -------------------------------------------------------------------------------------


def _example_pages(root: Path, target: Path) -> None:
    """A page for each example: what it says of itself, and its files."""
    target.mkdir()
    names = []
    for example in sorted((root / "examples").iterdir()):
        files = _files(example)
        if not files or example.name.startswith(("_", ".")) or example.suffix == ".md":
            continue
        name = example.name.removesuffix(".py")
        names.append(name)
        readme = next((path for path in files if path.name == "README.md"), None)
        page = [f"# {name}\n"]
        if readme is not None:
            text = readme.read_text(encoding="utf-8")
            text = re.sub(r"\A# .*\n", "", text)
            # Files of the example are on this very page.
            text = re.sub(r"\[([^\]]+)\]\((?!\.\.|https?:|#)([^)]*)\)", r"\1", text)
            page.append(with_links(text, PurePosixPath("examples", name, "README.md"), root))
        for path in files:
            if path == readme or not path.read_bytes().strip():
                continue
            shown = path.relative_to(root).as_posix()
            code = path.read_text(encoding="utf-8").rstrip()
            page.append(f"## `{shown}`\n\n````{_LANGUAGES[path.suffix]}\n{code}\n````\n")
        (target / f"{name}.md").write_text("\n".join(page), encoding="utf-8")
    overview = root / "examples" / "README.md"
    text = "# Examples\n"
    if overview.exists():
        place = PurePosixPath("examples", "README.md")
        text = with_links(overview.read_text(encoding="utf-8"), place, root)
    listed = "\n".join(names)
    text += f"\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    (target / "index.md").write_text(text, encoding="utf-8")


def _files(example: Path) -> list[Path]:
    found = [example] if example.is_file() else sorted(example.rglob("*"))
    return [
        path
        for path in found
        if path.is_file()
        and (path.suffix in _LANGUAGES or path.name == "README.md")
        and "__pycache__" not in path.parts
        and "node_modules" not in path.parts
    ]
