# SPDX-License-Identifier: Apache-2.0
"""Answers with their headers: every one says what a browser may do with it, and for how long."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from datasette.utils.asgi import Response

from otel_taskhistory.datasette_plugin.pictures import Picture
from otel_taskhistory.pages import ASSETS as PAGE_ASSETS
from otel_taskhistory.thumbnails import Thumbnail

PAGE_POLICY: Final = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Of our pages: nothing from elsewhere, nothing inline."""

FILE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Of pictures: whatever they are taken for, nothing in them runs or loads. (A browser that shows a
picture by itself makes a page around it, with a style of its own.)"""

FOR_EVER: Final = "private, max-age=31536000, immutable"
"""For what has the hash of its content in its address."""

NOT_KEPT: Final = "no-store"

_TABLE_CSS: Final = (
    files("otel_taskhistory.datasette_plugin").joinpath("static", "table.css").read_bytes()
)
ASSETS: Final[Mapping[str, tuple[bytes, str]]] = MappingProxyType(
    {**PAGE_ASSETS, "table.css": (_TABLE_CSS, "text/css; charset=utf-8")}
)
"""Name → (content, media type)."""

TABLE_CSS_VERSION: Final = hashlib.sha256(_TABLE_CSS).hexdigest()[:16]


def _headers(policy: str, keep: str, **more: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": keep,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


def page(html: str, status: int = 200) -> Response:
    """A page, or a part of one."""
    return Response(
        html.encode("utf-8", "backslashreplace"),
        status=status,
        headers=_headers(PAGE_POLICY, NOT_KEPT),
        content_type="text/html; charset=utf-8",
    )


def as_json(value: Any, status: int = 200) -> Response:
    """Strict JSON."""
    return Response(
        json.dumps(value, allow_nan=False),  # in ASCII, so that nothing in it can be unencodable
        status=status,
        headers=_headers(PAGE_POLICY, NOT_KEPT),
        content_type="application/json; charset=utf-8",
    )


def text(message: str, status: int) -> Response:
    """One sentence about what went wrong."""
    return Response(
        f"{message}\n".encode("utf-8", "backslashreplace"),
        status=status,
        headers=_headers(PAGE_POLICY, NOT_KEPT),
        content_type="text/plain; charset=utf-8",
    )


def moved(where: str) -> Response:
    """A redirect within our own pages."""
    return Response(
        "",
        status=302,
        headers=_headers(PAGE_POLICY, NOT_KEPT, Location=where),
        content_type="text/plain; charset=utf-8",
    )


def asset(name: str) -> Response | None:
    """A file that the pages need, None when there is none of this name."""
    if name not in ASSETS:
        return None
    content, media_type = ASSETS[name]
    return Response(content, headers=_headers(PAGE_POLICY, FOR_EVER), content_type=media_type)


def picture(found: Picture) -> Response:
    """A picture to be seen, or a file of any other kind to be saved."""
    way = "inline" if found.media_type else "attachment"
    return Response(
        found.data,
        headers=_headers(
            FILE_POLICY, FOR_EVER, Content_Disposition=f'{way}; filename="{found.file_name}"'
        ),
        content_type=found.media_type or "application/octet-stream",
    )


def thumbnail(made: Thumbnail, status: int = 200) -> Response:
    """A small picture; with a status that is not 200 it stands for one that is not there."""
    return Response(
        made.data,
        status=status,
        headers=_headers(FILE_POLICY, FOR_EVER if status == 200 else NOT_KEPT),
        content_type=made.media_type,
    )
