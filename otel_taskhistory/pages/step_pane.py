# SPDX-License-Identifier: Apache-2.0
"""One step whole: its pictures, what was new in its prompt, its decision, calls and failures."""

from __future__ import annotations

from otel_taskhistory.history import STATUSES, Screenshot, TaskHistory, ToolCall
from otel_taskhistory.pages.html import Html, Node, Url, el, join
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.messages import Shown, decision_block, message_item, value_block
from otel_taskhistory.pages.pieces import (
    error_text,
    figure,
    long_text,
    moment,
    outcome,
    tokens,
    took,
)
from otel_taskhistory.pages.step_list import is_named
from otel_taskhistory.store.overview.step import CallView, PromptView, StepView, step_view
from otel_taskhistory.text import count, duration, one_line

_ROLES = {"screenshot": "Screenshot", "input": "Shown to the model", "output": "Made by the model"}


def step_fragment(
    history: TaskHistory, task_id: str, step_id: str, links: Links, full: bool = False
) -> str:
    """A step by itself.

    Args:
        full: with every message of its prompts, and no value cut.

    Raises:
        TaskNotFound: there is no such task, or it has no such step.
    """
    view = history.read(lambda c: step_view(c, task_id, step_id, full=full))
    return step_markup(view, links).markup


def step_markup(view: StepView, links: Links, *, saved: bool = False) -> Html:
    """The step as an article.

    Args:
        saved: on a page with all steps of the task and no server to ask for more.
    """
    step = view.step
    more = None if view.full or saved else links.step(step.task_id, step.step_id, full=True)
    shown = Shown(links, more)
    title = f"title-{step.step_id}" if saved else "step-title"
    status = step.status if step.status in STATUSES else "unknown"
    sections: list[Node] = [
        _head(view, links, title),
        _failure(view, shown),
        _pictures(view, links, saved=saved),
        [_call(view, number, call, shown) for number, call in enumerate(view.calls, start=1)],
        _tools(view, shown),
        _section("Result", value_block(step.result, shown), "result")
        if step.result is not None
        else None,
        _foot(view, links) if not saved else None,
    ]
    return el(
        "article",
        sections,
        class_=f"pane-step {status}",
        data_id=step.step_id,
        data_index=step.step_index,
        data_full="1" if view.full else None,
        id=step.step_id if saved else None,
        aria_labelledby=title,
    )


def _section(title: Node, content: Node, class_: str, aside: Node = None) -> Html:
    head = el("div", el("h3", title), aside, class_="section-head")
    return el("section", head, content, class_=f"section {class_}")


def _head(view: StepView, links: Links, title: str) -> Html:
    step = view.step
    name = step.name if is_named(step.name, step.model) else (step.tool_name or "")
    facts: list[Node] = [
        outcome(step.status),
        took(step),
        moment(step.started_at),
        el("span", f"attempt {step.attempt}", class_="tag") if step.attempt > 1 else None,
        el("span", step.agent, dir="auto") if step.agent else None,
        el("span", step.model, dir="auto") if step.model else None,
        el("span", f"{tokens(step)} tokens") if tokens(step) else None,
        el("span", f"cost {step.cost:.6g}") if step.cost is not None else None,
    ]

    def neighbour(step_id: str | None, label: str, sign: str, key: str) -> Html:
        if step_id is None:
            return el("span", sign, class_="button off", aria_hidden="true")
        return el(
            "a",
            sign,
            href=links.task(step.task_id, step_id),
            class_="button",
            aria_label=f"{label} step",
            title=f"{label} step ({key})",
            data_step=step_id,
        )

    return el(
        "header",
        el(
            "div",
            el(
                "h2",
                el("span", f"Step {step.step_index}", class_="number"),
                [" ", el("span", one_line(name)[:200], dir="auto")] if name else None,
                id=title,
                tabindex="-1",
            ),
            el(
                "div",
                neighbour(view.previous, "Previous", "↑", "k"),
                neighbour(view.following, "Next", "↓", "j"),
                el(
                    "a",
                    "Link",
                    href=links.task(step.task_id, step.step_id),
                    class_="button permalink",
                    title="Link to this step",
                ),
                class_="buttons",
            ),
            class_="title-row",
        ),
        el("div", facts, class_="facts"),
        class_="pane-head",
    )


def _failure(view: StepView, shown: Shown) -> Node:
    step = view.step
    why = error_text(step.error, step.error_type)
    if not why and not view.stacks:
        return None
    stacks = [
        el(
            "details",
            el(
                "summary",
                "Stack trace",
                f" of {one_line(name)[:80]}" if len(view.stacks) > 1 else "",
            ),
            el("pre", stack, class_="code"),
            class_="stack",
        )
        for name, stack in view.stacks
    ]
    return el(
        "div",
        el("h3", "Error", class_="visually-hidden"),
        long_text(why, shown.all_of_it) if why else None,
        stacks,
        class_="failure" if step.status in ("failed", "interrupted") else "failure mild",
    )


def _pictures(view: StepView, links: Links, *, saved: bool) -> Node:
    own = [shot for shot in view.pictures if shot.role == "screenshot"]
    others = [shot for shot in view.pictures if shot.role != "screenshot"]
    figures: list[Node] = []
    # On a saved page the step before has it. A step that failed has often no picture of its own:
    # then this is what the agent saw when it did.
    if view.before is not None and not saved:
        index, before = view.before
        figures.append(el("div", figure(before, links, f"Before (step {index})"), class_="before"))
    for number, shot in enumerate(own, start=1):
        title = "After" if view.before is not None and len(own) == 1 else "Screenshot"
        figures.append(figure(shot, links, f"{title} {number}" if len(own) > 1 else title))
    known = {shot.sha256 for shot in own}
    rest: list[Screenshot] = []
    for shot in others:
        if shot.sha256 not in known:
            known.add(shot.sha256)
            rest.append(shot)
    figures += [figure(shot, links, _ROLES.get(shot.role, "Picture")) for shot in rest]
    if not figures:
        return None
    return el(
        "section",
        el("h3", "Pictures", class_="visually-hidden"),
        figures,
        class_=f"section pictures n{min(len(figures), 3)}",
    )


def _call(view: StepView, number: int, call: CallView, shown: Shown) -> Html:
    several = len(view.calls) > 1
    ids = frozenset(tool.call_id for tool in view.tools if tool.call_id)
    heading: Node = None
    model = call.call
    if several or model.attempt > 1 or model.status != "succeeded":
        used = tokens(model)
        facts = [
            outcome(model.status),
            took(model),
            model.model,
            f"{used} tokens" if used else None,
            f"attempt {model.attempt}" if model.attempt > 1 else None,
            f"finished: {one_line(model.finish_reason)[:60]}" if model.finish_reason else None,
        ]
        title = f"Model call {number} of {len(view.calls)}" if several else "Model call"
        heading = el(
            "div", el("h3", title), [el("span", fact) for fact in facts if fact], class_="call-row"
        )
    error: Node = None
    if model.error and model.error != view.step.error:
        error = el("div", long_text(model.error, shown.all_of_it), class_="failure mild")
    decision: Node = None
    if call.decision:
        reason = model.finish_reason
        aside = el("span", f"finished: {one_line(reason)[:60]}", class_="dim") if reason else None
        decision = _section(
            "Decision",
            decision_block(call.decision, shown, ids),
            "decision",
            aside if not heading else None,
        )
    return join(heading, _prompt(call.prompt, view, shown), decision, error)


def _prompt(prompt: PromptView | None, view: StepView, shown: Shown) -> Node:
    if prompt is None:
        return None
    facts = [count(prompt.total, "message")]
    if prompt.first:
        facts.append("the first prompt")
    else:
        facts += [f"{count(prompt.new_total)} new"] if prompt.new_total else []
        facts += [f"{count(prompt.removed_total)} removed"] if prompt.removed_total else []
        if not prompt.new_total and not prompt.removed_total:
            facts.append("unchanged")
    aside: list[Node] = [el("span", " · ".join(facts), class_="dim")]
    if prompt.full is not None:
        return _section("Prompt", _whole(prompt, shown), "prompt", [*aside, _back(view, shown)])
    if prompt.total > len(prompt.new) and shown.all_of_it is not None:
        aside.append(
            el(
                "a",
                f"Show the whole prompt ({count(prompt.total, 'message')})",
                href=shown.all_of_it,
                class_="button whole",
                data_full="1",
            )
        )
    return _section("Prompt", [_removed(prompt, shown), _new(prompt, shown)], "prompt", aside)


def _back(view: StepView, shown: Shown) -> Html:
    step = view.step
    where = shown.links.task(step.task_id, step.step_id)
    return el("a", "Show only what changed", href=where, class_="button whole", data_full="0")


def _whole(prompt: PromptView, shown: Shown) -> Html:
    """Every message, the new ones marked, and those that were removed before them."""
    new = set() if prompt.first else {position for position, _ in prompt.new}
    items = [
        message_item(text, shown, "+" if position in new else "", position)
        for position, text in enumerate(prompt.full or (), start=1)
    ]
    return join(_removed(prompt, shown), el("ol", items, class_="messages"))


def _removed(prompt: PromptView, shown: Shown) -> Node:
    """What had been in the prompt before: that a conversation was compacted must not be missed."""
    if not prompt.removed_total:
        return None
    items = [message_item(text, shown, "−", position) for position, text in prompt.removed]
    return el(
        "details",
        el(
            "summary", f"{count(prompt.removed_total, 'message')} taken out since the prompt before"
        ),
        el("ol", items, class_="messages"),
        _left_out(len(prompt.removed), prompt.removed_total),
        class_="removed-list",
    )


def _new(prompt: PromptView, shown: Shown) -> Html:
    sign = "" if prompt.first else "+"
    items = [message_item(text, shown, sign, position) for position, text in prompt.new]
    return join(
        el("ol", items, class_="messages") if items else None,
        _left_out(len(prompt.new), prompt.new_total),
    )


def _left_out(shown: int, total: int) -> Node:
    if shown >= total:
        return None
    return el("p", f"showing {count(shown)} of {count(total)} messages", class_="dim")


def _tools(view: StepView, shown: Shown) -> Node:
    if not view.tools:
        return None
    items = [_tool(call, view, shown) for call in view.tools]
    title = "Tool call" if len(items) == 1 else f"{len(items)} tool calls"
    together = _parallel(view.tools)
    aside = el("span", f"{together} in parallel", class_="dim") if together else None
    return _section(title, items, "tools", aside)


def _parallel(tools: tuple[ToolCall, ...]) -> int:
    """How many calls ran while another one did."""
    found = set()
    for number, call in enumerate(tools):
        for other in range(number + 1, len(tools)):
            if tools[other].started_at < (call.ended_at or "9999"):
                found |= {number, other}
    return len(found)


def _tool(call: ToolCall, view: StepView, shown: Shown) -> Html:
    told = view.step.error is not None and view.step.error.endswith(call.error or "\0")
    rows: list[Node] = []
    if call.arguments is not None:
        rows.append(_named("Arguments", value_block(call.arguments, shown)))
    if call.result is not None:
        rows.append(_named("Result", value_block(call.result, shown)))
    if call.error and not told:
        error = el("div", long_text(call.error, shown.all_of_it), class_="failure mild")
        rows.append(_named("Error", error))
    return el(
        "div",
        el(
            "div",
            outcome(call.status),
            el("b", one_line(call.name)[:120], class_="tool-name"),
            el("span", duration(call.duration_ms), class_="dim"),
            el("span", one_line(call.call_id)[:80], class_="id") if call.call_id else None,
            class_="call-head",
        ),
        rows,
        class_=f"tool {call.status if call.status in STATUSES else 'unknown'}",
    )


def _named(label: str, content: Node) -> Html:
    return el("div", el("h4", label), content, class_="named")


def _foot(view: StepView, links: Links) -> Html:
    step = view.step
    rows: list[tuple[str, Url]] = [
        ("this step", links.table("steps", step_id=step.step_id, task_id=step.task_id)),
        ("its spans", links.table("spans", trace_id=step.trace_id)),
    ]
    tables = [join(" · ", el("a", label, href=where)) for label, where in rows if where]
    return el("footer", el("span", f"span {step.step_id}", class_="id"), tables, class_="pane-foot")
