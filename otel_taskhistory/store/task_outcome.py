# SPDX-License-Identifier: Apache-2.0
"""How a task of another instrumentation ended, and whose words on goal and result count.

What the root says of the end cannot be trusted: many frameworks set it to OK, or leave it unset,
though the run raised or was cancelled, because only the span in which it happened sees the
exception. So, of a root that has ended:

* One that says that it failed or was cancelled did.
* One that tells what came out has succeeded: it got that far.
* Else the last to end of the agent runs, steps, model calls and cancelled tool calls right below it
  decides, by the same rule. When a call fails and the agent goes on, another one comes after it;
  when nothing comes after it, the failure was the end. Of two that ended together the one that
  began later counts.

Tool calls that failed are left out: a model is told of it, and goes on. Where the failure of a tool
ends a run, the run itself says so. What is below a tool call is the tool's business. A tool call
that was cancelled counts: nobody is told of that, and a framework that is cancelled while a tool
works may leave the run without a status.

A root that runs, or was interrupted, or never came, says nothing; neither does what runs below it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from otel_taskhistory.store.assembly import PlannedTask
from otel_taskhistory.store.tree import Seen, Tree

_WEIGHED: Final = frozenset({"agent", "model", "step", "task"})
_BAD: Final = frozenset({"failed", "cancelled"})
_OVER: Final = _BAD | {"succeeded"}


def failures_of(task: PlannedTask, tree: Tree) -> list[Seen]:
    """The span that tells how a task failed or was cancelled; none when none does.

    After it those below it that say the same, for what it does not tell of the reason.
    """
    root = task.root
    if root is None or root.own or root.status not in _OVER:
        return []
    below = _weighed_below(task, tree)
    found: list[Seen] = []
    at: Seen | None = root
    while at is not None:
        if at.status in _BAD:
            found.append(at)
        elif found or at.has_result or at.role == "model":
            break
        at = max(below[at.row], key=lambda span: (span.end_ns or 0, span.order), default=None)
    return found


def runs_of(task: PlannedTask, tree: Tree) -> list[tuple[int, Seen]]:
    """The agent runs of a task that no tool call began, with how deep they are, in order."""
    depth: dict[int, int] = {}
    found: list[tuple[int, Seen]] = []
    for span in task.spans:
        above = tree.parent(span)
        is_run = span.role in ("agent", "task")
        depth[span.row] = (depth.get(above.row, 0) if above is not None else 0) + is_run
        if is_run and span.row not in tree.below_tool:
            found.append((depth[span.row], span))
    return sorted(found, key=lambda run: (run[1].start_ns, run[0], run[1].span_id))


def _weighed_below(task: PlannedTask, tree: Tree) -> dict[int, list[Seen]]:
    """Row → the agent runs, steps, model calls and cancelled tool calls right below it, ended."""
    assert task.root is not None
    below: dict[int, list[Seen]] = defaultdict(list)
    nearest: dict[int, int] = {}
    """Span row → row of what it would decide about."""
    for span in task.spans:
        if span is task.root:
            continue
        above = tree.parent(span)
        row = task.root.row
        if above is not None:
            weighs = above.role in _WEIGHED and above.row != row
            row = above.row if weighs else nearest.get(above.row, row)
        nearest[span.row] = row
        if (
            (span.role in _WEIGHED or (span.role == "tool" and span.status == "cancelled"))
            and span.status in _OVER
            and span.row not in tree.below_tool
            and span.row not in tree.gone
        ):
            below[row].append(span)
    return below
