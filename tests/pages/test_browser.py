# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: what a person sees, clicks and types."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory.pages import Links, axis
from tests.pages.conftest import COMPACTED, FAILED, STEPS, Recorded
from tests.pages.server import Served

NARROW = {"width": 390, "height": 844}
READY = "#axis[data-ready]"


def chosen(page: Any) -> int:
    """The number of the step that is shown."""
    return int(page.locator("#pane article").get_attribute("data-index"))


def wait_for_step(page: Any, index: int) -> None:
    """Until this step is shown, and marked in the list."""
    page.wait_for_selector(f'#pane article[data-index="{index}"]')
    page.wait_for_selector(f'#steps li[data-index="{index}"] > a[aria-current="step"]')


def has_no_sideways_scroll(page: Any) -> bool:
    """Whether the page is no wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_the_list_leads_to_a_task(open_page: Any, served: Served, recorded: Recorded) -> None:
    """A click on a goal opens the task; times are those of the reader's zone."""
    page = open_page(served.url, served.root, timezone_id="Asia/Tokyo", locale="en-GB")
    when = page.locator(".task time").first
    assert "UTC" in when.get_attribute("title")
    assert "ago" in when.inner_text()
    page.get_by_role("link", name="Book a table").click()
    page.wait_for_url(served.task(recorded.booking))
    assert page.locator("h1").inner_text() == "Book a table"


def test_the_filter_is_a_form(open_page: Any, served: Served) -> None:
    """Choosing a status and pressing the button leaves only such tasks, and can be undone."""
    page = open_page(served.url, served.root)
    page.get_by_label("Status").select_option("cancelled")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**status=cancelled**")
    assert page.locator(".task .goal").all_inner_texts() == ["Wait for the bus"]
    page.get_by_role("link", name="Reset").click()
    page.wait_for_url(served.url)
    assert page.locator(".task").count() == 3


def test_a_failed_step_is_seen_at_once(open_page: Any, served: Served, recorded: Recorded) -> None:
    """A failed task opens at its failed step: error, picture, what was new in the prompt."""
    page = open_page(served.task(recorded.booking), served.root)
    page.wait_for_selector(READY)
    wait_for_step(page, FAILED)
    assert f"no answer in step {FAILED}" in page.locator("#pane .failure").first.inner_text()
    assert page.locator("#pane .pictures img").count() == 2
    page.wait_for_function(
        "[...document.querySelectorAll('#pane .pictures img')].every((one) => one.naturalWidth > 0)"
    )
    assert page.locator("#pane .message.new").count() == 2
    assert page.locator("#pane .tool .tool-name").inner_text() == "browser.click"


def test_every_step_has_an_address(open_page: Any, served: Served, recorded: Recorded) -> None:
    """A click changes the address; loading it again, or going back, lands at that step."""
    page = open_page(served.task(recorded.booking), served.root)
    page.locator('#steps li[data-index="3"] > a').click()
    wait_for_step(page, 3)
    assert "?step=" in page.url
    page.locator('#steps li[data-index="9"] > a').click()
    wait_for_step(page, 9)
    page.go_back()
    wait_for_step(page, 3)
    page.reload()
    wait_for_step(page, 3)


def test_the_keyboard_moves_through_the_steps(
    open_page: Any, served: Served, recorded: Recorded
) -> None:
    """j, k, f, Home, End, arrows within the list; no key acts in the search field."""
    page = open_page(served.task(recorded.booking), served.root)
    page.wait_for_selector(READY)
    for key, index in [
        ("j", FAILED + 1),
        ("k", FAILED),
        ("f", STEPS),
        ("f", FAILED),
        ("End", STEPS),
        ("ArrowUp", STEPS - 1),
        ("Home", 1),
        ("ArrowDown", 2),
    ]:
        page.keyboard.press(key)
        wait_for_step(page, index)
    page.keyboard.press("/")
    page.keyboard.type("jkf")
    assert page.locator("#q").input_value() == "jkf"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    assert chosen(page) == 2


def test_the_whole_prompt_comes_when_it_is_asked_for(
    open_page: Any, served: Served, recorded: Recorded
) -> None:
    """The pane has what changed; a click brings every message, with pictures in place."""
    step = recorded.history().steps(recorded.booking)[3]
    page = open_page(served.task(recorded.booking, step.step_id), served.root)
    assert page.locator("#pane .message").count() == 2
    page.get_by_role("link", name="Show the whole prompt (8 messages)").click()
    page.wait_for_selector('#pane article[data-full="1"]')
    assert page.locator("#pane .messages > .message").count() == 8
    assert page.locator("#pane .message .inline-picture img").count() == 1
    page.get_by_role("link", name="Show only what changed").click()
    page.wait_for_selector("#pane article:not([data-full])")
    assert page.locator("#pane .message").count() == 2


def test_compaction_is_seen(open_page: Any, served: Served, recorded: Recorded) -> None:
    """What an agent took out of its prompt is named, and there to be opened."""
    step = recorded.history().steps(recorded.booking)[COMPACTED - 1]
    page = open_page(served.task(recorded.booking, step.step_id), served.root)
    removed = page.locator("#pane .removed-list")
    assert "taken out since the prompt before" in removed.inner_text()
    removed.locator("summary").first.click()
    assert removed.locator(".message.removed").count() > 5
    assert "In short: go on." in page.locator("#pane .message.new").first.inner_text()


def test_the_axis_and_the_film_lead_to_steps(
    open_page: Any, served: Served, recorded: Recorded
) -> None:
    """A click on a bar or on a picture opens its step; hovering shows what it is."""
    page = open_page(served.task(recorded.booking), served.root)
    page.wait_for_selector(READY)
    tiles = page.locator("#strip a")
    assert tiles.count() >= 1
    tiles.first.hover()
    assert "Step 1" in page.locator(".tip").inner_text()
    tiles.first.click()
    wait_for_step(page, 1)
    box = page.locator("#bars canvas").bounding_box()
    drawn = axis(recorded.history(), recorded.booking)
    begin, long = next(
        drawn["bars"][at + 4 : at + 6]
        for at in range(0, len(drawn["bars"]), 8)
        if drawn["bars"][at] == 0 and drawn["bars"][at + 6] == STEPS - 1
    )
    x = box["x"] + (begin + long / 2) / drawn["length"] * box["width"]
    page.mouse.move(x, box["y"] + 30)
    assert f"Step {STEPS}" in page.locator(".tip").inner_text()
    page.mouse.click(x, box["y"] + 30)
    wait_for_step(page, STEPS)
    page.get_by_role("button", name="Zoom in (+)").click()
    page.get_by_text("Longest first").click()
    page.locator("#longest a").first.click()
    page.get_by_text("All pictures").click()
    page.wait_for_selector(".film .frame")
    assert page.locator(".film .frame").count() >= STEPS // 2
    page.get_by_role("link", name="Step 3: page 3").click()
    wait_for_step(page, 3)


def test_the_canvas_is_drawn_and_named(open_page: Any, served: Served, recorded: Recorded) -> None:
    """There is something on it, also of the failures, and words for who does not see it."""
    page = open_page(served.task(recorded.booking), served.root)
    page.wait_for_selector(READY)
    label = page.locator("#bars canvas").get_attribute("aria-label")
    assert label.startswith(f"{STEPS} steps, 2 of them failed, in ")
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector("#bars canvas");
            if (!canvas.width) return false;
            const pen = canvas.getContext("2d");
            const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
            let red = 0, blue = 0;
            for (let at = 0; at < data.length; at += 4) {
                if (data[at] > 200 && data[at + 1] < 70 && data[at + 3] > 200) red++;
                if (data[at + 2] > 200 && data[at] < 180 && data[at + 3] > 200) blue++;
            }
            return red > 50 && blue > 200;
        }"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", ["list", "task", "plots", "problem"])
def test_nothing_is_wider_than_a_phone(
    open_page: Any, served: Served, recorded: Recorded, where: str, scheme: str
) -> None:
    """At 390 pixels no page scrolls sideways, in either colour scheme."""
    url = {
        "list": served.url,
        "task": served.task(recorded.booking),
        "plots": f"{served.url}plots",
        "problem": served.task(recorded.booking, "f" * 16),
    }[where]
    page = open_page(url, served.root, **NARROW, color_scheme=scheme)
    if where in ("task", "problem"):
        page.wait_for_selector(READY)
    assert has_no_sideways_scroll(page)


def test_the_newest_day_is_in_sight_on_a_phone(open_page: Any, served: Served) -> None:
    """Plots over days are wider than the screen: they begin with what one asks about."""
    page = open_page(f"{served.url}plots", served.root, **NARROW)
    boxes = page.locator(".plot-box.days").all()
    assert len(boxes) == 2
    for box in boxes:
        assert box.evaluate("box => box.scrollWidth > box.clientWidth")
        newest = box.locator("rect.field").last.bounding_box()
        assert newest["x"] + newest["width"] <= NARROW["width"]


def test_a_task_without_a_picture_takes_no_more_room(open_page: Any, served: Served) -> None:
    """The place of its picture is as high as wide, at most, on any screen."""
    for size in (NARROW, {"width": 1280, "height": 900}):
        page = open_page(served.url, served.root, **size)
        place = page.locator(".thumb.empty").first.bounding_box()
        assert 0 < place["height"] <= place["width"]


def test_everything_is_there_without_a_script(
    open_page: Any, served: Served, recorded: Recorded
) -> None:
    """List, steps, a step and the filter work when scripts are off."""
    page = open_page(served.url, served.root, java_script_enabled=False)
    page.get_by_role("link", name="Book a table").click()
    page.wait_for_url(served.task(recorded.booking))
    assert chosen(page) == FAILED
    page.locator('#steps li[data-index="9"] > a').click()
    page.wait_for_url("**?step=*")
    assert chosen(page) == 9
    page.get_by_role("link", name="Next step").click()
    page.wait_for_selector(f'#pane article[data-index="{10}"]')


def test_the_list_grows_as_it_is_scrolled(open_page: Any, tmp_path: Any) -> None:
    """Of many steps the first part is there at once; the rest comes when it is seen."""
    from tests.pages.server import serving
    from tests.recorded import recording

    with recording(tmp_path / "history") as tasks, tasks.task("long") as task:
        for number in range(1, 251):
            with task.step() as step:
                if number == 249:
                    step.fail("late")
        task.result("done")
    with serving(tmp_path / "history") as served:
        page = open_page(served.task(task.id), served.root)
        assert page.locator("#steps li.step").count() == 100
        page.locator('#steps li[data-index="100"]').scroll_into_view_if_needed()
        page.wait_for_selector('#steps li[data-index="150"]', state="attached")
        page.wait_for_selector(READY)
        # A server that takes its time: a key that needs what is on its way waits for it.
        page.evaluate(
            "() => { const nodes = TH.nodes; TH.nodes = async (...said) => {"
            " await new Promise((done) => setTimeout(done, 300)); return nodes(...said); }; }"
        )
        page.keyboard.press("f")
        wait_for_step(page, 249)
        page.keyboard.press("k")
        wait_for_step(page, 248)
        page.keyboard.press("Home")
        wait_for_step(page, 1)
        order = page.locator("#steps li.step").evaluate_all(
            "(all) => all.map((one) => Number(one.dataset.index))"
        )
        assert order == sorted(set(order))


def test_a_task_without_steps_has_a_page(
    open_page: Any, served: Served, recorded: Recorded
) -> None:
    """Nothing fails where there is nothing to show."""
    page = open_page(served.task(recorded.other), served.root)
    assert "No steps were recorded." in page.locator(".step-list").inner_text()
    assert "it rains" in page.locator("#task-head").inner_text()
    page.keyboard.press("j")
    page.keyboard.press("f")
    assert Links().task(recorded.other) in page.url
