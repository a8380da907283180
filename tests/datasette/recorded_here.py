# SPDX-License-Identifier: Apache-2.0
"""A history for these tests: every picture of the test data, and text that means harm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.recorded import PICTURES, chat, recording

DATA = Path(__file__).parents[1] / "data"

PUBLIC = ("tasks", "steps", "model_calls", "tool_calls", "screenshots", "timeline", "spans")


@dataclass(frozen=True)
class Recorded:
    """Where it is, and what is in it."""

    directory: Path
    task_id: str
    step_ids: list[str]
    failed_id: str

    @property
    def database(self) -> Path:
        return self.directory / "history.db"

    @property
    def artifacts(self) -> Path:
        return self.directory / "artifacts"


def sha256_of(name: str) -> str:
    """The hash of a picture of the test data."""
    return hashlib.sha256((PICTURES / name).read_bytes()).hexdigest()


def hostile_texts() -> list[str]:
    """Every text of the test data that is made to act on whoever shows it."""
    document = json.loads((DATA / "hostile_text.jsonl").read_text(encoding="utf-8"))

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for inner in value.values():
                yield from texts(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from texts(inner)

    wanted = {text for text in texts(document["resourceSpans"]) if len(text) > 4}
    return sorted(text for text in wanted if not text.isalnum())


def record_everything(directory: Path) -> Recorded:
    """Record it; the history is closed cleanly."""
    texts = hostile_texts()
    with recording(directory) as tasks:
        with tasks.task("</title><script>document.title='PWNED'</script>", agent=texts[0]) as task:
            steps = []
            for number, text in enumerate(texts, 1):
                with task.step(text) as step:
                    steps.append(step.id)
                    step.prompt(chat(text, text), model=text)
                    step.decision(text, usage={"input_tokens": 10, "output_tokens": 2})
                    with step.tool_call(text, {text: text}, call_id=f"call-{number}") as call:
                        call.result({"seen": text})
                    step.result(text)
            with task.step("pictures") as step:
                steps.append(step.id)
                step.prompt(chat("word " * 2_000, "short"), model="model-1")
                step.decision("I look", usage={"input_tokens": 4_000, "output_tokens": 3})
                for picture in sorted(PICTURES.iterdir()):
                    step.screenshot(picture.read_bytes(), caption=picture.name)
                step.screenshot((PICTURES / "jpeg_gray.jpg").read_bytes(), caption="the last")
            task.result(texts[1])
        with tasks.task("fails", agent="desk") as failed:
            for _ in range(2):
                with failed.step("try") as step:
                    step.prompt("just do it", model="model-2")
                    with step.tool_call("look", {"at": 1}) as call:
                        call.fail("nothing there")
                    step.fail("=1+1 it broke")
            failed.fail("gave up")
        return Recorded(directory, task.id, steps, failed.id)


class Elements(HTMLParser):
    """Every element of a page, as a browser's parser would find it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts = ""
        self.cells = ""
        self._within = ""
        self._in_cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._within = tag
        if tag == "td":
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._within = ""
        if tag in ("td", "table"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts += data
            return
        self.text += data
        if self._in_cell:
            self.cells += data

    def links(self) -> list[str]:
        """Where links lead."""
        return [attrs.get("href") or "" for tag, attrs in self.found if tag == "a"]


def assert_inert(page: str) -> Elements:
    """Nothing recorded became markup: no element, attribute, address or script of it."""
    elements = Elements(page)
    for tag, attributes in elements.found:
        for name, value in attributes.items():
            assert not (name.startswith("on") and "x()" in (value or "")), (tag, attributes)
            assert "PWNED" not in name
            if name in ("href", "src", "action", "formaction", "srcset"):
                address = (value or "").strip().lower()
                ours = (
                    address.startswith(("/", "#", "?", "http://localhost/")) or ":" not in address
                )
                # What is an address is a link for Datasette, in its own window.
                assert ours or address.startswith("https://"), (tag, name, value)
    assert ("img", {"src": "x", "onerror": "document.title='PWNED'"}) not in elements.found
    assert "document.title='PWNED'" not in elements.scripts
    return elements
