# SPDX-License-Identifier: Apache-2.0
r"""Text for people at a terminal: safe to print, measured in columns, times and sizes readable.

Nothing that a model, a page or a tool wrote may act on the terminal: `printable` writes out
whatever is not a plain character, as ``\x1b`` or ``\u202e``.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Final

ELLIPSIS: Final = "…"
TAB: Final = 4
"""Columns that a tab is shown with."""

# C0 without newline and tab, DEL, C1; soft hyphen; bidi marks, embeddings, overrides, isolates;
# zero-width and other invisible format characters (U+200C and U+200D excepted, which scripts and
# emoji need); line and paragraph separator; lone surrogates; tags (invisible ASCII).
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_WORDS: Final = re.compile(r" *[^ ]+| +")


def printable(text: str) -> str:
    """`text` with control and invisible characters written out; newlines stay, tabs are spaces."""
    return written_out(text.replace("\r\n", "\n").replace("\t", " " * TAB))


def written_out(text: str) -> str:
    """`text` with control and invisible characters written out, and nothing else changed."""
    return _UNSAFE.sub(lambda found: escaped(found[0]), text)


def escaped(character: str) -> str:
    r"""A character as Python writes it: ``\x1b``, ``\u202e``, ``\U000e0041``."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unsafe_to_json(text: str) -> str:
    """JSON text with unsafe characters as JSON escapes: the same value, safe to print."""
    return _UNSAFE.sub(lambda found: _json_escape(ord(found[0])), text)


def _json_escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def one_line(text: str) -> str:
    """`text` printable on a single line: runs of white space become one space."""
    return " ".join(printable(text).split())


# --- columns ------------------------------------------------------------------------------------


def width(text: str) -> int:
    """How many columns a printable text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(text: str, columns: int) -> str:
    """As much of the beginning of `text` as fits, one character at least."""
    if text.isascii():
        return text[: max(columns, 1)]
    used = 0
    for position, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[: max(position, 1)]
    return text


def clip(text: str, columns: int) -> str:
    """`text` cut to so many columns, ending with an ellipsis when something is left out."""
    if width(text) <= columns:
        return text
    head = _head(text, columns - 1).rstrip()
    return head + ELLIPSIS if width(head) < columns else ELLIPSIS


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """`text` filled up with spaces to so many columns."""
    space = " " * max(columns - width(text), 0)
    return space + text if right else text + space


def wrap(text: str, columns: int) -> list[str]:
    """The lines of a printable text, long ones broken at spaces, else where they must.

    A continued line is indented as the line it continues, where there is room for that.
    """
    columns = max(columns, 1)
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line.rstrip()] if width(line) <= columns else _broken(line, columns)
    return lines


def _broken(line: str, columns: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip(" "))]
    if len(indent) > columns // 2:
        indent, line = "", line.lstrip(" ")
    lines: list[str] = []
    current, used = "", 0
    for word in _WORDS.findall(line):
        size = width(word)
        if used + size <= columns:
            current, used = current + word, used + size
            continue
        if current.strip():
            lines.append(current.rstrip())
            current = indent
            word = word.lstrip(" ")
        rest = current + word
        while width(rest) > columns:
            head = _head(rest, columns)
            if len(head) <= len(indent) and rest.startswith(indent):  # no room beside the indent
                indent, rest = "", rest[len(indent) :]
                continue
            lines.append(head)
            rest = indent + rest[len(head) :]
        current, used = rest, width(rest)
    if current.strip() or not lines:
        lines.append(current.rstrip())
    return lines


def shorten(text: str, characters: int, lines: int) -> tuple[str, int]:
    """(the beginning of `text`, how many characters are left out); cut at a line or word if near.

    A rest of less than a quarter of the limit is not worth leaving out.
    """
    end = len(text)
    if end > characters + characters // 4:
        end = characters
        space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
        end = space if space > characters * 3 // 4 else end
    head = text[:end].split("\n")
    if len(head) > lines + 1 + lines // 4:
        end = len("\n".join(head[:lines]))
    shown = text[:end].rstrip()
    return (shown, len(text) - len(shown)) if end < len(text) else (text, 0)


# --- numbers and times --------------------------------------------------------------------------


def count(number: int, noun: str = "", plural: str | None = None) -> str:
    """``1,234``, or with a noun ``1 step``, ``1,234 steps``."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(milliseconds: float | None) -> str:
    """``12 ms``, ``3.4 s``, ``5m 06s``, ``2h 05m``, ``3d 4h``; empty for None."""
    if milliseconds is None:
        return ""
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms" if milliseconds >= 0.95 else f"{milliseconds:.1f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, seconds_left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {seconds_left:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days:,}d {hours}h"


def parse_time(stored: str) -> datetime | None:
    """A stored time, or None when it is not one."""
    try:
        moment = datetime.fromisoformat(stored)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def local_time(stored: str | None, *, zone: bool = True) -> str:
    """A stored UTC time in the zone of this machine: ``2026-11-30 23:10:05 CET``."""
    if stored is None:
        return ""
    moment = parse_time(stored)
    if moment is None:
        return printable(stored)
    try:
        moment = moment.astimezone()
    except (OverflowError, ValueError, OSError):  # at the ends of the calendar
        moment = moment.astimezone(UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text} {zone_name(moment)}" if zone else text


def zone_name(moment: datetime) -> str:
    """``CET``, or ``UTC+02:00`` where the zone has only a number for a name."""
    name = moment.tzname() or ""
    return name if name[:1].isalpha() and name.isascii() else f"UTC{moment.isoformat()[-6:]}"


def milliseconds_since(stored: str, now: datetime) -> float:
    """How long ago a stored time is, in ms; 0 when it lies ahead."""
    moment = parse_time(stored)
    return 0.0 if moment is None else max((now - moment) / timedelta(milliseconds=1), 0.0)
