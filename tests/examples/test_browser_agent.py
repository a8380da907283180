# SPDX-License-Identifier: Apache-2.0
"""``examples/browser_agent``: a real browser, real pages, and a picture of every step."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from examples.browser_agent import browser
from examples.browser_agent.__main__ import GOALS
from examples.browser_agent.rules import Page, Seen, decide
from otel_taskhistory import TaskHistory
from tests.examples.chat_endpoint import answering
from tests.pages.conftest import chromium

ROOT = Path(__file__).parents[2]


def run(history: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the example as its README says, recorded in `history`."""
    return subprocess.run(
        [sys.executable, "-m", "examples.browser_agent", *arguments],
        cwd=ROOT,
        env=os.environ | {"OTEL_TASKHISTORY_DIRECTORY": str(history)} | variables,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def needs_chromium() -> None:
    """Skips where there is no browser."""
    pytest.importorskip("playwright", reason="the package playwright is not installed")
    if chromium() is None:
        pytest.skip("there is no Chromium on this machine")


@pytest.fixture(scope="module")
def history(needs_chromium: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example records, and what it prints, in ``printed``."""
    folder = tmp_path_factory.mktemp("browser")
    done = run(folder / "history")
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "printed").write_text(done.stdout, "utf-8")
    return folder / "history"


def test_the_tasks_are_done_on_real_pages(history: Path) -> None:
    """Three succeed with what the site says, the last one fails."""
    with TaskHistory(history) as opened:
        tasks = list(reversed(opened.tasks()))
    assert [task.goal for task in tasks] == list(GOALS)
    assert [task.status for task in tasks] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert [task.result for task in tasks[:3]] == [
        "Booked, code T101.",
        "Edge wall lamp, € 54; it ships in 2 days.",
        "Sent, number M501.",
    ]
    assert "intercepts pointer events" in str(tasks[3].error)
    printed = (history.parent / "printed").read_text("utf-8")
    assert "failed: Cancel booking T101 (4 steps, 3 screenshots)" in printed


def test_every_act_has_a_picture_of_the_page(history: Path) -> None:
    """Of the size of the window, each a real one: no page looks like another in the first task."""
    with TaskHistory(history) as opened:
        for task in opened.tasks():
            for step in opened.steps(task.task_id, limit=100):
                calls = opened.tool_calls(task.task_id, step.step_id)
                shots = [
                    shot
                    for shot in opened.screenshots(task.task_id, step.step_id)
                    if shot.role == "screenshot"
                ]
                acted = [call for call in calls if call.name != "give_up"]
                assert len(shots) == len(acted)
                for shot in shots:
                    picture = opened.artifact(str(shot.path)).read_bytes()
                    size = Image.open(io.BytesIO(picture)).size
                    assert size == (browser.WINDOW["width"], browser.WINDOW["height"])
        first = [
            s for s in opened.screenshots(opened.tasks()[-1].task_id) if s.role == "screenshot"
        ]
        assert len({shot.sha256 for shot in first}) == len(first) == 6


def test_a_failed_step_shows_what_lay_in_the_way(history: Path) -> None:
    """Its picture was taken after the failure, and the next prompt holds the same one."""
    with TaskHistory(history) as opened:
        task = opened.task("latest")
        failed = [step for step in opened.steps(task.task_id) if step.status == "failed"]
        assert len(failed) == 2
        for step in failed:
            (call,) = opened.tool_calls(task.task_id, step.step_id)
            assert (call.name, call.status) == ("browser.click", "failed")
            assert step.screenshot
        shown = {s.sha256 for s in opened.screenshots(task.task_id) if s.role == "input"}
        taken = {s.sha256 for s in opened.screenshots(task.task_id) if s.role == "screenshot"}
        assert taken <= shown


def test_a_model_behind_an_endpoint_works_the_browser(needs_chromium: None, tmp_path: Path) -> None:
    """With OPENAI_BASE_URL it is asked, gets the picture, and does what it likes."""
    replies = (("open", {"path": "/support"}), "It is open.")
    with answering(replies) as endpoint:
        done = run(tmp_path, "Open support", OPENAI_BASE_URL=endpoint.url, OPENAI_MODEL="m-1")
        bare = run(tmp_path, "Open it", "--no-pictures", OPENAI_BASE_URL=endpoint.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "succeeded: Open support (2 steps, 1 screenshots)" in done.stdout
    asked = [json.dumps(request["messages"]) for request in endpoint.requests]
    assert [text.count("data:image/png") for text in asked] == [1, 2, 0]
    assert bare.returncode == 0
    assert "failed: Open it" in bare.stdout  # the endpoint has nothing more to say
    with TaskHistory(tmp_path) as history:
        assert history.tasks()[-1].model == "m-1"


def test_the_agent_cannot_leave_the_site(needs_chromium: None, tmp_path: Path) -> None:
    """A model that opens another address gets an error, recorded as a failed call."""
    with answering((("open", {"path": "http://127.0.0.1:9/"}), "no")) as endpoint:
        run(tmp_path, "Leave", OPENAI_BASE_URL=endpoint.url)
    with TaskHistory(tmp_path) as history:
        (call,) = history.tool_calls("latest")
        assert call.status == "failed"
        assert "ERR_FAILED" in str(call.error)


@pytest.mark.parametrize("missing", ["playwright", "chromium"])
def test_what_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    """Without Playwright or a browser it says in one line what to install."""
    if missing == "chromium":
        pytest.importorskip("playwright", reason="the package playwright is not installed")
        code = "from examples.browser_agent import browser; browser.NAMES = ();"
        variables = {"PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}
    else:
        code, variables = "import sys; sys.modules['playwright.sync_api'] = None;", {}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code} from examples.browser_agent.__main__ import main; main([])",
        ],
        cwd=ROOT,
        env=os.environ | {"OTEL_TASKHISTORY_DIRECTORY": str(tmp_path / "h")} | variables,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("browser_agent: ")
    assert f"install {missing}" in done.stderr
    assert done.stderr.count("\n") == 1


def seen(goal: str, page: Page, before: Sequence[Page] = (), failures: Sequence[str] = ()) -> Seen:
    """A conversation of the rules."""
    return Seen(goal, page, list(before), list(failures))


def test_the_rules_read_the_page_and_not_a_script() -> None:
    """With another page the same goal leads to another act; nothing is known beforehand."""
    link = {"number": 9, "kind": "a", "name": "Lamps", "value": None}
    page = Page("/", "Anywhere", "", [link])
    assert decide(seen(GOALS[1], page)) == ("click", {"element": 9})
    lamps = Page("/lamps", "Lamps", "Lamp\tPrice\nNew lamp\t€ 7", [])
    ships = Page("/lamps/new", "New lamp", "Ships today.", [])
    assert decide(seen(GOALS[1], ships, [lamps])) == "New lamp, € 7; it ships today."
    assert decide(seen("Sing", page)) == ("give_up", {"reason": "I know no rule for this goal"})
