# SPDX-License-Identifier: Apache-2.0
"""One call seen by several instrumentations, put together: pure functions of the calls.

The outermost call is the one that is shown; what it lacks it gets from its twins. A step of ours
that recorded a prompt or a decision itself knows the call best. Which spans are the same call is
said by `otel_taskhistory.store.same_calls`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_taskhistory.store.assembly import Plan

FILLABLE: Final = (
    ("prompt_node", "prompt_text"),
    ("decision_node", "decision_text"),
    ("model",),
    ("finish_reason",),
    ("input_tokens",),
    ("output_tokens",),
    ("cached_tokens",),
    ("reasoning_tokens",),
    ("cost",),
)
"""What a model call may get from its twins; the position is the bit in its ``filled``."""

TOOL_FILLABLE: Final = (
    ("call_id",),
    ("arguments", "arguments_content"),
    ("result", "result_content"),
)
"""Likewise for a tool call."""

_SUMMED: Final = 4  # from here on: one call may be several requests further below


@dataclass(frozen=True, slots=True)
class Call:
    """A row of ``_model_calls`` or ``_tool_calls``.

    `said` are its columns of `FILLABLE` or `TOOL_FILLABLE`, each a tuple.
    """

    id: int
    span: int
    span_id: str
    started_ns: int
    said: tuple[tuple[Any, ...], ...]
    ordinal: int = 0
    response_id: str | None = None
    filled: int = 0
    twin_of: int | None = None

    @property
    def own(self) -> Call:
        """As it was before it was known to have twins."""
        if not self.filled:
            return self if self.twin_of is None else replace(self, twin_of=None)
        said = tuple(
            (None,) * len(values) if self.filled & 1 << bit else values
            for bit, values in enumerate(self.said)
        )
        return replace(self, said=said, filled=0, twin_of=None)

    @property
    def order(self) -> tuple[int, str, int]:
        """Calls are put in the order of their start."""
        return (self.started_ns, self.span_id, self.ordinal)


def put_together(calls: Iterable[Call], plan: Plan) -> dict[int, Call]:
    """Model calls by row id, as they are when each knows its twins.

    Args:
        calls: all of the trace, in any order.
        plan: which span is the same call as which, and whose step.
    """
    found = {call.id: call.own for call in calls}
    of_span: dict[int, list[int]] = defaultdict(list)
    for call in sorted(found.values(), key=lambda call: call.order):
        of_span[call.span].append(call.id)
    below: dict[int, list[int]] = defaultdict(list)
    for row in _hidden_first(of_span, plan):  # so that what they got from others goes on
        for call_id in of_span[row]:
            if call_id in below:
                twins = [found[twin] for twin in below[call_id]]
                found[call_id] = _filled(found[call_id], twins, _SUMMED)
        shown_by = of_span.get(_shown_by(row, plan) or 0, ())
        for call_id in of_span[row] if shown_by else ():
            starts = [found[above].started_ns for above in shown_by]
            position = bisect_right(starts, found[call_id].started_ns)
            above = shown_by[max(position - 1, 0)]
            below[above].append(call_id)
            found[call_id] = replace(found[call_id], twin_of=above)
    for call_id, call in found.items():
        topmost = _topmost(call, found)
        if topmost != call.twin_of:
            found[call_id] = replace(call, twin_of=topmost)
    return found


def put_tools_together(calls: Iterable[Call], plan: Plan) -> dict[int, Call]:
    """Tool calls by row id, likewise; the one that lies deepest knows best what came out."""
    found = {call.id: call.own for call in calls}
    of_span = {call.span: call for call in found.values()}
    below: dict[int, list[Call]] = defaultdict(list)
    for span, call in of_span.items():
        shown = of_span.get(plan.same_tool.get(span, 0))
        if shown is not None:
            found[call.id] = replace(call, twin_of=shown.id)
            below[shown.id].append(call)
    for call_id, twins in below.items():
        found[call_id] = _filled(found[call_id], twins, len(TOOL_FILLABLE))
    return found


def _hidden_first(of_span: dict[int, list[int]], plan: Plan) -> list[int]:
    """The spans with calls, each before the one that shows its calls."""
    depths: dict[int, int] = {}
    for row in of_span:
        path: list[int] = []
        at: int | None = row
        while at is not None and at not in depths:
            path.append(at)
            at = _shown_by(at, plan)
        top = -1 if at is None else depths[at]
        for number, one in enumerate(reversed(path), start=1):
            depths[one] = top + number
    return sorted(of_span, key=depths.__getitem__, reverse=True)


def _shown_by(row: int, plan: Plan) -> int | None:
    """The span one of whose calls the calls of this span are."""
    same = plan.same_call.get(row)
    if same is not None:
        return same
    step = plan.step_of.get(row)
    if step is None or step.row == row or not step.own or row in plan.nested:
        return None
    return step.row


def _topmost(call: Call, found: dict[int, Call]) -> int | None:
    above = call.twin_of
    while above is not None and (further := found[above].twin_of) is not None:
        above = further
    return above


def _filled(call: Call, twins: list[Call], summed: int) -> Call:
    twins.sort(key=lambda twin: twin.order)
    said, filled = list(call.said), 0
    for bit, values in enumerate(call.said):
        known = [twin for twin in twins if any(value is not None for value in twin.said[bit])]
        if any(value is not None for value in values) or not known:
            continue
        if bit < summed:
            said[bit] = known[-1].said[bit]
        else:
            # Each response once, however many have seen it.
            requests = {twin.response_id or twin.id: twin.said[bit][0] for twin in known}
            said[bit] = (sum(requests.values()),)
        filled |= 1 << bit
    return replace(call, said=tuple(said), filled=filled)
