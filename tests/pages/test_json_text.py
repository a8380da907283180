# SPDX-License-Identifier: Apache-2.0
"""JSON is shown indented and is still the same JSON."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.pages.json_text import coloured, indented, looks_like_json, unwrapped

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_is_shown_is_the_same_value(value: object, indent: int | None, plain: bool) -> None:
    """Setting JSON apart changes white space only."""
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    assert json.loads(indented(text)) == value


@pytest.mark.parametrize("number", ["1.10", "1e400", "123456789012345678901234567890", "-0.0"])
def test_numbers_stay_as_they_were_written(number: str) -> None:
    """No float in between rounds a number or loses its zeros."""
    assert indented(f'{{"n":{number}}}') == f'{{"n": {number}}}'
    shown = unescape(re.sub(r"<[^>]+>", "", str(coloured(f'{{"n":{number}}}'))))
    assert shown == f'{{"n": {number}}}'


def test_what_is_long_is_on_several_lines() -> None:
    """A long object has a line for each member; short ones inside stay on one."""
    text = json.dumps({"first": list(range(30)), "second": {"a": 1}})
    assert indented(text).startswith('{\n  "first": [\n    0,\n    1,')
    assert indented(text).endswith('\n  "second": {"a": 1}\n}')


@pytest.mark.parametrize(
    "text", ["{", "[1,]", "[NaN]", "[-Infinity]", "{'a': 1}", "plain", "", "12", "[" * 100_000]
)
def test_what_is_no_json_is_left_alone(text: str) -> None:
    """It is shown as the text it is."""
    assert not looks_like_json(text)


def test_json_within_a_json_string_is_unwrapped() -> None:
    """Tool results often are JSON in JSON."""
    assert unwrapped(json.dumps('{"a": 1}')) == '{"a": 1}'
    assert unwrapped(json.dumps("plain")) == '"plain"'
