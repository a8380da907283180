# SPDX-License-Identifier: Apache-2.0
"""What the tests of the pages share: a browser, pages that complain, a history to look at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory, TaskTracer
from tests.pages.server import Served, serving
from tests.recorded import PICTURES, chat, data_url, recording

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PICTURE = (PICTURES / "png_ok.png").read_bytes()


def chromium() -> str | None:
    """The browser of this machine."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; it goes with its module, as Playwright keeps an event loop running
    in this thread, and tests of others want one of their own.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the package playwright is not installed"
    )
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield opened
        opened.close()


@dataclass
class Complaints:
    """What a page did that it must not."""

    root: str
    found: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        """Note errors of scripts, breaches of the policy, and requests that go elsewhere."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.found.append("a dialog"), dialog.dismiss()))
        page.on("request", self._request)
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', (event) =>"
            " console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"
        )

    def _console(self, message: Any) -> None:
        # A model may name a picture that there is not: then there is none to see.
        lost = "404" in message.text and "/-/taskhistory/" in message.location.get("url", "")
        lost = lost and message.location["url"].endswith("0" * 64)
        if message.type in ("error", "warning") and not lost:
            self.found.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.root}/", "data:")):
            self.found.append(f"request to {request.url}")


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens an address; at the end of the test no page may have had anything to complain of."""
    contexts: list[Any] = []
    complaints: list[Complaints] = []

    def go(url: str, root: str, *, width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        heard = Complaints(root)
        heard.listen(page)
        complaints.append(heard)
        page.goto(url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert [found for heard in complaints for found in heard.found] == []


@dataclass(frozen=True)
class Recorded:
    """A history for most tests, and the tasks in it."""

    directory: Path
    booking: str
    """Failed: 12 steps, the 5th and the last failed, compaction before the 8th."""
    good: str
    """Succeeded, with one step and no picture."""
    other: str
    """Cancelled, of another agent."""

    def history(self) -> TaskHistory:
        """Open it."""
        return TaskHistory(self.directory)


STEPS = 12
FAILED = 5
COMPACTED = 8


def book(tasks: TaskTracer) -> str:
    """A task with a bit of everything."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You operate a browser."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "This is the page."},
                {"type": "image_url", "image_url": {"url": data_url("png_ok.png")}},
            ],
        },
    ]
    with tasks.task("Book a table", agent="desk", conversation_id="conv-7") as task:
        for number in range(1, STEPS + 1):
            with task.step("open site" if number == 1 else None) as step:
                step.prompt(messages, model="model-1")
                arguments = {"selector": f"#day-{number}", "note": "line one\nline two " * 4}
                call = {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": "browser.click", "arguments": json.dumps(arguments)},
                }
                said = {
                    "role": "assistant",
                    "content": f"I see page {number}",
                    "tool_calls": [call],
                }
                step.decision(said, usage={"input_tokens": 1000 + number, "output_tokens": 20})
                with step.tool_call("browser.click", arguments, call_id=f"call_{number}") as tool:
                    tool.result({"ok": True, "seen": list(range(60)), "number": number})
                if number % 2:
                    step.screenshot(PICTURE + bytes([number]), caption=f"page {number}")
                messages = [*messages, said, {"role": "tool", "tool_call_id": call["id"],
                                              "content": f"seen {number}"}]  # fmt: skip
                if number == COMPACTED - 1:
                    messages = [messages[0], {"role": "user", "content": "In short: go on."}]
                if number in (FAILED, STEPS):
                    try:
                        raise TimeoutError(f"no answer in step {number}")
                    except TimeoutError as error:
                        step.fail(error)
                else:
                    step.result(f"done {number}")
        task.fail("the confirmation never came")
        return task.id


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A history that is only read."""
    directory = tmp_path_factory.mktemp("recorded") / "history"
    with recording(directory) as tasks:
        booking = book(tasks)
        with tasks.task("Say hello", agent="desk") as task:
            good = task.id
            with task.step() as step:
                step.prompt(chat("be brief", "hello"), model="model-1")
                step.decision("hello", usage={"input_tokens": 3, "output_tokens": 1})
            task.result("said")
        with tasks.task("Wait for the bus", agent="walker") as task:
            other = task.id
            task.cancel("it rains")
    return Recorded(directory, booking, good, other)


@pytest.fixture
def served(recorded: Recorded) -> Iterator[Served]:
    """The same, served."""
    with serving(recorded.directory) as server:
        yield server
