# SPDX-License-Identifier: Apache-2.0
"""The plots: figures that are right, drawn in proportion, with their numbers in a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.pages import Links, plots_page
from otel_taskhistory.pages.svg import Series, bars, columns, nice_top
from otel_taskhistory.store.overview.plots import _quantile, days, newest_task_ns, tool_times
from tests.pages.conftest import STEPS, Recorded
from tests.recorded import recording


def test_the_figures_of_a_day(recorded: Recorded) -> None:
    """Tasks, failures and tokens of the day on which the tasks began; other days are empty."""
    history = recorded.history()
    newest = history.read(newest_task_ns)
    assert newest is not None
    found = history.read(lambda c: days(c, newest, 7))
    assert len(found) == 7
    # Around midnight they may be of two days.
    assert sum(day.tasks for day in found[-2:]) == 3
    assert sum(day.failed for day in found[-2:]) == 1
    used = sum(day.input_tokens for day in found[-2:])
    assert used == sum(1000 + number for number in range(1, STEPS + 1)) + 3
    assert {day.tasks for day in found[:-2]} == {0}


def test_the_times_of_tools(recorded: Recorded) -> None:
    """Each tool with its calls; the median lies below what 95 of 100 keep."""
    (tool,) = recorded.history().read(tool_times)
    assert (tool.name, tool.calls, tool.failed, tool.capped) == ("browser.click", STEPS, 0, False)
    assert 0 <= tool.median_ms <= tool.p95_ms <= tool.longest_ms


@pytest.mark.parametrize(
    ("times", "share", "expected"),
    [([1.0], 0.95, 1.0), ([1.0, 3.0], 0.5, 2.0), ([0, 10, 20], 0.95, 19)],
)
def test_quantiles_lie_between_neighbours(
    times: list[float], share: float, expected: float
) -> None:
    """As statisticians' linear interpolation."""
    assert _quantile(times, share) == pytest.approx(expected)


def test_columns_are_in_proportion() -> None:
    """A value twice as large is twice as high, and what is stacked stands on what is below."""
    series = [Series("a", "c-a", [10, 20]), Series("b", "c-b", [20, 0])]
    drawn = str(columns(["x", "y"], series, str, "title"))
    found = re.findall(
        r'y="([0-9.]+)" width="[^"]*" height="([0-9.]+)" rx="1.5" class="(c-.)"', drawn
    )
    (y1, h1, _), (y2, h2, second), (_, h3, _) = [(float(y), float(h), c) for y, h, c in found]
    assert second == "c-b"
    assert h3 == pytest.approx(2 * h1, abs=0.2)
    assert h2 == pytest.approx(2 * h1, abs=0.2)
    assert y2 + h2 == pytest.approx(y1, abs=0.2)


@pytest.mark.parametrize(("most", "top"), [(0, 0), (1, 1), (3, 5), (17, 20), (21, 25), (999, 1000)])
def test_an_axis_ends_at_a_round_number(most: float, top: float) -> None:
    """1, 2, 2.5 or 5 times a power of ten."""
    assert nice_top(most) == top


def test_the_page_has_numbers_for_every_plot(recorded: Recorded, tmp_path: Path) -> None:
    """Each plot is named for who does not see it; an empty history has a page too."""
    page = plots_page(recorded.history(), Links())
    assert page.count('role="img"') == 3
    assert page.count('<table class="numbers">') == 3
    assert "browser.click" in page
    assert not re.search(r"<svg[^>]*>.*?(?:style=|<script|<style)", page, re.DOTALL)
    with recording(tmp_path / "history"):
        pass
    assert "No tool was called." in plots_page(TaskHistory(tmp_path / "history"), Links())


def test_a_long_name_is_cut_at_its_end() -> None:
    """What does not fit beside its bar loses its end, in columns: wide letters take two."""
    names = ["browser.click_and_wait_for_the_page", "検索" * 12, "short"]
    drawn = str(bars([(name, 1.0, 2.0) for name in names], str, "times"))
    latin, wide, short = re.findall(r'class="label end name"[^>]*>([^<]*)<', drawn)
    assert latin == "browser.click_and_w…"
    assert wide.startswith("検索")
    assert wide.endswith("…")
    assert len(wide) <= 11
    assert short == "short"
    assert all(f"{name}: median" in drawn for name in names)
