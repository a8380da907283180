# SPDX-License-Identifier: Apache-2.0
"""Moments, durations and sizes as people write them, and the one sentence about a bad value."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Final

from otel_taskhistory.errors import SettingsError

_LONGEST: Final = 60  # characters of a number that is read, and of a bad value that is repeated

NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION: Final = re.compile(
    r"\s*".join(rf"(?:{NUMBER}\s*{unit})?" for unit in ("w", "d", "h", "m", "s"))
)
_SIZE: Final = re.compile(rf"{NUMBER}\s*([kmgt]i?b|b|)", re.IGNORECASE)
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_SHOWN_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def bad_value(name: str | None, value: object, what: str, hint: str) -> SettingsError:
    """The one sentence about a bad value: which setting, the value, what is wrong, what to do."""
    try:
        shown = " ".join(repr(value).split())
    except Exception:  # an object's own failure, or a whole number too long for Python to show
        shown = f"<{type(value).__name__}>"
    if len(shown) > _LONGEST:
        shown = f"{shown[: _LONGEST - 1]}…"
    return SettingsError(f"{name}={shown} {what}; {hint}" if name else f"{shown} {what}; {hint}")


def parse_duration(text: str, *, name: str | None = None, hint: str | None = None) -> timedelta:
    """Read a duration such as ``30d``, ``12h``, ``90m``, ``45s``, ``2w`` or ``1d12h``.

    Units stand in the order w, d, h, m, s, each at most once; numbers may have decimals. They
    are lower case only: a capital M would be a month to many.

    Args:
        text: the duration.
        name: the setting that an error names.
        hint: what an error says to do.

    Raises:
        SettingsError: it is none, or longer than Python can hold.
    """
    hint = hint or "use e.g. 30d, 12h or 1d12h"
    match = _DURATION.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or not any(match.groups()):
        raise bad_value(name, text, "is not a duration", hint)
    weeks, days, hours, minutes, seconds = (
        float(number) if "." in number else int(number) for number in match.groups(default="0")
    )
    try:
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise bad_value(name, text, "is too long a duration", hint) from None


WHEN_HINT: Final = (
    "use e.g. 2026-11-30, '2026-11-30 14:00', 2026-11-30T13:00:00Z, today, yesterday, 10:00,"
    " or how long ago: 90m, 2h, 30d"
)
_CLOCK: Final = re.compile(r"(?:(today|yesterday)[ ,T]*)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?")


def parse_moment(
    text: str, zone: tzinfo | None = None, *, name: str | None = None, now: datetime | None = None
) -> datetime:
    """Read a moment: ISO 8601, ``today``, ``yesterday``, ``10:00``, or how long ago (``2h``).

    A day is its beginning. A time of day alone is the last time it was that, so not in the future;
    after ``today`` or ``yesterday`` it is of that day.

    Args:
        text: the moment.
        zone: what a time without a zone means; None for the zone of this machine.
        name: the setting that an error names.
        now: what ``ago`` counts from; with a zone.

    Returns:
        It, with a zone.

    Raises:
        SettingsError: it is none, or beyond the calendar.
    """
    now = now or datetime.now(UTC)
    typed = text.strip()
    try:
        found = _CLOCK.fullmatch(typed.lower())
        if found is not None and (found[1] or found[2]):
            return _of_day(now.astimezone(zone), zone, found[1], found[2])
        try:
            return _in_zone(datetime.fromisoformat(typed), zone)
        except ValueError:
            return now - parse_duration(typed)
    except (SettingsError, ValueError, OverflowError):
        raise bad_value(name, text, "is no time", WHEN_HINT) from None


def _of_day(now: datetime, zone: tzinfo | None, day: str | None, clock: str | None) -> datetime:
    date = now.date() - timedelta(days=day == "yesterday")
    at = time()
    if clock is not None:
        hour, minute, second = map(int, f"{clock}:0".split(":")[:3])
        at = time(hour, minute, second)
    moment = _in_zone(datetime.combine(date, at), zone)
    if day is None and moment > now:
        moment = _in_zone(datetime.combine(date - timedelta(days=1), at), zone)
    return moment


def _in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    """A moment that has a zone: its own, else `zone`, else that of this machine."""
    if moment.tzinfo is None and zone is not None:
        return moment.replace(tzinfo=zone)
    return moment.astimezone()


def parse_size(text: str, *, name: str | None = None, hint: str | None = None) -> int:
    """Read a number of bytes such as ``2GiB``, ``500MB``, ``1.5 GB`` or ``1048576``.

    kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024, in any case; a bare
    number is bytes. A fraction of a byte is dropped.

    Args:
        text: the size.
        name: the setting that an error names.
        hint: what an error says to do.

    Raises:
        SettingsError: it is none.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        raise bad_value(name, text, "is not a size", hint or "use e.g. 2GiB, 500MB or 1048576")
    number, unit = match.groups()
    return int(Decimal(number) * _SIZE_UNITS[unit.lower()])


def format_duration(duration: timedelta) -> str:
    """Show a duration as `parse_duration` reads it, exactly: ``30d``, ``1d12h``, ``0.25s``."""
    if duration < timedelta():
        return f"-{format_duration(-duration)}"
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{duration.microseconds:06d}".rstrip("0").rstrip(".")
    parts = [(duration.days, "d"), (hours, "h"), (minutes, "m")]
    shown = "".join(f"{number}{unit}" for number, unit in parts if number)
    if seconds or fraction or not shown:
        shown += f"{seconds}{fraction}s"
    return shown


def format_size(size: int) -> str:
    """Show a number of bytes for people, rounded to one decimal: ``2 GiB``, ``1.5 MiB``."""
    if size < 0:
        return f"-{format_size(-size)}"
    if size < 1024:
        return f"{size} B"
    power = 1
    while _tenths(size, power) >= 10_240 and power < len(_SHOWN_UNITS):
        power += 1
    whole, tenth = divmod(_tenths(size, power), 10)
    number = f"{whole}.{tenth}" if tenth else f"{whole}"
    return f"{number} {_SHOWN_UNITS[power - 1]}"


def _tenths(size: int, power: int) -> int:
    """`size` in tenths of 1024 to the `power`, rounded; in whole numbers, so exact at any size."""
    unit = 1 << (10 * power)
    return (size * 10 + unit // 2) // unit
