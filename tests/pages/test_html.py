# SPDX-License-Identifier: Apache-2.0
"""Text stays text, whatever it is, and addresses are ours."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.pages.html import Html, Url, el, join, start
from otel_taskhistory.pages.links import Links
from otel_taskhistory.text import printable


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(markup: Html) -> _Reader:
    reader = _Reader()
    reader.feed(str(markup))
    reader.close()
    return reader


@given(st.text())
def test_any_text_comes_out_as_that_text(value: str) -> None:
    """What is given as text is read back as text, its invisible characters written out."""
    read = _read(el("p", value))
    assert {tag for tag, _ in read.tags} <= {"p", "span"}
    assert read.text.replace("\t", "    ") == printable(value)


@given(st.text())
def test_any_attribute_comes_out_as_one_attribute(value: str) -> None:
    """An attribute holds what was given and ends where it ends."""
    ((tag, attributes),) = _read(el("p", title=value)).tags
    assert tag == "p"
    assert attributes == [("title", printable(value))]


@pytest.mark.parametrize("name", ["href", "src", "action", "formaction"])
def test_an_address_must_be_ours(name: str) -> None:
    """A text, be it as harmless as it likes, is no address."""
    with pytest.raises(TypeError, match="takes a Url"):
        el("a", "x", **{name: "https://example.test/"})
    assert el("a", **{name: Url("/x")}) == Html(f'<a {name}="/x"></a>')


@pytest.mark.parametrize("name", ["onclick", "style", "onerror", "a b", 'x"y'])
def test_no_script_or_style_gets_into_an_attribute(name: str) -> None:
    """What would run, or break the policy, cannot be written even by mistake."""
    with pytest.raises(TypeError):
        start("a", **{name: "x"})


def test_invisible_characters_are_seen() -> None:
    """Control and bidi characters are written out and marked; tabs and newlines stay."""
    written = str(join("a\x1b[2J\u202eb\tc\nd\x00"))
    assert '<span class="odd">\\x1b</span>[2J<span class="odd">\\u202e</span>b\tc\nd' in written
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", written)


HOSTILE = ["../../etc", "a/b?c#d", "javascript:x()", '"><script>', "%2e%2e", "\u202e", "\ud800", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_is_in_an_address_stays_a_part_of_it(text: str) -> None:
    """An id that is none leads nowhere else: it is quoted."""
    links = Links("/base/")
    for url in (
        links.task(text, text),
        links.step(text, text, full=True),
        links.steps(text, text),
        links.search(text),
        links.artifact(text),
        links.task_list(agent=text, status=text),
        Links("/", "a/b").table(text, task_id=text),
    ):
        assert isinstance(url, Url)
        assert re.fullmatch(r"/(?:base/-/taskhistory/|a%2Fb/)[A-Za-z0-9%/_.=&?+~-]*", url), url
        assert html.escape(url.replace("&", "")) == url.replace("&", "")


def test_an_asset_is_asked_anew_when_it_changes() -> None:
    """Its address holds a digest of its content."""
    assert re.fullmatch(
        r"/-/taskhistory/assets/page\.css\?v=[0-9a-f]{16}", Links().asset("page.css")
    )


def test_without_a_table_page_there_is_no_link() -> None:
    """Who does not serve Datasette's own pages gives no link to them."""
    assert Links().table("tasks") == ""
