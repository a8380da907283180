# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation: what it is made from is complete, and it is built."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import pytest

from docs.site import check, stage
from docs.site.reference import constants, tables
from otel_taskhistory import TaskHistoryExporter, semconv, settings
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.store.meanings import DESCRIPTIONS, MEANINGS
from tests.recorded import public_tables

ROOT = Path(__file__).parents[2]


def test_every_column_has_a_meaning(tmp_path: Path) -> None:
    """Those of all public tables and views of a new history, in their order, and no other."""
    TaskHistoryExporter(tmp_path / "history").shutdown()
    with TaskHistory(tmp_path / "history") as history:
        names = public_tables(history)
        columns = {
            name: history.read(
                lambda c, name=name: [
                    row[1] for row in c.execute(f"PRAGMA table_info({name})").fetchall()
                ]
            )
            for name in names
        }
    assert {name: list(meanings) for name, meanings in MEANINGS.items()} == columns
    assert set(DESCRIPTIONS) == set(columns)
    assert all(meaning.strip() for of in MEANINGS.values() for meaning in of.values())


def test_the_reference_of_tables_names_every_column() -> None:
    """Each with its meaning."""
    page = tables.page()
    for name, meanings in MEANINGS.items():
        assert f"\n## {name}\n" in page
        for column, meaning in meanings.items():
            assert f"| `{column}` |" in page
            assert meaning.replace("|", "\\|") in page


def test_the_reference_names_every_attribute_and_setting() -> None:
    """Each constant of semconv.py and each variable of settings.py, with what it means."""
    package = Path(semconv.__file__).parent
    page = constants.attributes_page(package / "semconv.py")
    for name, value in vars(semconv).items():
        if name.isupper():
            assert f"| `{value}` | " in page
    assert "|  |" not in page
    page = constants.settings_page(package)
    for name, value in vars(settings).items():
        if name.startswith("ENV_"):
            assert f"| `{value}` | " in page


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    """Examples and the changelog have pages; what has none is named; what is not there is left."""
    place = PurePosixPath("docs", "page.md")
    text = (
        "[a](../examples/host_agent/policy.py) [b](../CHANGELOG.md) [c](../nowhere) [d](how/x.md)"
    )
    assert stage.with_links(text, place, ROOT) == (
        "[a](/examples/host_agent.md) [b](/changelog.md) [c](../nowhere) [d](how/x.md)"
    )
    text = "[e](Makefile) [f](docs/privacy.md#x) [g](README.md) [h](https://example.org)"
    assert stage.with_links(text, PurePosixPath("SECURITY.md"), ROOT) == (
        "e [f](/privacy.md#x) [g](/index.md) [h](https://example.org)"
    )


def test_broken_links_and_what_is_loaded_from_elsewhere_are_found(tmp_path: Path) -> None:
    """In pages and in styles; links that only lead elsewhere are no problem."""
    (tmp_path / "a.html").write_text(
        '<h1 id="here"></h1><a href="b.html"></a><a href="#here"></a><a href="#gone"></a>'
        '<a href="https://example.org"></a><script src="https://cdn.example/x.js"></script>'
    )
    (tmp_path / "s.css").write_text("@import url(https://fonts.example/f.css);")
    assert check.problems(tmp_path) == [
        "a.html: loads https://cdn.example/x.js",
        "a.html: nothing is at #gone",
        "a.html: nothing is at b.html",
        "s.css: loads https://fonts.example/f.css",
    ]


@pytest.mark.skipif(
    find_spec("sphinx") is None or find_spec("furo") is None, reason="needs the group docs"
)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """And no page loads anything from elsewhere or links to what is not there."""
    done = subprocess.run(
        [sys.executable, "-m", "docs.site", "--target", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "html" / "index.html").is_file()
