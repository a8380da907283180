# SPDX-License-Identifier: Apache-2.0
"""Which spans are one call seen by several instrumentations: pure functions of a task's spans.

Model calls. The span that began first is shown (a framework's begins before that of the client
which it uses), and the others are the same call:

* A model span within a model span, unless a tool or an agent lies between them.
* Model spans that name the same response and were going on at the same time. Ids are the
  provider's; two calls that do not overlap are two calls, whatever a test server calls them.
* A model span beside another of a different instrumentation, within its time, if they name the
  same model or the same tokens (and nothing different), or both failed: clients that record
  themselves do not know the span of a wrapper around them, and not every wrapper tells the id of
  the response. Each span of the client belongs to the wrapper that began last before it and has
  none yet.

Tool calls. A tool span within a tool span of the same name, with no agent or model between them,
is the same call: an agent's, an MCP client's and an MCP server's view of it. The outermost is
shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from otel_taskhistory.store.tree import Seen, Tree

_LOOK_BACK: Final = 64
"""Among how many calls before a client's its wrapper is looked for; so many are under way at once
under one parent at most."""


def same_model_calls(spans: Iterable[Seen], tree: Tree) -> dict[int, int]:
    """Row of a model span → row of another one that is the same call and is shown before it."""
    models = [span for span in spans if span.role == "model"]
    same: dict[int, Seen] = {
        span.row: tree.model_above[span.row] for span in models if span.row in tree.model_above
    }
    for cluster in _of_one_response(models):
        tops = {top.row: top for top in (_top(span, same) for span in cluster)}
        # What is below a step of ours is shown by that step.
        first, *others = sorted(
            tops.values(), key=lambda top: (top.row not in tree.step_above, top.order)
        )
        for top in others:
            same[top.row] = first
    same |= dict(_beside(models, same))
    return {row: other.row for row, other in same.items()}


def same_tool_calls(spans: Iterable[Seen], tree: Tree) -> dict[int, int]:
    """Row of a tool span → row of the outermost one that is the same call.

    Args:
        spans: parents before their children.
        tree: of these spans.
    """
    same: dict[int, int] = {}
    for span in spans:
        above = tree.tool_above.get(span.row) if span.role == "tool" else None
        if above is not None and span.tool is not None and above.tool == span.tool:
            same[span.row] = same.get(above.row, above.row)
    return same


def _top(span: Seen, same: dict[int, Seen]) -> Seen:
    while span.row in same:
        span = same[span.row]
    return span


def _of_one_response(models: list[Seen]) -> Iterator[list[Seen]]:
    """Model spans that name the same response, in groups that overlap in time."""
    named: dict[str, list[Seen]] = defaultdict(list)
    for span in models:
        for response_id in span.response_ids:
            named[response_id].append(span)
    for response_id in sorted(named):
        first, *others = sorted(named[response_id], key=lambda span: span.order)
        group, ends = [first], first.end_ns
        for span in others:
            if ends is not None and span.start_ns > ends:
                yield group
                group, ends = [span], span.end_ns
            else:
                group.append(span)
                ends = None if ends is None or span.end_ns is None else max(ends, span.end_ns)
        yield group


def _beside(models: list[Seen], same: dict[int, Seen]) -> Iterator[tuple[int, Seen]]:
    """Calls of wrappers and those of the clients within them that lie beside each other."""
    groups: dict[str, list[Seen]] = defaultdict(list)
    for span in models:
        if span.row not in same and span.parent_span_id is not None and not span.own:
            groups[span.parent_span_id].append(span)
    for group in groups.values():
        if len({span.scope for span in group}) < 2:
            continue
        taken: set[tuple[int, int]] = set()
        group.sort(key=lambda span: span.order)
        for at, span in enumerate(group):
            for wrapper in reversed(group[max(at - _LOOK_BACK, 0) : at]):
                if (wrapper.row, span.scope) not in taken and _may_be_same(wrapper, span):
                    taken.add((wrapper.row, span.scope))
                    yield span.row, wrapper
                    break


def _may_be_same(wrapper: Seen, client: Seen) -> bool:
    if wrapper.scope == client.scope or not wrapper.covers(client):
        return False
    if wrapper.response_ids and client.response_ids:
        return False  # and they are not the same, or it would be known by now
    said = ((wrapper.model, client.model), *zip(wrapper.tokens, client.tokens, strict=True))
    known = [(one, other) for one, other in said if one is not None and other is not None]
    if any(one != other for one, other in known):
        return False
    return bool(known) or wrapper.status == client.status == "failed"
