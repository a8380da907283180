# SPDX-License-Identifier: Apache-2.0
"""What every page is made of: outcomes, times, numbers, pictures, texts that are long."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Protocol

from otel_taskhistory.history import ModelCall, Screenshot, Step, Task
from otel_taskhistory.pages.html import Html, Node, Url, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pictures import TALL
from otel_taskhistory.store.overview.texts import cut_off
from otel_taskhistory.text import (
    count,
    duration,
    milliseconds_since,
    one_line,
    parse_time,
    printable,
    shorten,
)
from otel_taskhistory.thumbnails import SIZES
from otel_taskhistory.units import format_size

_ICONS: Final = {
    "succeeded": "M3.2 8.4l3.2 3.2 6.4-7",
    "failed": "M4 4l8 8M12 4l-8 8",
    "running": "M8 3.2v4.8l3.2 2",
    "cancelled": "M3.5 8h9",
    "interrupted": "M9 2.5L5 8.5h5.5L7 13.5",
    "unknown": "M6 6a2 2 0 113 1.8c-.7.4-1 .8-1 1.6M8 12v.2",
}
_LONGEST_SIDE: Final = 16_000
"""Pixels of a side from which on browsers may draw nothing: their limits for a texture."""
_FOLD_AT: Final = (1_600, 16)
"""Characters and lines of a text from which on it is folded."""


def icon(status: str) -> Html:
    """The sign of a status; its word must stand beside it, or in a label."""
    path = el("path", d=_ICONS.get(status, _ICONS["unknown"]))
    ring = el("circle", cx=8, cy=8, r=6.5) if status == "running" else None
    return el(
        "svg", ring, path, class_=f"icon {_known(status)}", viewBox="0 0 16 16", aria_hidden="true"
    )


def outcome(status: str) -> Html:
    """A status as icon and word."""
    return el("span", icon(status), " ", status, class_=f"outcome {_known(status)}")


def _known(status: str) -> str:
    """The status as a class name: statuses come from the database, which may be damaged."""
    return status if status in _ICONS else "unknown"


def moment(stored: str | None, *, ago: bool = False) -> Node:
    """A time: UTC as it stands, local once the script has run; with `ago` also how long ago."""
    if stored is None:
        return None
    read = parse_time(stored)
    if read is None:
        return printable(stored)
    shown = read.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return el("time", shown, datetime=stored, data_ago="1" if ago else None)


def lasted(row: Task | Step | ModelCall) -> str:
    """How long something took, or has been running."""
    if row.status == "running":
        return duration(milliseconds_since(row.started_at, datetime.now(UTC)))
    return duration(row.duration_ms)


def took(row: Task | Step | ModelCall) -> Html:
    """`lasted`, which the script counts on while it runs."""
    running = row.status == "running"
    return el("span", lasted(row), class_="took", data_since=row.started_at if running else None)


class HasTokens(Protocol):
    """Rows that say how many tokens were used."""

    @property
    def input_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def output_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def cached_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def reasoning_tokens(self) -> int | None: ...  # noqa: D102


def tokens(row: HasTokens) -> str:
    """``1,586 in · 107 out``, and what else is known; empty when nobody said."""
    known = [
        (row.input_tokens, "in"),
        (row.output_tokens, "out"),
        (row.cached_tokens, "cached"),
        (row.reasoning_tokens, "reasoning"),
    ]
    return " · ".join(f"{count(number)} {what}" for number, what in known if number is not None)


def short_tokens(row: HasTokens) -> str:
    """``1.6k → 107``; empty when nobody said."""
    if row.input_tokens is None and row.output_tokens is None:
        return ""
    return f"{_thousands(row.input_tokens or 0)} → {_thousands(row.output_tokens or 0)}"


def _thousands(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            shown = f"{number / size:.1f}".removesuffix(".0") if number < 100 * size else ""
            return f"{shown or number // size}{unit}"
    return str(number)


def error_text(error: str | None, error_type: str | None) -> str:
    """Why something failed, with the type of the error; empty when nobody said."""
    name = (error_type or "").rpartition(".")[2]
    if not error or not name or name in error:
        return error or error_type or ""
    return f"{name}: {error}"


def brief(text: str, characters: int = 160) -> str:
    """The beginning of a text on one line."""
    text, whole = cut_off(text)
    flat = one_line(text[: characters * 4])
    cut = whole is not None or len(flat) > characters or len(text) > characters * 4
    return f"{flat[:characters].rstrip()}…" if cut else flat


# --- pictures -----------------------------------------------------------------------------------

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def can_be_shown(picture: Screenshot) -> bool:
    """Whether there is a file of a kind that browsers show."""
    return picture.status == "ok" and picture.path is not None and is_digest(picture.sha256)


def is_digest(text: str) -> bool:
    """Whether a text is a digest that a picture may be called by."""
    return _SHA256.fullmatch(text) is not None


def thumbnail(picture: Screenshot, links: Links, label: str) -> Html:
    """A small picture; a grey field with a word where there is none to show."""
    if not can_be_shown(picture):
        return el("span", picture.status.replace("_", " "), class_="thumb none", title=label)
    return el(
        "img",
        class_="thumb",
        src=links.thumbnail(picture.sha256),
        alt=label,
        loading="lazy",
        decoding="async",
        data_sha=picture.sha256,
    )


def figure(picture: Screenshot, links: Links, title: str) -> Html:
    """A picture in a step, linked to its full size."""
    size = f"{picture.width}×{picture.height} · " if picture.width and picture.height else ""
    facts = f"{size}{picture.media_type} · {format_size(picture.bytes)}"
    parts: list[Node] = [
        el("b", title),
        [" ", el("span", picture.caption, dir="auto")] if picture.caption else None,
        " ",
        el("span", facts, class_="dim"),
    ]
    label = picture.caption or title
    if not can_be_shown(picture):
        why = f"This picture cannot be shown: {picture.status.replace('_', ' ')}."
        return el("figure", el("p", why, class_="none"), el("figcaption", parts), class_="shot")
    width, height = picture.width or 0, picture.height or 0
    source = links.artifact(picture.sha256)
    more: Node = None
    if max(width, height) > _LONGEST_SIDE:  # browsers draw nothing then
        source = links.thumbnail(picture.sha256, max(SIZES))
        more = el("span", f" · this is its {'top' if height > width else 'left'}", class_="dim")
        width = height = 0
    image = el(
        "img",
        src=source,
        alt=label,
        decoding="async",
        width=width or None,
        height=height or None,
        data_sha=picture.sha256,
    )
    return el(
        "figure",
        opening(image, links.original(picture.sha256)),
        el("figcaption", parts, more),
        class_="shot tall" if (picture.height or 0) > TALL * (picture.width or 0) else "shot",
    )


def opening(image: Html, where: Url | None, class_: str = "zoom") -> Html:
    """An image that opens in its full size, where that is anywhere."""
    if where is None:
        return el("span", image, class_=class_)
    return el("a", image, href=where, class_=class_)


# --- long texts ---------------------------------------------------------------------------------


def long_text(
    value: str,
    all_of_it: Url | None,
    class_: str = "text",
    limit: tuple[int, int] = _FOLD_AT,
) -> Html:
    """A text as it is, folded when it is long.

    Args:
        all_of_it: where the whole value is, if this one was cut.
        class_: ``text`` for prose, ``code`` for everything that has columns.
        limit: characters and lines from which on it is folded.
    """
    value, whole = cut_off(value)
    shown = el("div", value, class_=class_, dir="auto")
    return folded(value, shown, whole, all_of_it, class_, limit)


def folded(
    value: str,
    shown: Html,
    whole: int | None,
    all_of_it: Url | None,
    class_: str,
    limit: tuple[int, int] = _FOLD_AT,
) -> Html:
    """`shown`, or the beginning of `value` that opens to it when it is long.

    Args:
        whole: bytes of the whole value, when `value` was cut.
        all_of_it: where that is; None when it is nowhere.
    """
    rest: Node = None
    if whole is not None and all_of_it is not None:
        what = f"show all {format_size(whole)}"
        rest = el("a", what, href=all_of_it, class_="all", data_full="1")
    elif whole is not None:
        rest = el("p", f"cut here: it has {format_size(whole)}", class_="dim")
    head, left_out = shorten(value, *limit)
    if not left_out:
        return join(shown, rest)
    summary = el(
        "summary",
        el("div", head, " …", class_=f"{class_} head", dir="auto"),
        el("span", f"show all {count(len(value))} characters", class_="more"),
        el("span", "show less", class_="less"),
    )
    return el("details", summary, shown, rest, class_="long")
