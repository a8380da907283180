# SPDX-License-Identifier: Apache-2.0
"""``python -m examples.browser_agent [GOAL…]``: let the agent work in the browser, recorded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from opentelemetry.sdk.trace import TracerProvider

import otel_taskhistory
from examples.browser_agent.agent import carry_out
from examples.browser_agent.browser import NoBrowser, browsing
from examples.browser_agent.rules import RuleModel
from examples.browser_agent.site import Site
from examples.host_agent.openai_compatible import OpenAICompatibleModel
from otel_taskhistory import TaskHistory, TaskHistoryError

GOALS = (
    "Book a table for 2 at Trattoria Luna on Friday for Ada Lovelace",
    "Find the cheapest lamp that ships this week",
    "Write to support: my lamp flickers, what can I do?",
    "Cancel booking T101",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out the goals; leaves with status 1 when there is no browser or no history."""
    parser = argparse.ArgumentParser(prog="python -m examples.browser_agent", description=__doc__)
    parser.add_argument("goals", nargs="*", metavar="GOAL", help="instead of the example's own")
    parser.add_argument(
        "--no-pictures", action="store_true", help="for a model that takes text only"
    )
    given = parser.parse_args(arguments)
    try:
        ids = run(given.goals or GOALS, pictures=not given.no_pictures)
    except (NoBrowser, TaskHistoryError) as error:
        sys.exit(f"browser_agent: {error}")
    with TaskHistory() as history:
        for task_id in ids:
            task = history.task(task_id)
            shots = [s for s in history.screenshots(task_id) if s.role == "screenshot"]
            print(f"{task.status}: {task.goal} ({task.step_count} steps, {len(shots)} screenshots)")
    print("\nSee the pictures with:  otel-taskhistory serve")


def run(goals: Sequence[str], *, pictures: bool) -> list[str]:
    """Carry out `goals` one after the other, each from the site's first page on.

    Returns:
        The task ids. All of them are in the history.

    Raises:
        NoBrowser: Playwright or Chromium is missing.
        TaskHistoryError: the history cannot be used.
    """
    model = OpenAICompatibleModel.from_environment() or RuleModel()
    with Site() as site, browsing(site.url) as browser:
        provider = TracerProvider()
        tasks = otel_taskhistory.configure(tracer_provider=provider, set_global=False)
        ids = []
        try:
            print(f"model: {model.name}; site: {site.url}")
            for goal in goals:
                print(f"\n{goal}")
                browser.run("open", {"path": "/"})
                ids.append(
                    carry_out(goal, model=model, browser=browser, tasks=tasks, pictures=pictures)
                )
        finally:
            provider.shutdown()
    print()
    return ids


if __name__ == "__main__":
    main()
