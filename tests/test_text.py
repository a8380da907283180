# SPDX-License-Identifier: Apache-2.0
"""Text for terminals: nothing acts, nothing is lost, everything fits."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory import text

ANY = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x07\u202e\ud83e é日\U000e0041"))


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A test may set TZ; the zone of this process is restored."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@given(ANY)
def test_printable_text_holds_no_character_that_acts(value: str) -> None:
    """No control but newline, no bidi or invisible format character, no lone surrogate."""
    shown = text.printable(value)
    for character in shown.replace("\n", ""):
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        )
    shown.encode()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("red \x9b31m", r"red \x9b31m"),
        ("OK\rFAILED", r"OK\x0dFAILED"),
        ("abc\b\b\b", r"abc\x08\x08\x08"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("a\u200bb\u2028c\ufeff", r"a\u200bb\u2028c\ufeff"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("half \ud83e", r"half \ud83e"),
        ("\x00\x7f", r"\x00\x7f"),
        ("two\r\nlines\n", "two\nlines\n"),
        ("a\tb", "a    b"),
        ("é 日本 👩\u200d💻 ﷺ", "é 日本 👩\u200d💻 ﷺ"),
    ],
)
def test_what_would_act_is_written_out(value: str, shown: str) -> None:
    """As Python writes it, so that a reader sees what was there; harmless text stays."""
    assert text.printable(value) == shown


@given(st.recursive(ANY, lambda inner: st.lists(inner, max_size=3)))
def test_json_stays_the_same_value_when_made_safe(value: object) -> None:
    """Characters that act become JSON escapes."""
    dumped = json.dumps(value, ensure_ascii=False, indent=1)
    safe = text.unsafe_to_json(dumped)
    assert json.loads(safe) == value
    assert text.printable(safe) == safe


@given(ANY, st.integers(1, 60))
def test_wrapped_lines_fit_and_lose_nothing(value: str, columns: int) -> None:
    """No line is wider than the screen (or one wide character); nothing but spaces goes."""
    shown = text.printable(value)
    lines = text.wrap(shown, columns)
    for line in lines:
        assert text.width(line) <= max(columns, 2)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", shown)


@pytest.mark.parametrize(
    ("value", "columns", "lines"),
    [
        ("", 10, [""]),
        ("one two three", 8, ["one two", "three"]),
        ("one\n\ntwo", 8, ["one", "", "two"]),
        ("    indented text goes on", 14, ["    indented", "    text goes", "    on"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("日本語です", 4, ["日本", "語で", "す"]),
        ("            deep", 6, ["deep"]),
        ("a\n         \nb", 4, ["a", "", "b"]),
    ],
)
def test_text_is_wrapped_at_words(value: str, columns: int, lines: list[str]) -> None:
    """At spaces where there are any, keeping the indent of a line."""
    assert text.wrap(value, columns) == lines


@given(ANY, st.integers(1, 40))
def test_a_clipped_text_fits(value: str, columns: int) -> None:
    """And says by an ellipsis that something is left out."""
    shown = text.one_line(value)
    clipped = text.clip(shown, columns)
    assert text.width(clipped) <= columns
    assert clipped == shown or clipped.endswith("…")


@given(st.text(max_size=400), st.integers(1, 50), st.integers(1, 5))
def test_a_shortened_text_says_how_much_is_missing(value: str, most: int, lines: int) -> None:
    """Beginning and rest together are the whole."""
    shown, left_out = text.shorten(value, most, lines)
    assert value.startswith(shown)
    assert len(shown) + left_out == len(value)
    assert len(shown) <= most + most // 4


def test_a_text_is_cut_at_a_word_when_one_is_near() -> None:
    """And a small rest is not left out at all."""
    assert text.shorten("alpha beta gamma delta", 12, 9) == ("alpha beta", 12)
    assert text.shorten("x" * 12, 10, 9) == ("x" * 12, 0)
    assert text.shorten("1\n2\n3\n4\n5\n6", 99, 3) == ("1\n2\n3", 6)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, ""),
        (0, "0.0 ms"),
        (0.04, "0.0 ms"),
        (12.4, "12 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (3_440, "3.4 s"),
        (59_960, "1m 00s"),
        (306_000, "5m 06s"),
        (3_599_999, "1h 00m"),
        (7_500_000, "2h 05m"),
        (86_400_000, "1d 0h"),
        (9e11, "10,416d 16h"),
    ],
)
def test_durations_are_short(milliseconds: float | None, shown: str) -> None:
    """Two units at most, rounded so that 60 seconds are a minute."""
    assert text.duration(milliseconds) == shown


@pytest.mark.parametrize(
    ("name", "stored", "shown"),
    [
        ("UTC", "2026-11-30T12:00:00.123456Z", "2026-11-30 12:00:00 UTC"),
        ("Europe/Berlin", "2026-11-30T12:00:00.000000Z", "2026-11-30 13:00:00 CET"),
        ("Europe/Berlin", "2026-10-25T00:30:00.000000Z", "2026-10-25 02:30:00 CEST"),
        ("Europe/Berlin", "2026-10-25T01:30:00.000000Z", "2026-10-25 02:30:00 CET"),
        ("America/Sao_Paulo", "2026-11-30T12:00:00Z", "2026-11-30 09:00:00 UTC-03:00"),
        ("America/New_York", "9999-12-31T23:59:59Z", "9999-12-31 18:59:59 EST"),
        ("UTC", "not a time\x1b", r"not a time\x1b"),
    ],
)
def test_times_are_shown_in_the_local_zone(
    zone: pytest.MonkeyPatch, name: str, stored: str, shown: str
) -> None:
    """With the zone's name, so that the hour that comes twice is clear."""
    zone.setenv("TZ", name)
    time.tzset()
    assert text.local_time(stored) == shown


def test_a_time_ahead_is_no_negative_while_ago() -> None:
    """Clocks differ."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert text.milliseconds_since("2026-01-01T00:00:01Z", now) == 0
    assert text.milliseconds_since("2025-12-31T23:59:59Z", now) == 1000


def test_counts_have_their_noun() -> None:
    """One step, two steps, thousands apart."""
    assert [text.count(n, "step") for n in (0, 1, 2, 1234)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "1,234 steps",
    ]
    assert text.count(3, "index", "indexes") == "3 indexes"
