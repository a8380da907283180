# SPDX-License-Identifier: Apache-2.0
"""A task as one page that needs nothing else: no server, no network, pictures and script inside.

The page's policy names its own style and script by hash, so that nothing else in it could run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Final

from otel_taskhistory.pages.assets import ASSETS
from otel_taskhistory.pages.html import Html, Url, el, start
from otel_taskhistory.pages.links import Links, anchor
from otel_taskhistory.pages.pictures import shrunk
from otel_taskhistory.pages.pieces import brief, is_digest
from otel_taskhistory.pages.shell import keyboard_help
from otel_taskhistory.pages.step_list import step_item
from otel_taskhistory.pages.step_pane import step_markup
from otel_taskhistory.pages.task_page import axis_markup, head_markup, opens_at
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.store.overview.steps import StepLine
from otel_taskhistory.text import count, one_line
from otel_taskhistory.units import format_size

LARGE: Final = (1280, 1280)
SMALL: Final = (320, 240)
"""Width and height of pictures in a step, and in lists."""
VALUE_BYTES: Final = 256 * 1024
"""Of each value; what is longer is cut, and says so."""
PICTURE_BYTES: Final = 48 * 2**20
"""Of all pictures together; those that come after that are left out, and the page says so."""

_AT_ONCE: Final = 'document.documentElement.classList.add("js")'
"""Before the steps are read: only the one that is chosen is laid out."""
_NO_PICTURE: Final = Url(
    "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
)


class _Inside(Links):
    """Every address is a place on the page itself, or a picture in it."""

    def __init__(self, whole: WholeTask) -> None:
        super().__init__()
        self._whole = whole
        self._large: set[str] = set()
        self._small: dict[str, Url] = {}
        self._paths: dict[str, str] = {}
        self.taken = 0
        self.left_out: set[str] = set()

    def know(self, sha256: str, path: str | None) -> None:
        """Where the file of a picture is."""
        if path is not None:
            self._paths.setdefault(sha256, path)

    def task(self, task_id: str, step_id: str | None = None) -> Url:
        return anchor(step_id or "main")

    def original(self, sha256: str) -> Url | None:
        return None

    def artifact(self, sha256: str) -> Url:
        # Embedded once; where it comes again the script puts the same one.
        if sha256 in self._large:
            return self.thumbnail(sha256)
        self._large.add(sha256)
        return self._made(sha256, LARGE)

    def thumbnail(self, sha256: str, width: int | None = None) -> Url:
        if width is not None and width > SMALL[0]:
            return self.artifact(sha256)
        if sha256 not in self._small:
            self._small[sha256] = self._made(sha256, SMALL)
        return self._small[sha256]

    def _made(self, sha256: str, size: tuple[int, int]) -> Url:
        if not is_digest(sha256):
            return _NO_PICTURE
        data = self._whole.picture(sha256, self._paths.get(sha256))
        made = None if data is None else shrunk(data, *size)
        if made is None or self.taken + len(made[0]) > PICTURE_BYTES:
            self.left_out.add(sha256)
            return _NO_PICTURE
        self.taken += len(made[0])
        return Url(f"data:{made[1]};base64,{base64.b64encode(made[0]).decode('ascii')}")


def single_page(whole: WholeTask, progress: Callable[[int], None] | None = None) -> Iterator[str]:
    """The page, piece by piece.

    Args:
        progress: called with the number of each step that is done, from 1.
    """
    head = whole.head()
    lines = list(whole.steps())
    links = _Inside(whole)
    style, script = (ASSETS[name][0].decode("utf-8") for name in ("page.css", "page.js"))
    title = brief(head.task.goal or head.task.task_id, 80)
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';"
        f" style-src '{_digest(style)}'; script-src '{_digest(_AT_ONCE)}' '{_digest(script)}'"
    )
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield str(el("meta", http_equiv="Content-Security-Policy", content=policy))
    yield str(el("meta", name="viewport", content="width=device-width, initial-scale=1"))
    yield str(el("meta", name="color-scheme", content="light dark"))
    yield str(el("meta", name="referrer", content="no-referrer"))
    yield str(el("title", f"{one_line(title)[:120]} · Task history"))
    # Our own files, which hold neither </style> nor </script>.
    yield f"<style>{style}</style><script>{_AT_ONCE}</script></head>"
    yield str(start("body", data_page="task", data_saved="1"))
    yield str(_bar(redact=whole.redact))
    yield str(start("main", id="main", tabindex="-1"))
    yield str(head_markup(head, links))
    yield str(axis_markup(head.task, links, saved=json.dumps(whole.axis(), allow_nan=False)))
    if not lines:
        yield str(el("p", "No steps were recorded.", class_="dim"))
    ids = [line.step.step_id for line in lines]
    chosen = opens_at(head, lambda: ids[0] if ids else None, lambda: ids[-1] if ids else None)
    yield str(start("div", class_="split"))
    yield str(_list(lines, links, chosen, head.task.agent))
    yield str(
        start("div", id="pane", data_all="1", data_first=chosen, role="region", aria_label="Steps")
    )
    for number, line in enumerate(lines, start=1):
        view = whole.step(line.step.step_id, VALUE_BYTES)
        for shot in view.pictures:
            links.know(shot.sha256, shot.path)
        yield str(step_markup(view, links, saved=True))
        if progress is not None:
            progress(number)
    yield "</div></div>"
    yield str(_foot(links, redact=whole.redact))
    yield f"</main>{keyboard_help()}<script>{script}</script></body></html>\n"


def _bar(*, redact: bool) -> Html:
    mark = el("span", class_="mark", aria_hidden="true")
    return el(
        "header",
        el("span", mark, el("b", "Task history"), class_="brand"),
        el("span", "without contents", class_="tag") if redact else None,
        el("button", "?", type="button", class_="help-button", aria_label="Keyboard help"),
        class_="bar",
    )


def _list(lines: list[StepLine], links: _Inside, chosen: str | None, agent: str | None) -> Html:
    for line in lines:
        if line.picture is not None:
            links.know(line.picture.sha256, line.picture.path)
    return el(
        "section",
        el("div", el("h2", count(len(lines), "step")), class_="section-head"),
        el(
            "ol",
            [step_item(line, links, chosen, agent) for line in lines],
            id="steps",
            class_="steps",
        ),
        class_="step-list",
        aria_label="Steps",
    )


def _foot(links: _Inside, *, redact: bool) -> Html:
    notes = ["Written by otel-taskhistory."]
    if redact:
        notes.append(
            "Goals, prompts, decisions, arguments, results, errors and pictures are left out."
        )
    if links.left_out:
        limit = format_size(PICTURE_BYTES)
        what = count(len(links.left_out), "picture")
        notes.append(
            f"{what} could not be read, or came after {limit} of pictures: not in this file."
        )
    return el("footer", el("p", " ".join(notes), class_="dim"))


def _digest(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
