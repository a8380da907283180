# SPDX-License-Identifier: Apache-2.0
"""The page of a search: hits with their place and the match marked; caps are told."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.history import Hit, Hits
from otel_taskhistory.pages import Links, search_page, task_list_page
from otel_taskhistory.pages.search import HITS
from tests.pages.conftest import FAILED, Recorded
from tests.pages.server import Served

TASK, STEP = "a" * 32, "b" * 16
HIT = Hit(
    field="result",
    task_id=TASK,
    step_id=STEP,
    step_index=7,
    seq=9,
    at="2026-11-30T12:00:00.000000Z",
    times=3,
    snippet="…a <b>bold</b> needle in\u202e hay…",
    match=(15, 21),
    value_length=1234,
)


def answer(monkeypatch: pytest.MonkeyPatch, found: Hits) -> list[tuple[str, int]]:
    """Let every search find this; what was asked for."""
    asked: list[tuple[str, int]] = []

    def search(_: TaskHistory, typed: str, limit: int) -> Hits:
        asked.append((typed, limit))
        return found

    monkeypatch.setattr(TaskHistory, "search", search)
    return asked


def test_a_hit_leads_to_its_step(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is, how often, and the match marked within text that stays text."""
    asked = answer(monkeypatch, Hits((HIT,), False, True))
    page = search_page(recorded.history(), 'a "b" <c>', Links())
    assert asked == [('a "b" <c>', HITS)]
    assert f'<a href="{Links().task(TASK, STEP)}" class="where">Step 7 · result</a>' in page
    assert "…a &lt;b&gt;bold&lt;/b&gt; <mark>needle</mark> in" in page
    assert "3 times" in page
    assert "1 hit" in page
    assert 'value="a &quot;b&quot; &lt;c&gt;"' in page


def test_caps_are_told(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there are more hits, and that not all values were looked at."""
    answer(monkeypatch, Hits((HIT,), True, False))
    page = search_page(recorded.history(), "needle", Links())
    assert "there are more" in page
    assert "The search ended before the oldest values" in page


def test_nothing_found_says_so(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty answer is no blank page; nothing typed shows how to search."""
    asked = answer(monkeypatch, Hits((), False, True))
    assert "Nothing says <b>needle</b>." in search_page(recorded.history(), "needle", Links())
    assert "any ending" in search_page(recorded.history(), "  ", Links())
    assert len(asked) == 1


def test_the_list_with_a_query_is_a_search(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``?q=`` on the list finds as the page of the search does."""
    asked = answer(monkeypatch, Hits((HIT,), False, True))
    assert "<mark>needle</mark>" in task_list_page(recorded.history(), {"q": "needle"}, Links())
    assert asked


def test_what_was_recorded_is_found(open_page: Any, served: Served, recorded: Recorded) -> None:
    """Words typed into the field of any page lead to the step that says them."""
    page = open_page(served.url, served.root)
    page.keyboard.press("/")
    page.keyboard.type("no answer in step 5")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=*")
    page.locator(".hit .where", has_text=f"Step {FAILED}").first.click()
    page.wait_for_selector(f'#pane article[data-index="{FAILED}"]')
    assert recorded.booking in page.url
