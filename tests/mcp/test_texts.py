# SPDX-License-Identifier: Apache-2.0
"""How much of a recorded text an answer holds, and what it says about the rest."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.mcp import values
from otel_taskhistory.mcp.texts import name, piece, visible
from otel_taskhistory.mcp.values import Window
from tests.recorded import one_task, recording


def test_a_short_text_is_whole() -> None:
    """Also one that is longer by less than a quarter: the rest is not worth a question."""
    for text in ("", "a", "x" * 100, "x" * 125):
        found = piece(text, 100)
        assert (found.text, found.note("ask")) == (text, None)


def test_a_long_text_is_cut_and_says_so() -> None:
    """With how much there is, in characters."""
    found = piece("é" * 51_020, 3_412)
    assert found.text == "é" * 3_412
    assert found.note("ask with offset=3412") == (
        "truncated: 3,412 of 51,020 characters; ask with offset=3412"
    )


def test_characters_are_those_of_the_stored_text() -> None:
    """What is written out is longer than what it stands for; the next piece begins there."""
    found = piece("\x1b" * 200, 100)
    assert found.text == "\\x1b" * 100
    assert found.characters == 100


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202etxt", "\\u202etxt"),
        ("\U000e0041", "\\U000e0041"),
        ("\u2764\ufe0f", "\u2764\ufe0f"),
        ("x\ufe01\ufe02", "x\\ufe01\\ufe02"),
        ("日本 مرحبا 👩\u200d👩", "日本 مرحبا 👩\u200d👩"),
    ],
)
def test_what_nobody_sees_is_written_out(text: str, shown: str) -> None:
    """And nothing else is changed: emoji, scripts, tabs and newlines stay."""
    assert visible(text) == shown


def test_a_name_is_one_line_of_some_length() -> None:
    """Whatever was given as one."""
    assert name("a\nb\x07") == "a b\\x07"
    assert len(name("x" * 10_000)) == 200


@given(
    st.lists(st.text(max_size=20), max_size=10),
    st.integers(0, 120),
    st.integers(1, 60),
)
def test_a_window_is_a_slice(pieces: list[str], offset: int, most: int) -> None:
    """Of the pieces put together, without ever doing so."""
    window = Window(offset, most)
    for part in pieces:
        window.add(part)
    whole = "".join(pieces)
    assert (window.text, window.total) == (whole[offset : offset + most], len(whole))


def test_a_value_is_found_by_index(tmp_path: Path) -> None:
    """The calls of one step, not those of all."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
    connection = sqlite3.connect(tmp_path / "history.db")
    for sql, index in (
        (values.MODEL_CALL, "_model_calls_step (step=?)"),
        (values.TOOL_CALL, "_tool_calls_step (step=?)"),
    ):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1, 0))]
        assert plan[0] == f"SEARCH call USING INDEX {index}"
        assert not [line for line in plan if line.startswith("SCAN")]
    connection.close()
