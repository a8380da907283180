# SPDX-License-Identifier: Apache-2.0
"""Copies the pages to where Sphinx reads them, with links that lead out of ``docs/`` put right.

Pages link to files of the repository (examples, the changelog). On the site there is a page for
each such file, written by `otel_taskhistory`'s own sources: a site that is read from a folder has
no repository beside it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Final

_NO_PAGES: Final = {"site", "_build", "__pycache__", "__init__.py", "pictures.py"}
_LINK: Final = re.compile(r"(?<=\]\()(\.\./)+([^)#\s]+)")
_LANGUAGES: Final = {
    ".py": "python", ".mjs": "javascript", ".json": "json", ".sql": "sql", ".sh": "sh"
}  # fmt: skip


def copy_pages(root: Path, source: Path) -> None:
    """Fill `source` with the pages of ``docs/``, the examples and the changelog."""
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
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    (source / "changelog.md").write_text(
        with_links(changelog, PurePosixPath("CHANGELOG.md"), root), encoding="utf-8"
    )


def with_links(text: str, place: PurePosixPath, root: Path) -> str:
    """A page whose links to files outside of ``docs/`` lead to pages of the site.

    Args:
        text: of the page.
        place: of the page in the repository.
        root: of the repository; a link to what is not there is left alone, and found by Sphinx.
    """

    def site(match: re.Match[str]) -> str:
        target = _normal(place.parent / match[0])
        if target is None or target.parts[0] == "docs" or not (root / target).exists():
            return match[0]
        return _address(target, root)

    text = _LINK.sub(site, text)
    if place.parts[0] == "docs":
        return text
    # A page from elsewhere: its links into docs/ are links within the site.
    return re.sub(r"(?<=\]\()(?:\.\./)*docs/", "/", text)


def _address(target: PurePosixPath, root: Path) -> str:
    """The page of the site that stands for a file or folder of the repository."""
    if str(target) == "CHANGELOG.md":
        return "/changelog.md"
    if str(target) == "README.md":
        return "/index.md"
    if target.parts[0] == "examples" and len(target.parts) > 1:
        return f"/examples/{target.parts[1]}.md"
    if target.parts[0] == "examples":
        return "/examples/index.md"
    raise ValueError(f"the site has no page for {target}, to which a page links")


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
        if not files or example.name.startswith(("_", ".")):
            continue
        name = example.name
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
    listed = "\n".join(names)
    (target / "index.md").write_text(
        "# Examples\n\nEach runs with one command, which stands at its top, and is run by the"
        f" tests.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n",
        encoding="utf-8",
    )


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
