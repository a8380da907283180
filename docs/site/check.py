# SPDX-License-Identifier: Apache-2.0
"""Looks through a built site: links that lead nowhere, and what would be loaded from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADED: Final = {
    ("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"),
    ("video", "src"), ("object", "data"), ("use", "href"),
}  # fmt: skip
"""What a browser fetches by itself, by element and attribute."""

_NOT_FETCHED: Final = {"canonical", "author", "next", "prev", "index", "search", "license"}
"""Kinds of ``<link>`` that only say where something is."""

_IN_STYLES: Final = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?!url\()[^)\"']+)")


class _Page(HTMLParser):
    """Links, anchors and what is loaded, of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        for element, attribute in _LOADED:
            if tag == element and attribute in given and given.get("rel") not in _NOT_FETCHED:
                self.loaded.append(given[attribute])


def problems(html: Path) -> list[str]:
    """One line for each link that leads nowhere and each thing from elsewhere; none is good."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(html.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(html).as_posix()
        found += [f"{name}: loads {one}" for one in page.loaded if _is_elsewhere(one)]
        here = {one for one in (*page.links, *page.loaded) if not _is_elsewhere(one)}
        found += [f"{name}: nothing is at {one}" for one in here if not _is_there(one, path, pages)]
    for style in sorted(html.rglob("*.css")):
        addresses = _IN_STYLES.findall(style.read_text(encoding="utf-8"))
        name = style.relative_to(html).as_posix()
        found += [f"{name}: loads {one}" for one in addresses if _is_elsewhere(one)]
    return sorted(found)


def _is_elsewhere(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.scheme or parts.netloc) and parts.scheme != "data"


def _is_there(link: str, path: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme == "data":
        return True
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors
