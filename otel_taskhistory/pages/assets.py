# SPDX-License-Identifier: Apache-2.0
"""The files that the pages need, out of this package: nothing comes from the network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

_FOLDER: Final = files("otel_taskhistory.pages").joinpath("static")
_SCRIPTS: Final = ("core.js", "times.js", "pane.js", "list.js", "axis.js", "keys.js", "live.js")
_STYLES: Final = ("base.css", "tasks.css", "task.css", "pane.css", "plots.css")


def _together(names: tuple[str, ...]) -> bytes:
    return b"\n".join(_FOLDER.joinpath(name).read_bytes() for name in names)


ASSETS: Final[Mapping[str, tuple[bytes, str]]] = MappingProxyType(
    {
        "page.css": (_together(_STYLES), "text/css; charset=utf-8"),
        "page.js": (_together(_SCRIPTS), "text/javascript; charset=utf-8"),
        "icon.svg": (_together(("icon.svg",)), "image/svg+xml"),
    }
)
"""Name → (content, media type)."""

VERSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {name: hashlib.sha256(content).hexdigest()[:16] for name, (content, _) in ASSETS.items()}
)
"""Name → what its address changes with."""
