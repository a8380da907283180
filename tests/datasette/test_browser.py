# SPDX-License-Identifier: Apache-2.0
"""The plugin in a real browser: ``otel-taskhistory serve`` in a process of its own, looked at."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from otel_taskhistory import TaskHistory
from tests.pages.conftest import FAILED, PICTURE, book, browser, open_page
from tests.recorded import chat, recording

from .serving import PATIENCE, Server

__all__ = ["browser", "open_page"]

AGENT = Path(__file__).parents[1] / "pages" / "agent.py"
HIDDEN = "desk\u202e\x1b[31m"
SHOTS = 40
SIZES = {
    "a desk": {"width": 1280, "height": 900},
    "a phone": {"width": 390, "height": 844},
    "a desk in the dark": {"width": 1280, "height": 900, "color_scheme": "dark"},
}


@dataclass(frozen=True)
class Shown:
    """What is served, and what is in it."""

    server: Server
    booking: str
    film: str
    """A task of many short steps with a picture each."""
    tall: str
    """A task with a picture of 500 × 70,000 pixels."""
    steps: list[str]
    """Of the film."""

    @property
    def root(self) -> str:
        return self.server.addresses[0].rstrip("/")

    def at(self, path: str) -> tuple[str, str]:
        """What `open_page` takes."""
        return f"{self.root}{path}", self.root


def tall_picture() -> bytes:
    """A page of 500 × 70,000 pixels, stripes from top to bottom."""
    image = Image.new("RGB", (500, 70_000), (20, 90, 200))
    for top in range(0, 70_000, 200):
        image.paste((250, 200, 40), (0, top, 500, top + 100))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A history, served."""
    directory = tmp_path_factory.mktemp("shown") / "history"
    with recording(directory) as tasks:
        booking = book(tasks)
        with tasks.task("Look at many pages", agent=HIDDEN) as film:
            for number in range(SHOTS):
                with film.step(f"look {number}") as step:
                    step.screenshot(PICTURE + bytes([number]))
        with tasks.task("Read a long page", agent="reader") as tall, tall.step("only one") as step:
            step.screenshot(tall_picture(), caption="all of it")
    with TaskHistory(directory) as history:
        steps = [step.step_id for step in history.steps(film.id)]
    with Server(directory) as server:
        yield Shown(server, booking, film.id, tall.id, steps)


def chosen(page: Any) -> int:
    """The number of the step that is shown."""
    return int(page.locator("#pane article").get_attribute("data-index"))


def test_from_the_list_to_the_picture_of_a_step(open_page: Any, shown: Shown) -> None:
    """What a person does who looks for what went wrong, without a breach of any policy."""
    page = open_page(*shown.at("/"))
    assert page.url == f"{shown.root}/-/taskhistory/"
    page.get_by_role("link", name="Book a table").click()
    page.wait_for_selector("#axis[data-ready]")
    assert chosen(page) == FAILED
    page.keyboard.press("j")
    page.wait_for_selector(f'#pane article[data-index="{FAILED + 1}"]')
    page.keyboard.press("f")
    page.wait_for_selector('#pane article[data-index="12"]')
    page.keyboard.press("/")
    page.keyboard.type(f"no answer in step {FAILED}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=*")
    hit = page.locator(".hit", has_text=f"Step {FAILED} · error TimeoutError").first
    assert "Book a table" in hit.inner_text()
    hit.locator(".where").click()
    page.wait_for_selector(f'#pane article[data-index="{FAILED}"]')
    page.locator("#pane figure a").first.click()
    page.wait_for_url("**/artifacts/*")
    assert page.locator("img").evaluate("(image) => image.naturalWidth") > 0


def test_datasettes_own_pages_show_pictures_and_lead_back(open_page: Any, shown: Shown) -> None:
    """From the bar of our pages to a table, its thumbnails, and from a row to its step."""
    page = open_page(*shown.at("/-/taskhistory/"))
    page.get_by_role("link", name="Tables").click()
    page.get_by_role("link", name="history", exact=True).first.click()
    page.get_by_role("link", name="screenshots", exact=True).first.click()
    page.wait_for_selector(".taskhistory-picture img")
    image = page.locator(".taskhistory-picture img").first
    image.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => document.querySelector('.taskhistory-picture img').naturalWidth > 0"
    )
    assert image.bounding_box()["width"] <= 160
    page.locator(f'a[href*="tasks/{shown.film}?step="]').first.click()
    page.wait_for_selector("#pane article")
    assert shown.film in page.url


PATHS = {
    "list": "/-/taskhistory/",
    "task": "/-/taskhistory/tasks/{0.booking}",
    "film": "/-/taskhistory/tasks/{0.film}",
    "search": "/-/taskhistory/search?q=answer+in+step",
    "plots": "/-/taskhistory/plots",
    "database": "/history",
    "failed steps": "/history/failed-steps",
    "retries": "/history/retries",
    "screenshots": "/history/screenshots",
    "tasks": "/history/tasks",
    "a table behind": "/history/_steps?_size=1",
}


@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits(open_page: Any, shown: Shown, size: str) -> None:
    """No page is wider than the screen; text stands out from what is behind it."""
    page = open_page("about:blank", shown.root, **SIZES[size])
    for name, path in PATHS.items():
        if name == "a table behind":  # a 404 is an error in the console, and that is meant
            continue
        page.goto(shown.root + path.format(shown))
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"], name  # type: ignore[operator]
        if path.startswith("/-/") and size == "a desk in the dark":
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert sum(map(int, background[4:-1].split(","))) < 200, name


def test_the_film_has_the_picture_of_the_step_that_is_chosen(open_page: Any, shown: Shown) -> None:
    """However many there are: it has its place, and nothing overlaps it."""
    page = open_page(*shown.at(f"/-/taskhistory/tasks/{shown.film}"))
    page.wait_for_selector("#axis[data-ready]")
    assert 2 < page.locator("#strip a").count() < SHOTS
    for step in shown.steps[::7]:
        page.evaluate("(id) => TH.list.choose(id)", step)
        page.wait_for_selector(f'#pane article[data-id="{step}"]')
        page.wait_for_selector("#strip a.chosen")
        tiles = page.locator("#strip a").evaluate_all(
            "(all) => all.map((one) => [one.offsetLeft, one.offsetLeft + one.offsetWidth,"
            " Number(one.dataset.at)])"
        )
        tiles.sort()
        assert shown.steps.index(step) in [int(at) for *_, at in tiles]
        assert all(before[1] <= after[0] for before, after in pairwise(tiles))


def test_a_picture_that_no_browser_draws_is_seen_all_the_same(open_page: Any, shown: Shown) -> None:
    """Of a page of 500 × 70,000 pixels the top, and that it is the top; a click leads to it all."""
    page = open_page(*shown.at(f"/-/taskhistory/tasks/{shown.tall}"))
    image = page.locator("#pane figure img")
    page.wait_for_function("() => document.querySelector('#pane figure img').naturalWidth > 0")
    seen = Image.open(io.BytesIO(image.screenshot())).convert("RGB")
    colours = {colour for _, colour in seen.resize((40, 40)).getcolors(1600) or []}
    assert any(blue > 150 and red < 90 for red, _, blue in colours)
    assert any(red > 200 and blue < 110 for red, _, blue in colours)
    assert image.bounding_box()["width"] > 300
    assert "this is its top" in page.locator("#pane figure").inner_text()
    assert page.locator("#step-count").inner_text() == "1"
    assert page.locator(".step-list h2").inner_text() == "1 step"


def test_times_say_their_zone(open_page: Any, shown: Shown) -> None:
    """In the zone of whoever looks, named; UTC when one hovers."""
    for path in ("/-/taskhistory/", "/-/taskhistory/search?q=number", PATHS["task"].format(shown)):
        page = open_page(*shown.at(path), timezone_id="Asia/Kolkata", locale="en-GB")
        times = page.locator("time").all()
        assert times
        for one in times:
            assert "GMT+5:30" in one.inner_text()
            assert one.get_attribute("title").endswith(" UTC")


def test_facets_show_what_cannot_be_seen(open_page: Any, shown: Shown) -> None:
    """An agent's name that turns the text around is written out, and still filters."""
    page = open_page(*shown.at("/history/tasks"))
    link = page.locator(".facet-info a", has_text=r"desk\u202e\x1b[31m")
    # Not in its markup: Datasette 1.0 keeps the value in attributes that nobody sees.
    shown_text = page.locator("body").inner_text()
    assert not any(character in shown_text for character in "\u202e\x1b")
    link.click()
    page.wait_for_url("**agent=desk%E2%80%AE*")
    assert "1 row" in page.locator("body").inner_text()
    assert "\u202e" not in page.locator("body").inner_text()


def test_the_page_follows_what_another_process_records(open_page: Any, tmp_path: Path) -> None:
    """Through the server: each step comes by itself, and the end is seen."""
    command = [sys.executable, str(AGENT), str(tmp_path / "history")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        task_id = agent.stdout.readline().strip()

        def tell(word: str) -> None:
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.write(f"{word}\n")
            agent.stdin.flush()
            agent.stdout.readline()

        tell("step")
        with Server(tmp_path / "history") as server:
            root = server.addresses[0].rstrip("/")
            page = open_page(f"{root}/-/taskhistory/tasks/{task_id}", root)
            assert page.locator(".step-list h2").inner_text() == "1 step"
            tell("step")
            page.wait_for_selector('#steps li[data-index="2"]')
            assert page.locator(".step-list h2").inner_text() == "2 steps"
            tell("fail")
            page.wait_for_selector("#steps li.failed")
            agent.stdin.write("end\n")
            agent.stdin.flush()
            page.wait_for_selector('#task-head[data-status="succeeded"]')
        agent.wait(PATIENCE)


def test_a_history_that_is_replaced_is_seen_as_it_is(open_page: Any, tmp_path: Path) -> None:
    """The page of a task that is gone says so; what came in its place is there after a reload."""
    ids: list[str] = []
    for name in ("one", "two"):
        with recording(tmp_path / name) as tasks, tasks.task(f"goal of {name}") as task:
            with task.step() as step:
                step.prompt(chat("be brief", name), model="m")
            ids.append(task.id)
    served = tmp_path / "served"
    (tmp_path / "one").rename(served)
    with Server(served) as server:
        root = server.addresses[0].rstrip("/")
        page = open_page(f"{root}/-/taskhistory/", root)
        assert "goal of one" in page.locator("main").inner_text()
        served.rename(tmp_path / "one")
        assert server.get("/-/taskhistory/").status == 404
        (tmp_path / "two").rename(served)
        page.reload()
        assert "goal of two" in page.locator("main").inner_text()
        assert "goal of one" not in page.locator("main").inner_text()
        gone = server.get(f"/-/taskhistory/tasks/{ids[0]}")
        assert gone.status == 404
        assert "No such task" in gone.text
