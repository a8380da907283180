# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, and what the agent can do in it: its tools.

It reaches the one site it was opened for and nothing else: every other request is refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WINDOW: Final = {"width": 960, "height": 640}
PATIENCE_MS: Final = 1500
"""How long an element may keep the agent waiting."""
MAX_TEXT: Final = 4000

# What one can act upon gets a number, by which the model names it.
_LOOK: Final = """
() => {
  const found = [];
  for (const element of document.querySelectorAll("a, button, input, select, textarea")) {
    const number = found.length + 1;
    element.setAttribute("data-agent", number);
    const label = element.labels && element.labels[0];
    const name = (label || element).textContent.trim() || element.name;
    const value = element.value === undefined ? null : element.value;
    found.push({number, kind: element.tagName.toLowerCase(), name, value});
  }
  return {title: document.title, text: document.body.innerText, elements: found};
}
"""

_NUMBER: Final = {"type": "integer", "description": "number of the element on the page"}
_TEXT: Final = {"type": "string"}


class NoBrowser(Exception):
    """There is no browser to work in; the message says what to install."""


class Tools:
    """What the agent can do on a page; each tool returns what the page shows afterwards."""

    def __init__(self, page: Any, root: str) -> None:
        self._page = page
        self._root = root
        self._run = {"open": self._open, "click": self._click, "fill": self._fill}
        self._run["choose"] = self._choose

    @staticmethod
    def definitions() -> list[dict[str, Any]]:
        """The tools as the chat API is told of them."""
        return [
            _tool("open", "Open an address of the site.", {"path": _TEXT}),
            _tool("click", "Click a link or button.", {"element": _NUMBER}),
            _tool("fill", "Write a text into a field.", {"element": _NUMBER, "text": _TEXT}),
            _tool("choose", "Choose an option of a list.", {"element": _NUMBER, "option": _TEXT}),
            _tool("give_up", "End the task as failed; say why.", {"reason": _TEXT}),
        ]

    def run(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one call and return what the page shows then.

        Raises:
            LookupError: there is no such tool.
            TypeError: its arguments do not fit.
            Exception: whatever the browser could not do.
        """
        if name not in self._run:
            raise LookupError(f"there is no tool {name!r}; there are {', '.join(self._run)}")
        self._run[name](**arguments)
        return self.look()

    def look(self) -> dict[str, Any]:
        """The page: address, title, text, and the elements one can act upon by their number."""
        seen = self._page.evaluate(_LOOK)
        path = self._page.url.removeprefix(self._root)
        return {"path": path, **seen, "text": seen["text"][:MAX_TEXT]}

    def screenshot(self) -> bytes:
        """The page as it looks now, as an encoded PNG."""
        shot: bytes = self._page.screenshot()
        return shot

    def _open(self, path: str) -> None:
        self._page.goto(urljoin(f"{self._root}/", path))

    def _click(self, element: int) -> None:
        self._element(element).click()
        self._page.wait_for_load_state()

    def _fill(self, element: int, text: str) -> None:
        self._element(element).fill(text)

    def _choose(self, element: int, option: str) -> None:
        self._element(element).select_option(label=option)

    def _element(self, number: int) -> Any:
        return self._page.locator(f'[data-agent="{int(number)}"]')


@contextmanager
def browsing(root: str) -> Iterator[Tools]:
    """A page of a fresh browser on the site at `root`.

    Raises:
        NoBrowser: Playwright or Chromium is missing.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("Playwright is missing: pip install playwright") from error
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_program(playwright))
        try:
            page = browser.new_page(viewport=WINDOW)
            page.set_default_timeout(PATIENCE_MS)
            page.route("**/*", lambda route: _pass(route, root))
            yield Tools(page, root)
        finally:
            browser.close()


def _program(playwright: Any) -> str:
    """The Chromium of this machine, else the one that Playwright has fetched."""
    own = playwright.chromium.executable_path
    found = next(filter(None, map(shutil.which, NAMES)), own if Path(own).exists() else None)
    if found is None:
        raise NoBrowser(
            "there is no Chromium on PATH, and Playwright has fetched none: install one"
            " (on Debian: apt install chromium), or run: playwright install chromium"
        )
    return found


def _pass(route: Any, root: str) -> None:
    if route.request.url.startswith(f"{root}/"):
        route.continue_()
    else:
        route.abort()


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
