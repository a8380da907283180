# SPDX-License-Identifier: Apache-2.0
"""Puts the newest results into ``docs/benchmarks.md``, between two comments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.harness import RESULTS, cells, verdict

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN: Final = "<!-- results: written by python -m bench --docs -->"
END: Final = "<!-- end of results -->"


def write(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Write the page anew with what `results` says now."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n{END}{after}", "utf-8")


def tables(results: Path = RESULTS) -> str:
    """All results as Markdown, in the order of the marks."""
    found = [json.loads(path.read_text("utf-8")) for path in results.glob("*.json")]
    found.sort(key=lambda result: (result["mark"], result["name"]))
    return "\n".join(section(result) for result in found)


def section(result: Mapping[str, Any]) -> str:
    """One result as Markdown."""
    lines = [f"### {result['mark']}. {result['title']} (`{result['name']}`)", ""]
    lines += [f"* {verdict(check)}" for check in result["checks"]]
    lines += ["", "| | median | p95 | p99 | samples | ratio |", "| --- |" + " ---: |" * 5]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["rows"]]
    lines += [""] + [f"{note}\n" for note in result["notes"]]
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    lines += [f"Measured {result['measured']}: {versions}.", ""]
    return "\n".join(lines)
