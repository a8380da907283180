# SPDX-License-Identifier: Apache-2.0
"""A page of a running task follows it while another process records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.server import serving


class Agent:
    """See `tests/pages/agent.py`."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("agent.py")), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.task_id = self._said()

    def do(self, word: str) -> None:
        """Let it do something; returns when that is recorded."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self._said() in ("done", "ended")

    def _said(self) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said, "the agent ended with an error"
        return said


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A running agent; killed at the end."""
    running = Agent(tmp_path / "history")
    yield running
    running.process.kill()
    running.process.wait()
    assert running.process.stdin is not None
    assert running.process.stdout is not None
    running.process.stdin.close()
    running.process.stdout.close()


def test_the_page_follows_a_running_task(open_page: Any, agent: Agent, tmp_path: Path) -> None:
    """New steps appear and the reader's place stays; with Follow the newest one is shown; it stops
    asking when the task has ended.
    """
    agent.do("step")
    agent.do("step")
    with serving(tmp_path / "history") as served:
        page = open_page(served.task(agent.task_id), served.root)
        assert page.locator("#live").is_visible()
        page.locator('#steps li[data-index="1"] > a').click()
        page.wait_for_selector('#pane article[data-index="1"]')
        page.evaluate("document.querySelector('#pane details')?.setAttribute('open', '')")
        agent.do("step")
        page.wait_for_selector('#steps li[data-index="3"].succeeded')
        assert page.locator("#pane article").get_attribute("data-index") == "1"
        assert page.locator("#step-count").inner_text() == "3"
        page.get_by_role("button", name="Follow").click()
        page.wait_for_selector('#pane article[data-index="3"]')
        agent.do("fail")
        page.wait_for_selector('#steps li[data-index="4"].failed')
        page.wait_for_selector('#pane article[data-index="4"]')
        assert "broken 4" in page.locator("#pane .failure").inner_text()
        agent.do("end")
        page.wait_for_selector('#task-head[data-status="succeeded"]')
        page.wait_for_function(
            "!document.querySelector('#live') || document.querySelector('#live').hidden"
        )
        assert "seen" in page.locator("#task-head").inner_text()
        page.wait_for_function("document.querySelector('#follow').hidden")
        asked = len(served.asked)
        page.wait_for_timeout(2500)
        assert len(served.asked) == asked


def test_a_task_whose_process_was_killed_is_shown_as_interrupted(
    open_page: Any, agent: Agent, tmp_path: Path
) -> None:
    """Nobody can say that it has ended; the page tells it all the same."""
    agent.do("step")
    with serving(tmp_path / "history") as served:
        page = open_page(served.task(agent.task_id), served.root)
        page.wait_for_selector('#task-head[data-status="running"]')
        agent.process.kill()
        agent.process.wait()
        page.wait_for_selector('#task-head[data-status="interrupted"]')
        assert "The process that ran it is gone." in page.locator("#task-head").inner_text()
