"""Words of texts, and queries of what people type."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.store.search.words import LONGEST, fold, parse, words

TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"


def matches(text: str, typed: str) -> bool:
    """Whether the index says that a text may match, and a look at it that it does."""
    query = parse(typed)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE w USING fts5 (text, content='', detail='none', columnsize=0,"
            f' tokenize="{TOKENIZER}")'
        )
        connection.execute("INSERT INTO w (rowid, text) VALUES (1, ?)", (" ".join(words(text)),))
        match = query.match
        if match is not None:
            found = connection.execute("SELECT 1 FROM w WHERE w MATCH ?", (match,)).fetchone()
            if found is None:
                return False
    return bool(query.chunks) and query.is_in(text)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("Book a table for two", "table book"),
        ("Book a table for two", '"a table"'),
        ("At the Café Müller", "cafe MULLER"),
        ("At the Cafe Muller", "café müller"),
        ("browser-use clicked", "browser-use"),
        ("browser-use clicked", "use"),
        ("clicked #go", "#go"),
        ("clicked #go", "go"),
        ("written in C++", "c++"),
        ("call foo.bar(baz=1)", "foo.bar(baz=1)"),
        ("call foo.bar(baz=1)", "baz"),
        ("snake_case_name", "case"),
        ("https://example.com/a?b=c", "https://example.com/a?b=c"),
        ("this AND that OR nothing", "AND"),
        ("this AND that OR nothing", "or NOT*"),
        ('he said "yes"', '"'),
        ('he said "yes"', '"yes"'),
        ("it's here", "it's"),
        ("before\0after", "after"),
        ("before\0after", "before\0after"),
        ("日本語のテキスト", "本語"),
        ("日本語のテキスト", "テキスト"),
        ("東京都", "京"),
        ("東京都", "都"),
        ("가나다라", "나다"),
        ("ภาษาไทย", "ไทย"),
        ("made with 😀 and 👍🏽", "😀"),
        ("made with 😀 and 👍🏽", "👍🏽"),
        ("ﬁne print", "fine"),
        ("STRASSE", "straße"),
        ("clicking", "click*"),
        ("x" * 200, "x" * 200),
        ("col:val", "col:val"),
        ("(a OR b) NEAR c", "NEAR("[:4]),
        ("-- ; DROP TABLE", "; DROP"),
        ("100%", "100%"),
        ("under_score%", "%"),
    ],
)
def test_finds_what_is_typed(text: str, typed: str) -> None:
    """Words in any order, phrases, code, other scripts, emoji, and no character means anything."""
    assert matches(text, typed)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("Book a table for two", '"table a"'),
        ("Book a table for two", "table chair"),
        ("clicking", "click"),
        ("category", "cat"),
        ("bobcat", "cat*"),
        ("browser use", "browser-use"),
        ("step-10", "step-1"[:6] + "2"),
        ("日本語", "日語"),
        ("no emoji", "😀"),
        ("no quote", '"'),
        ("NOT here", "AND"),
        ("anything", ""),
        ("anything", "   "),
    ],
)
def test_finds_nothing_else(text: str, typed: str) -> None:
    """Parts of words do not match, nor what stands otherwise than it was typed."""
    assert not matches(text, typed)


@given(st.text(), st.text())
def test_nothing_typed_is_an_error(text: str, typed: str) -> None:
    """Whatever characters are typed, and whatever was stored: an answer and no exception."""
    assert isinstance(matches(text.replace("\ud800", ""), typed), bool)


@given(st.text(min_size=1))
def test_a_text_is_found_by_itself(text: str) -> None:
    """Pasting a whole value finds it."""
    typed = text.replace('"', " ")
    if parse(typed).chunks:
        assert matches(text, typed)


@given(st.text())
def test_a_match_can_be_shown(text: str) -> None:
    """Where a chunk stands in a text, there is a place to mark."""
    query = parse(text)
    if query.chunks and query.is_in(text):
        spot = query.first_in(text)
        assert spot is not None
        assert 0 <= spot[0] < spot[1] <= len(text)


def test_half_characters_are_no_error() -> None:
    """A command line that is no UTF-8 asks for something that is not there."""
    assert not matches("x", "a\ud83e b")


def test_words_are_bounded() -> None:
    """A long run of letters is one word of limited length."""
    (word,) = words("a" * 10_000)
    assert len(word) == LONGEST


def test_folding_keeps_what_counts() -> None:
    """Case, accents and widths go; letters of other scripts stay."""
    assert fold("Ａ Ñandú ﬁ が 각") == "a nandu fi が 각"
