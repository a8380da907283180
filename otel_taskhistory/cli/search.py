# SPDX-License-Identifier: Apache-2.0
"""``search``: where a history says something."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_csv, write_json
from otel_taskhistory.cli.terminal import WHOLE_LINES, Screen
from otel_taskhistory.history import Hit
from otel_taskhistory.text import clip, count, local_time, one_line

_COLUMNS: Final = [field.name for field in fields(Hit) if field.name not in ("match", "also")]
_INDENT: Final = 4
_GOAL: Final = 100
"""Columns of a goal at most: it only says which task that is."""


@click.command("search")
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Hits at most.",
)
@form_options(csv=True)
@history_options
def search_command(place: Place, form: Form, words: tuple[str, ...], limit: int) -> None:
    """Find words in goals, prompts, decisions, tool arguments, results and errors.

    All words must be in one value, in any order; "several words" in quotation marks in this order;
    book* with any ending. Nothing else has a meaning of its own. What was recorded last comes
    first; a message that was sent again with every prompt is one hit.
    """
    typed = " ".join(words)
    with place.open() as history:
        found = history.search(typed, limit=limit)
        short = history.short_ids({hit.task_id for hit in found})
    if form == "json":
        write_json([_as_dict(hit) for hit in found])
    elif form == "csv":
        write_csv(_COLUMNS, ([_as_dict(hit)[name] for name in _COLUMNS] for hit in found))
    elif found:
        screen = Screen(piped=WHOLE_LINES)
        for hit in found:
            _print(screen, hit, short[hit.task_id])
    else:
        click.echo(f"nothing says {one_line(typed)!r}")
    if found.more:
        click.echo(f"showing {count(len(found), 'hit')}; there are more: --limit", err=True)
    if found.indexing:
        click.echo(
            "the search index is being made anew while an agent runs: older values may be missing"
            " (otel-taskhistory doctor --fix makes it now)",
            err=True,
        )
    elif not found.complete:
        click.echo("the search ended before the oldest values: add a rarer word", err=True)


def _print(screen: Screen, hit: Hit, short: str) -> None:
    where = f"step {hit.step_index} · {hit.label}" if hit.step_index is not None else hit.label
    often = f" · {hit.times:,} times" if hit.times > 1 else ""
    screen.line(
        (short, "name"), ("  ", ""), (where, "bold"), (f"{often} · {local_time(hit.at)}", "dim")
    )
    if hit.goal:
        goal = one_line(hit.goal)
        screen.line((clip(goal, min(screen.columns - _INDENT, _GOAL)), "dim"), indent=_INDENT)
    start, end = hit.match
    before, match, after = hit.snippet[:start], hit.snippet[start:end], hit.snippet[end:]
    if not screen.coloured:
        match = f"[{match}]"
    screen.flow((_flat(before), ""), (_flat(match), "title"), (_flat(after), ""), indent=_INDENT)


def _flat(text: str) -> str:
    """On one line, without losing the spaces at its ends."""
    flat = one_line(text)
    left = " " if text[:1].isspace() else ""
    right = " " if text[-1:].isspace() and len(text) > 1 else ""
    return f"{left}{flat}{right}"


def _as_dict(hit: Hit) -> dict[str, Any]:
    return asdict(hit)
