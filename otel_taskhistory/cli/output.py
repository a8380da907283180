# SPDX-License-Identifier: Apache-2.0
"""Output for programs: strict JSON and CSV, in UTF-8 whatever the locale."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from otel_taskhistory.text import printable, unsafe_to_json

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def to_json(value: Any) -> str:
    """Strict JSON that is also safe to print: control and bidi characters are JSON escapes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2, default=_other)
    return unsafe_to_json(text)


def to_json_line(value: Any) -> str:
    """The same on one line."""
    return unsafe_to_json(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_other))


def _other(value: Any) -> Any:
    if isinstance(value, bytes):  # a column that was damaged by hand
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"no JSON for {type(value).__name__}")


def write_json(value: Any) -> None:
    """Print one JSON document."""
    _write(to_json(value) + "\n")


def write_json_object(head: dict[str, Any], name: str, rows: Iterable[Any]) -> None:
    """Print one JSON object: `head`, and under `name` a list whose rows are written as they come.

    Only one row is in memory at a time.
    """
    opening = to_json({**head, name: []})
    _write(opening[: opening.rindex("[]")] + "[")
    separator = "\n"
    for row in rows:
        _write(separator + _indented(to_json(row), "    "))
        separator = ",\n"
    _write("]\n}\n" if separator == "\n" else "\n  ]\n}\n")


def _indented(text: str, indent: str) -> str:
    # Within JSON strings there are no newlines: each is ours.
    return indent + text.replace("\n", f"\n{indent}")


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print CSV with a header line.

    A text that a spreadsheet would take for a formula begins with an apostrophe. On a terminal,
    control characters are written out; in a file or pipe they are kept.
    """
    for line in csv_lines(columns, rows):
        _write(printable(line).rstrip("\n") + "\n" if sys.stdout.isatty() else line)


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of `write_csv`; a line may hold newlines within quotation marks."""
    for row in [columns]:
        yield _csv_line(row)
    for row in rows:
        yield _csv_line([_cell(value) for value in row])


def _csv_line(row: Sequence[Any]) -> str:
    buffer = io.StringIO()
    # The module quotes a cell for characters of its line terminator only: \r needs it too.
    csv.writer(buffer, lineterminator="\r\n").writerow(row)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _write(text: str) -> None:
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    buffer.write(text.encode("utf-8", "backslashreplace"))
    buffer.flush()
