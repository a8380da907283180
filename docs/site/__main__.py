# SPDX-License-Identifier: Apache-2.0
"""``python -m docs.site``: stage, generate, build, check."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from docs.site import check, stage
from docs.site.reference import write_reference

ROOT = Path(__file__).parents[2]


def build(target: Path) -> int:
    """Build the site anew in `target`/html; 0 when there was nothing to complain of."""
    from sphinx.cmd.build import main as sphinx

    source, html = target / "source", target / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    stage.copy_pages(ROOT, source)
    write_reference(ROOT, source)
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    status: int = sphinx([*options, "-d", str(target / "doctrees"), str(source), str(html)])
    if status:
        return status
    problems = check.problems(html)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def main() -> int:
    """Build where it is asked for; say where the first page is."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "docs" / "_build")
    target = parser.parse_args().target.resolve()
    status = build(target)
    if status == 0:
        print(target / "html" / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
