# SPDX-License-Identifier: Apache-2.0
"""``doctor``: what is wrong with a history, what it means and what to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Final

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.store.doctor import Diagnosis, Finding, examine
from otel_taskhistory.text import count

_MARKS: Final = {"error": ("✗", "alarm"), "warning": ("!", "busy"), "note": ("·", "dim")}
_FIXED: Final = ("✓", "good")
_INDENT: Final = 2


@click.command()
@click.option("--fix", is_flag=True, help="Do what is safe about it; removes no row, no evidence.")
@click.option(
    "--quick", is_flag=True, help="Leave out what takes long: every index, every picture's content."
)
@form_options(csv=False)
@history_options
@click.pass_context
def doctor(context: click.Context, place: Place, form: Form, fix: bool, quick: bool) -> None:
    """Look for what is wrong with the history, and say what to do.

    Changes nothing without --fix. Exit status 1 when something is wrong.
    """
    settings = place.settings()
    with Progress() as progress:
        diagnosis = examine(settings, quick=quick, fix=fix, progress=progress.tell)
    if form == "json":
        write_json(_facts(diagnosis))
    else:
        _print(diagnosis)
    context.exit(0 if diagnosis.healthy else 1)


def _facts(diagnosis: Diagnosis) -> dict[str, Any]:
    settings, identity = diagnosis.settings, diagnosis.identity
    return {
        "healthy": diagnosis.healthy,
        "directory": str(settings.directory),
        "database": str(settings.database),
        "artifacts": str(settings.artifacts),
        "owner": identity.owner if identity else None,
        "history_id": identity.history_id if identity else None,
        "schema_version": identity.schema_version if identity else None,
        "findings": [asdict(finding) for finding in diagnosis.findings],
    }


def _print(diagnosis: Diagnosis) -> None:
    screen = Screen()
    screen.whole(str(diagnosis.settings.directory), "dim")
    for finding in diagnosis.findings:
        _print_finding(screen, finding)
    numbers = Counter(finding.severity for finding in diagnosis.findings if not finding.fixed)
    wrong = [count(numbers[kind], kind) for kind in ("error", "warning") if numbers[kind]]
    fixed = sum(1 for finding in diagnosis.findings if finding.fixed)
    done = f"{fixed} fixed" if fixed else ""
    if wrong:
        screen.line((", ".join(filter(None, [*wrong, done])), "bold"))
    else:
        screen.line(("nothing is wrong", "good"), (f" ({done})" if done else "", ""))


def _print_finding(screen: Screen, finding: Finding) -> None:
    mark, style = _FIXED if finding.fixed else _MARKS[finding.severity]
    many = f" ({count(finding.count)})" if finding.count > 1 else ""
    screen.block(finding.what + many, label=(mark, style), room=_INDENT)
    if finding.fixed:
        screen.block(finding.fixed, "good", indent=_INDENT)
        return
    if finding.meaning:
        screen.block(finding.meaning, "dim", indent=_INDENT)
    for item in finding.items if finding.count > 1 or finding.fixable else ():
        screen.block(item, "dim", indent=_INDENT, label=("-", "dim"), room=_INDENT)
    if finding.count > len(finding.items) > 0:
        screen.block(f"… and {count(finding.count - len(finding.items))} more", indent=_INDENT * 2)
    if finding.todo:
        screen.block(finding.todo, indent=_INDENT, label=("→", "dim"), room=_INDENT)
