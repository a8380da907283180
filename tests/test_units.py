# SPDX-License-Identifier: Apache-2.0
"""Moments as people write them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.units import parse_moment

NOW = datetime(2026, 11, 30, 9, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("2026-11-30", "2026-11-30T00:00:00+00:00"),
        ("2026-11-30 14:00", "2026-11-30T14:00:00+00:00"),
        ("2026-11-30T14:00:00+02:00", "2026-11-30T12:00:00+00:00"),
        ("2026-11-30T13:00:00Z", "2026-11-30T13:00:00+00:00"),
        ("today", "2026-11-30T00:00:00+00:00"),
        (" Today ", "2026-11-30T00:00:00+00:00"),
        ("yesterday", "2026-11-29T00:00:00+00:00"),
        ("yesterday 18:30", "2026-11-29T18:30:00+00:00"),
        ("today 10:00", "2026-11-30T10:00:00+00:00"),
        ("9:30", "2026-11-30T09:30:00+00:00"),
        ("09:30:15", "2026-11-30T09:30:15+00:00"),
        ("10:00", "2026-11-29T10:00:00+00:00"),
        ("09:30:16", "2026-11-29T09:30:16+00:00"),
        ("2h", "2026-11-30T07:30:15+00:00"),
        ("1d12h", "2026-11-28T21:30:15+00:00"),
    ],
)
def test_a_moment_is_read_as_people_mean_it(typed: str, expected: str) -> None:
    """A day is its beginning; a time of day alone is the last time that it was that."""
    assert parse_moment(typed, UTC, now=NOW) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    "typed", ["", " ", "banana", "25:00", "10:60", "10", "tomorrow", "today yesterday", "99999999w"]
)
def test_what_is_no_moment_is_told(typed: str) -> None:
    """With what may be typed, and the setting it was given for."""
    with pytest.raises(SettingsError, match=r"since=.* is no time; use e\.g\. 2026-11-30.* 10:00"):
        parse_moment(typed, UTC, name="since", now=NOW)


@pytest.fixture
def in_amsterdam(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in a zone with summer time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_without_a_zone_it_is_the_machines(in_amsterdam: None) -> None:
    """Also over the night in which the clocks change: a day begins at its own midnight."""
    after = datetime(2026, 10, 25, 12, 0, tzinfo=UTC)  # the clocks went back this morning
    summer, winter = timezone(timedelta(hours=2)), timezone(timedelta(hours=1))
    for typed, expected in (
        ("today", datetime(2026, 10, 25, tzinfo=summer)),
        ("yesterday", datetime(2026, 10, 24, tzinfo=summer)),
        ("10:00", datetime(2026, 10, 25, 10, tzinfo=winter)),
        ("14:00", datetime(2026, 10, 24, 14, tzinfo=summer)),
        ("2026-11-30 10:00", datetime(2026, 11, 30, 10, tzinfo=winter)),
    ):
        assert parse_moment(typed, now=after) == expected, typed
