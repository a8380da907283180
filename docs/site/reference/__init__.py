# SPDX-License-Identifier: Apache-2.0
"""The pages of the reference, written from the code: what is not in the code is not in them."""

from __future__ import annotations

from pathlib import Path

from docs.site.reference import api, commands, constants, tables


def write_reference(root: Path, source: Path) -> None:
    """Write all of them into `source`/reference."""
    package = root / "otel_taskhistory"
    folder = source / "reference"
    folder.mkdir(exist_ok=True)
    pages = {
        "api": api.page(),
        "cli": commands.page(),
        "tables": tables.page(),
        "attributes": constants.attributes_page(package / "semconv.py"),
        "settings": constants.settings_page(package),
        "errors": api.errors_page(),
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text.rstrip() + "\n", encoding="utf-8")
