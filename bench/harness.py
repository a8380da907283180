# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks share: sides measured in turn, their ratios, the marks, tables and JSON.

A benchmark is a module of this folder with ``ABOUT`` (a `Benchmark`) and ``run(quick) -> Result``.
Other programs use the machine too, so only ratios count: `measure` runs ours and its floor or peer
in turn, round by round, and `ratio` is the median of what the rounds say each.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"

Side = Callable[[], Sequence[float]]
"""Does a round of one side; returns what each piece of work took, in the unit of the series."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What there is to know of a benchmark before it runs."""

    mark: int
    """Its number among the marks."""
    title: str
    slow: bool = False
    """Whether it takes minutes; such ones run last."""


@dataclass(frozen=True, slots=True)
class Series:
    """What was measured of one side: the samples of each round.

    Args:
        name: the first column of the table.
        rounds: samples, round by round; each round has at least one.
        unit: ``ms``, ``s``, ``B``, ``/s`` or ``×``.
        than: the name of the series that the last column of the table compares it to.
    """

    name: str
    rounds: tuple[tuple[float, ...], ...]
    unit: str = "ms"
    than: str | None = None

    @property
    def values(self) -> list[float]:
        """All samples, sorted."""
        return sorted(value for samples in self.rounds for value in samples)

    @property
    def median(self) -> float:
        """Of all samples."""
        return median(self.values)

    def percentile(self, percent: float) -> float:
        """The smallest sample that so many percent of them do not exceed."""
        values = self.values
        return values[max(0, -int(-len(values) * percent // 100) - 1)]


@dataclass(frozen=True, slots=True)
class Check:
    """One number that a mark sets a limit to."""

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether it is within the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(slots=True)
class Result:
    """What a benchmark found out; `quick` ones are smoke tests and say nothing about speed."""

    name: str
    about: Benchmark
    quick: bool
    series: list[Series] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    """Of peers; those of our own side are added."""

    def find(self, name: str) -> Series:
        """The series of this name."""
        return next(series for series in self.series if series.name == name)


def measure(
    rounds: int, sides: Mapping[str, Side], *, unit: str = "ms", than: str | None = None
) -> list[Series]:
    """Run each side once a round, in turn; every other round in the opposite order.

    Args:
        rounds: how many rounds count. One more comes before them: it warms up and counts nothing.
        sides: by name.
        unit: of what the sides return.
        than: the side that the table compares the others to.
    """
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        order = list(sides) if number % 2 else list(reversed(sides))
        for name in order:
            samples = tuple(sides[name]())
            if number:
                found[name].append(samples)
    return [
        Series(name, tuple(samples), unit, None if name == than else than)
        for name, samples in found.items()
    ]


def one(name: str, value: float, unit: str, than: str | None = None) -> Series:
    """A series of a single number, e.g. the size of a file."""
    return Series(name, ((value,),), unit, than)


def ratio(ours: Series, other: Series) -> float:
    """How many times `other` ours is: the median over the rounds, each taken by itself."""
    pairs = zip(ours.rounds, other.rounds, strict=True)
    return median(median(mine) / median(theirs) for mine, theirs in pairs)


@contextmanager
def timed(took: list[float]) -> Iterator[None]:
    """Append to `took` how many ms the block took."""
    began = time.perf_counter_ns()
    yield
    took.append((time.perf_counter_ns() - began) / 1e6)


# --- what is shown and kept ---


def summary(result: Result) -> dict[str, Any]:
    """A result as JSON: no samples, and nothing of the machine but versions."""
    return {
        "name": result.name,
        "mark": result.about.mark,
        "title": result.about.title,
        "measured": datetime.now(UTC).date().isoformat(),
        "quick": result.quick,
        "versions": {**our_versions(), **result.versions},
        "rows": [_row(series, result) for series in result.series],
        "checks": [
            {
                "what": check.what,
                "value": _rounded(check.value),
                "limit": check.limit,
                "at_most": check.at_most,
                "met": check.met,
            }
            for check in result.checks
        ],
        "notes": result.notes,
    }


def our_versions() -> dict[str, str]:
    """Of what this process runs on."""
    return {
        "otel-taskhistory": version("otel-taskhistory"),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "opentelemetry-sdk": version("opentelemetry-sdk"),
    }


def keep(result: Result, folder: Path = RESULTS) -> Path:
    """Write a result where the docs find it; the file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{result.name}.json"
    path.write_text(json.dumps(summary(result), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def text(found: Mapping[str, Any]) -> str:
    """A `summary` for a terminal."""
    lines = [f"{found['name']} (mark {found['mark']}): {found['title']}"]
    lines += aligned(_HEADINGS, [cells(row) for row in found["rows"]])
    lines += [verdict(check) for check in found["checks"]]
    lines += found["notes"]
    lines.append(", ".join(f"{name} {number}" for name, number in found["versions"].items()))
    return "\n".join(lines)


_HEADINGS: Final = ("", "median", "p95", "p99", "samples", "ratio")


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row of a summary as the table shows it."""
    single = row["samples"] == 1
    numbers = [row["median"], *([] if single else [row["p95"], row["p99"]])]
    shown = [quantity(number, row["unit"]) for number in numbers]
    shown += [""] * (3 - len(shown))
    compared = f"{row['ratio']:.3g} × {row['than']}" if row["ratio"] is not None else ""
    return [row["what"], *shown, "" if single else str(row["samples"]), compared]


def verdict(check: Mapping[str, Any]) -> str:
    """What became of one number of a mark."""
    sign = "≤" if check["at_most"] else "≥"
    said = "met" if check["met"] else "MISSED"
    return f"{said}: {check['what']}: {check['value']:.4g}, mark {sign} {check['limit']:g}"


def aligned(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table: the first and last column on the left, numbers on the right."""
    table = [list(headings), *map(list, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(headings))]
    last = len(headings) - 1
    return [
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def quantity(value: float, unit: str) -> str:
    """A number with its unit, of about three digits."""
    if unit == "B":
        for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
            if value >= size:
                return f"{_three(value / size)} {name}"
    if unit == "ms" and value < 1:
        return f"{_three(value * 1000)} µs"
    if unit == "ms" and value >= 10_000:
        return f"{_three(value / 1000)} s"
    return f"{_three(value)} {unit}"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _row(series: Series, result: Result) -> dict[str, Any]:
    compared = None if series.than is None else ratio(series, result.find(series.than))
    return {
        "what": series.name,
        "unit": series.unit,
        "samples": len(series.values),
        "median": _rounded(series.median),
        "p95": _rounded(series.percentile(95)),
        "p99": _rounded(series.percentile(99)),
        "than": series.than,
        "ratio": compared and _rounded(compared),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)
