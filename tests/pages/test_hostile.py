# SPDX-License-Identifier: Apache-2.0
"""Whatever a model, a page or a tool wrote: it is shown, and does nothing on any page."""

from __future__ import annotations

import json
import re
import unicodedata
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.pages import (
    Links,
    axis,
    film_fragment,
    plots_page,
    step_fragment,
    steps_fragment,
    task_list_page,
    task_page,
)
from otel_taskhistory.pages.single import single_page
from otel_taskhistory.pages.whole import WholeTask
from otel_taskhistory.text import one_line
from tests.pages.conftest import PICTURE
from tests.pages.server import serving
from tests.recorded import chat, recording

LINKS = Links()


def _texts_of_the_test_data() -> list[str]:
    """Names and values of spans that try to act."""
    path = Path(__file__).parents[1] / "data" / "hostile_text.jsonl"
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ("stringValue", "name") and isinstance(item, str):
                    found.append(item)
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(json.loads(path.read_text(encoding="utf-8")))
    return list(dict.fromkeys(found))


HOSTILE = [
    *_texts_of_the_test_data(),
    "\"><script>document.title='PWNED'</script>",
    "'><img src=x onerror=document.title='PWNED'>",
    "</style><svg onload=document.title='PWNED'>",
    "</script><script>document.title='PWNED'</script>",
    "</title><iframe src=javascript:document.title='PWNED'>",
    "<a href=\"javascript:document.title='PWNED'\">click</a>",
    "<form action=https://evil.test><input name=q autofocus onfocus=document.title='PWNED'>",
    "<meta http-equiv=refresh content='0;url=https://evil.test'><base href=//evil.test>",
    "<!--<textarea><template>",
    "&lt;b&gt; &amp;amp; &#0; &#x202e;",
    "data:text/html,<script>document.title='PWNED'</script>",
    "nul \x00 esc \x1b[2J bidi \u202e\u2066 zero \u200b tag \U000e0041 line \u2028 c1 \x9b",
    "artifact:sha256:" + "0" * 64,
    '{"a": "<script>document.title=\'PWNED\'</script>", "b\\u202e": "\\u003cimg src=x>"}',
    "../../../etc/passwd",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history in which every text is hostile."""
    directory = tmp_path_factory.mktemp("hostile") / "history"
    with recording(directory) as tasks:
        for text in HOSTILE:
            with tasks.task(text, agent=text, conversation_id=text, key=text) as task:
                with task.step(text) as step:
                    parts = [{"type": text, text: text}, {"type": "text", "text": text}]
                    step.prompt(
                        [*chat(text, text), {"role": text, "content": parts, text: text}],
                        model=text,
                    )
                    call = {"id": text, "function": {"name": text, "arguments": text}}
                    step.decision(
                        {"role": text, "content": text, "tool_calls": [call]}, finish_reason=text
                    )
                    with step.tool_call(text, {text: text}, call_id=text) as tool:
                        tool.result(text)
                    with step.tool_call(text, text) as tool:
                        tool.fail(text)
                    step.screenshot(PICTURE, caption=text)
                    step.screenshot(f"<svg><script>{text}</script></svg>".encode(), caption=text)
                    step.result(text)
                    try:
                        raise ValueError(text)
                    except ValueError as error:
                        step.fail(error)
                task.fail(text)
    return directory


def documents(directory: Path) -> list[str]:
    """Every page and part of a history."""
    history = TaskHistory(directory)
    found = [task_list_page(history, {}, LINKS), plots_page(history, LINKS)]
    found += [task_list_page(history, {"agent": text, "status": text}, LINKS) for text in HOSTILE]
    for task in history.tasks():
        own = task.task_id
        (step,) = history.steps(own)
        found += [
            task_page(history, own, LINKS),
            task_page(history, own, LINKS, HOSTILE[3]),
            steps_fragment(history, own, None, LINKS),
            film_fragment(history, own, None, LINKS),
            step_fragment(history, own, step.step_id, LINKS, full=True),
        ]
    return found


OURS = re.compile(
    r"html|head|meta|title|link|script|body|a|b|i|br|p|h[1-4]|div|span|header|nav|main|section|article"
    r"|footer|form|input|select|option|label|button|kbd|code|pre|mark|time|ol|ul|li|dl|dt|dd|details"
    r"|summary|figure|figcaption|img|svg|path|circle|rect|line|g|text|canvas|table|thead|tbody|tr|th|td"
    r"|dialog"
)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_recorded_becomes_markup(hostile: Path) -> None:
    """Of elements and attributes there are only those that we write, and addresses are ours."""
    for document in documents(hostile):
        reader = _Elements()
        reader.feed(document)
        reader.close()
        for name, attributes in reader.found:
            assert OURS.fullmatch(name), name
            for attribute, value in attributes.items():
                assert not re.match(r"on|style$|srcdoc$|srcset$|formaction$", attribute), attribute
                if attribute in ("href", "src", "action"):
                    assert re.match(r"/-/taskhistory/|#", value or ""), value
            if name == "script":
                assert (attributes["src"] or "").startswith("/-/taskhistory/assets/")
        assert document.count("<script") == document.count("<!DOCTYPE")


def test_invisible_characters_are_written_out(hostile: Path) -> None:
    """No control, bidi or zero-width character is in any page, by itself or as a reference."""
    for document in documents(hostile):
        shown = unescape(document)
        odd = {
            character
            for character in shown
            if character not in "\n\t"
            and (
                unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
                or character in "\u061c\u200b\u200e\u200f\u202a\u202e\u2066\u2069\ufeff\U000e0041"
            )
        }
        assert odd == set()


def test_everything_hostile_is_shown(hostile: Path) -> None:
    """It is not dropped either: the goal stands on the page of its task."""
    history = TaskHistory(hostile)
    for task in history.tasks():
        document = task_page(history, task.task_id, LINKS)
        shown = one_line(unescape(re.sub(r"<[^>]*>", "", document)))
        assert one_line(task.goal or "") in shown


def test_the_axis_is_plain_data(hostile: Path) -> None:
    """It is strict JSON whose names have nothing invisible in them."""
    history = TaskHistory(hostile)
    for task in history.tasks():
        found = json.dumps(axis(history, task.task_id), allow_nan=False, ensure_ascii=False)
        assert not re.search("[\x00-\x1f\u202e\u200b\x9b\x7f]", found)


def test_nothing_runs_in_a_browser(open_page: Any, hostile: Path) -> None:
    """No script of theirs, no request elsewhere, no breach of the policy, on any page."""
    history = TaskHistory(hostile)
    with serving(hostile) as served:
        page = open_page(served.url, served.root)
        for task in history.tasks():
            page.goto(served.task(task.task_id))
            page.wait_for_selector("#axis[data-ready]")
            page.evaluate(
                "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
            )
            page.wait_for_selector("#longest td")
            page.wait_for_selector(".film .frame")
            assert page.title() != "PWNED"
            assert page.evaluate("document.scripts.length") == 1
            assert (
                page.evaluate("document.querySelectorAll('iframe, object, embed, base').length")
                == 0
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(f"{served.url}plots")
        assert page.title() == "Plots · Task history"


def test_nothing_runs_in_a_saved_page(open_page: Any, hostile: Path, tmp_path: Path) -> None:
    """The page that is sent to others is as safe, from a file."""
    history = TaskHistory(hostile)
    for number, task in enumerate(history.tasks()):
        if number % 4:
            continue
        file = tmp_path / f"{number}.html"
        file.write_text("".join(single_page(WholeTask(history, task.task_id))), encoding="utf-8")
        page = open_page(file.as_uri(), file.parent.as_uri())
        page.wait_for_selector("#axis[data-ready]")
        assert page.evaluate("document.scripts.length") == 2
        assert page.title() != "PWNED"
