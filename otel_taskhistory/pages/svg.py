# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG: stacked columns over days and bars over names, without style or script inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.pages.html import Html, Node, el
from otel_taskhistory.text import clip

WIDTH: Final = 720
_HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 26
_ROW: Final = 26
_NAMES: Final = 170
_LABEL: Final = 20
"""Columns of a name that fit there in any of the usual fonts."""
_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of value in each column; `class_` gives it its colour."""

    name: str
    class_: str
    values: Sequence[float]


def columns(
    labels: Sequence[str],
    series: Sequence[Series],
    shown: Callable[[float], str],
    title: str,
) -> Html:
    """Columns side by side, the series stacked.

    Args:
        labels: of the columns.
        series: what lies at the bottom first.
        shown: a value as people read it.
        title: what it shows, for who does not see it.
    """
    totals = [sum(values) for values in zip(*(one.values for one in series), strict=True)]
    top = nice_top(max(totals, default=0))
    high, wide = _HEIGHT - _TOP - _BOTTOM, WIDTH - _LEFT - _RIGHT
    step = wide / max(len(labels), 1)
    shapes: list[Node] = [_grid(top, high, shown)]
    for number, label in enumerate(labels):
        left, base = _LEFT + number * step, float(_HEIGHT - _BOTTOM)
        bars: list[Node] = []
        for one in series:
            size = one.values[number] / top * high if top else 0
            base -= size
            if size > 0:
                bars.append(
                    el(
                        "rect",
                        x=_at(left + step * 0.14),
                        y=_at(base),
                        width=_at(step * 0.72),
                        height=_at(size),
                        rx=1.5,
                        class_=one.class_,
                    )
                )
        values = ", ".join(f"{one.name} {shown(one.values[number])}" for one in series)
        field = el("rect", x=_at(left), y=_TOP, width=_at(step), height=high, class_="field")
        shapes.append(el("g", el("title", f"{label}: {values}"), field, bars))
        if number % max(math.ceil(len(labels) / 8), 1) == 0:
            shapes.append(
                el("text", label, x=_at(left + step / 2), y=_HEIGHT - 8, class_="label middle")
            )
    return _svg(shapes, _HEIGHT, title)


def bars(
    rows: Sequence[tuple[str, float, float]], shown: Callable[[float], str], title: str
) -> Html:
    """A row for each name: a bar up to the first value, a thin one on to the second.

    The axis is logarithmic: what takes milliseconds is seen beside what takes minutes.
    """
    low = min((first for _, first, _ in rows if first > 0), default=1.0)
    high = max((second for _, _, second in rows), default=1.0)
    begin, end = math.floor(math.log10(max(low, 0.01))), math.ceil(math.log10(max(high, 0.1)))
    end = max(end, begin + 1)
    wide = WIDTH - _NAMES - 70
    height = len(rows) * _ROW + _BOTTOM

    def at(value: float) -> float:
        place = (math.log10(max(value, 10**begin)) - begin) / (end - begin)
        return _NAMES + min(max(place, 0.004), 1) * wide

    shapes: list[Node] = []
    for power in range(begin, end + 1):
        x = at(10.0**power)
        shapes.append(el("line", x1=_at(x), x2=_at(x), y1=0, y2=height - _BOTTOM, class_="grid"))
        label = shown(10.0**power)
        shapes.append(el("text", label, x=_at(x), y=height - 8, class_="label middle"))
    for number, (name, first, second) in enumerate(rows):
        y = number * _ROW
        label = clip(name, _LABEL)
        shapes.append(
            el(
                "g",
                el("title", f"{name}: median {shown(first)}, 95 % within {shown(second)}"),
                el("text", label, x=_NAMES - 8, y=y + 17, class_="label end name"),
                el(
                    "rect",
                    x=_NAMES,
                    y=y + 11,
                    width=_at(at(second) - _NAMES),
                    height=4,
                    rx=2,
                    class_="p95",
                ),
                el(
                    "rect",
                    x=_NAMES,
                    y=y + 6,
                    width=_at(at(first) - _NAMES),
                    height=14,
                    rx=2,
                    class_="median",
                ),
                el("text", shown(second), x=_at(at(second) + 6), y=y + 17, class_="label"),
            )
        )
    return _svg(shapes, height, title)


def legend(items: Sequence[tuple[str, str]]) -> Html:
    """(name, class) of each colour."""
    return el(
        "ul",
        [el("li", el("i", class_=class_, aria_hidden="true"), name) for name, class_ in items],
        class_="plot-legend",
    )


def nice_top(most: float) -> float:
    """The end of an axis on which `most` has its place: 1, 2, 2.5 or 5 times a power of ten."""
    if most <= 0:
        return 0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= most)


def _grid(top: float, high: float, shown: Callable[[float], str]) -> list[Node]:
    lines: list[Node] = []
    for tick in range(_TICKS + 1):
        y = _at(_HEIGHT - _BOTTOM - high * tick / _TICKS)
        value = top * tick / _TICKS
        if value != int(value) and top >= 1:
            continue  # there are no halves of what is counted
        lines.append(el("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        if top:
            lines.append(
                el("text", shown(value), x=_LEFT - 8, y=_at(float(y) + 4), class_="label end")
            )
    return lines


def _at(value: float) -> str:
    return f"{value:.1f}"


def _svg(shapes: list[Node], height: int, title: str) -> Html:
    return el(
        "svg",
        shapes,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=title,
        class_="plot",
    )
