# SPDX-License-Identifier: Apache-2.0
"""One model call seen by several instrumentations, put together: pure functions of the calls.

The outermost call is the one that is shown; what it lacks it gets from its twins below. A step of
ours that recorded a prompt or a decision itself knows the call best.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
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
"""What a call may get from its twins; the position is the bit in ``_model_calls.filled``."""

_SUMMED: Final = 4  # from here on: one call may be several requests further below


@dataclass(frozen=True, slots=True)
class Call:
    """A row of ``_model_calls``; `said` are its columns of `FILLABLE`, each a tuple."""

    id: int
    span: int
    span_id: str
    ordinal: int
    started_ns: int
    said: tuple[tuple[Any, ...], ...]
    filled: int = 0
    twin_of: int | None = None

    @property
    def own(self) -> Call:
        """As it was before its twins filled it."""
        if not self.filled:
            return self
        said = tuple(
            (None,) * len(values) if self.filled & 1 << bit else values
            for bit, values in enumerate(self.said)
        )
        return replace(self, said=said, filled=0)

    @property
    def order(self) -> tuple[int, str, int]:
        """Calls are put in the order of their start."""
        return (self.started_ns, self.span_id, self.ordinal)


def put_together(calls: list[Call], plan: Plan) -> dict[int, Call]:
    """The calls by row id, as they are when each knows its twins.

    Args:
        calls: all calls of the trace, in any order.
        plan: which span is the same call as which, and whose step.
    """
    found = {call.id: replace(call.own, twin_of=None) for call in calls}
    of_span: dict[int, list[int]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.order):
        of_span[call.span].append(call.id)
    below: dict[int, list[int]] = defaultdict(list)
    for row in plan.upwards:  # children first, so that what they got from theirs goes on upwards
        for call_id in of_span.get(row, ()):
            if call_id in below:
                found[call_id] = _filled(found[call_id], [found[twin] for twin in below[call_id]])
        shown_by = _seen_above(row, of_span, plan)
        for call_id in of_span.get(row, ()) if shown_by else ():
            starts = [found[above].started_ns for above in shown_by]
            position = bisect_right(starts, found[call_id].started_ns)
            above = shown_by[max(position - 1, 0)]
            below[above].append(call_id)
            found[call_id] = replace(found[call_id], twin_of=above)
    for call_id, call in found.items():
        found[call_id] = replace(call, twin_of=_topmost(call, found))
    return found


def _seen_above(row: int, of_span: dict[int, list[int]], plan: Plan) -> list[int]:
    """The calls, in order, one of which the calls of the model span `row` are."""
    same = plan.same_call.get(row)
    if same is not None:
        return of_span.get(same, [])
    step = plan.step_of.get(row)
    if step is None or step.row == row or not step.own or row in plan.nested:
        return []
    return of_span.get(step.row, [])


def _topmost(call: Call, found: dict[int, Call]) -> int | None:
    above = call.twin_of
    while above is not None and (further := found[above].twin_of) is not None:
        above = further
    return above


def _filled(call: Call, twins: list[Call]) -> Call:
    twins.sort(key=lambda twin: twin.order)
    said, filled = list(call.said), 0
    for bit, values in enumerate(call.said):
        known = [twin.said[bit] for twin in twins if any(v is not None for v in twin.said[bit])]
        if any(value is not None for value in values) or not known:
            continue
        said[bit] = known[-1] if bit < _SUMMED else (sum(value for (value,) in known),)
        filled |= 1 << bit
    return replace(call, said=tuple(said), filled=filled)
