# SPDX-License-Identifier: Apache-2.0
"""``reproject``: tasks and steps made anew from the ledger, after an upgrade of the dialects."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from otel_taskhistory.cli.options import Form, Place, form_options, history_options
from otel_taskhistory.cli.output import write_json
from otel_taskhistory.cli.progress import Progress
from otel_taskhistory.cli.terminal import Screen
from otel_taskhistory.errors import HistoryNotFound
from otel_taskhistory.text import count

if TYPE_CHECKING:
    from otel_taskhistory.store.reproject import Reprojected


@click.command("reproject")
@click.option("--all", "everything", is_flag=True, help="Also what was read by the present rules.")
@form_options(csv=False)
@history_options
@click.pass_context
def reproject_command(context: click.Context, place: Place, form: Form, everything: bool) -> None:
    """Read the recorded spans again, by the rules of this version.

    A newer version may understand spans better than the one that recorded them. Tasks, steps,
    model calls and tool calls are made anew from what was recorded; agents may go on writing.
    Interrupted, it goes on where it was. Exit status 1 when something could not be read.
    """
    # Only who writes needs sqlite-utils.
    from otel_taskhistory.store.reproject import reproject

    settings = place.settings()
    if not settings.database.exists():
        raise HistoryNotFound(f"there is no history at {settings.directory}")
    with Progress() as progress:
        done = reproject(
            settings,
            everything=everything,
            tell=lambda size, total: progress.tell("reading again", size, total),
        )
    if form == "json":
        write_json(asdict(done))
    else:
        _print(done)
    context.exit(1 if done.failed else 0)


def _print(done: Reprojected) -> None:
    screen = Screen()
    if not done.spans:
        screen.line(("everything was read by the present rules", ""))
        return
    screen.line((f"read {count(done.traces, 'trace')} and {count(done.spans, 'span')} again", ""))
    if done.failed:
        screen.block(
            f"{count(done.failed)} could not be read ({', '.join(done.errors)}) and stay as they"
            " were",
            label=("✗", "alarm"),
            room=2,
        )
    if done.older_writer:
        screen.block(
            "a process with an older version of otel-taskhistory writes to this history: restart it"
            " with this version, then run this again",
            label=("!", "busy"),
            room=2,
        )
