# SPDX-License-Identifier: Apache-2.0
"""Answers from a history: each a few index look-ups, each of bounded size.

Every text is cut to a length and says so, with the question that gives the rest; every list is a
page. An answer of the largest kind (a step, see `steps`) is some 60,000 characters at most.
"""

from __future__ import annotations

from typing import Any, Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.history import STATUSES, Hit, TaskHistory
from otel_taskhistory.mcp import results
from otel_taskhistory.mcp.arguments import find_numbered, moment_ns, one_of
from otel_taskhistory.mcp.parts import continued, named, picture_of, text_of, used
from otel_taskhistory.mcp.steps import of_step
from otel_taskhistory.mcp.texts import name, visible
from otel_taskhistory.mcp.values import Window, read_step_value, read_task_value
from otel_taskhistory.store import reader
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.steps import StepLine, StepList, step_list
from otel_taskhistory.store.overview.tasks import TaskHead, TaskLine, task_head, task_lines
from otel_taskhistory.store.views import Task

LINE: Final = 240
"""Characters of a text in a list."""
GOAL: Final = 4_000
"""Of the goal and result of a task that is asked for."""
VALUE: Final = 16_000
"""Of one value that is asked for, at a time."""
MOST_FOUND: Final = 1_000
"""Hits that can be reached by paging."""


# --- tasks --------------------------------------------------------------------------------------


def list_tasks(
    history: TaskHistory,
    status: str | None,
    agent: str | None,
    since: str | None,
    until: str | None,
    kind: str,
    limit: int,
    cursor: str | None,
) -> results.TaskList:
    """A page of tasks, the newest first."""
    which = reader.TaskFilter(
        one_of("status", status, STATUSES),
        moment_ns("since", since),
        moment_ns("until", until),
        agent,
        None if kind == "any" else one_of("kind", kind, ("agent", "other")),
    )
    page, total = history.read(
        lambda c: (task_lines(c, which, limit, cursor), reader.count_tasks(c, which)),
    )
    return results.TaskList(
        owner=name(history.identity.owner),
        total=total,
        tasks=[_task_line(line) for line in page],
        next_cursor=page.next,
    )


def get_task(
    history: TaskHistory, task_id: str, limit: int, cursor: str | None
) -> results.TaskDetail:
    """A task and a page of its steps."""

    def query(connection: Any) -> tuple[TaskHead, StepList]:
        head = task_head(connection, task_id)
        return head, step_list(connection, head.task.task_id, cursor, limit)

    head, page = history.read(query)
    task = head.task

    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return continued(value, most, f"task_id={task.task_id!r}, part={part!r}")

    return results.TaskDetail(
        **_of_task(task),
        goal=text(task.goal, "goal", GOAL),
        result=text(task.result, "result", GOAL),
        error=text(task.error, "error", GOAL),
        conversation_id=named(task.conversation_id),
        attempt=task.attempt,
        pinned=task.pinned,
        parent=None if head.parent is None else _other(head.parent),
        children=[_other(child) for child in head.children],
        steps_by_status=head.steps_by_status,
        first_failed_step=None if head.first_failed is None else head.first_failed[1],
        steps_total=page.total,
        steps=[_step_line(history, line) for line in page.lines],
        next_cursor=page.after,
    )


def _task_line(line: TaskLine) -> results.TaskLine:
    task = line.task
    ask = f"ask get_task with task_id={task.task_id!r}"
    return results.TaskLine(
        **_of_task(task),
        goal=text_of(task.goal, LINE, ask),
        steps=task.step_count,
        error=text_of(task.error, LINE, ask),
    )


def _of_task(task: Task) -> dict[str, Any]:
    """What every answer says of a task."""
    return {
        "task_id": task.task_id,
        "agent": named(task.agent),
        "kind": task.kind,
        "status": task.status,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "duration_ms": task.duration_ms,
        "model": named(task.model),
        "used": used(task),
    }


def _other(task: Task) -> results.OtherTask:
    ask = f"ask get_task with task_id={task.task_id!r}"
    return results.OtherTask(
        task_id=task.task_id, goal=text_of(task.goal, LINE, ask), status=task.status
    )


def _step_line(history: TaskHistory, line: StepLine) -> results.StepLine:
    step = line.step
    ask = f"ask get_step with step={step.step_id!r}"
    return results.StepLine(
        **of_step(step),
        said=text_of(line.said or None, LINE, ask),
        tool=named(step.tool_name),
        tool_arguments=text_of(step.tool_arguments, LINE, ask),
        tool_calls=line.tools,
        error=text_of(step.error, LINE, ask),
        picture=None if line.picture is None else picture_of(history, line.picture),
    )


# --- one value ----------------------------------------------------------------------------------


def get_text(
    history: TaskHistory, task_id: str, part: str, step: int | str | None, offset: int, most: int
) -> results.Value:
    """A piece of one value."""

    def query(connection: Any) -> tuple[str, str | None, Window]:
        window = Window(offset, most)
        if step is None:
            found = find_task(connection, task_id)
            read_task_value(connection, found, part, window)
            return found, None, window
        own, step_id = find_numbered(connection, task_id, step)
        read_step_value(connection, own, step_id, part, window)
        return own, step_id, window

    own, step_id, window = history.read(query)
    if offset > window.total:
        raise SettingsError(
            f"offset={offset} lies behind the end: {part} has {window.total:,} characters"
        )
    end = min(offset + most, window.total)
    rest = end < window.total
    note = f"truncated: characters {offset:,} to {end:,} of {window.total:,}; ask with offset={end}"
    return results.Value(
        task_id=own,
        step_id=step_id,
        part=part,
        text=visible(window.text),
        offset=offset,
        total_characters=window.total,
        next_offset=end if rest else None,
        truncated=note if rest else None,
    )


# --- search -------------------------------------------------------------------------------------


def search_history(history: TaskHistory, text: str, limit: int, offset: int) -> results.Hits:
    """A page of what says all words of a text."""
    found = history.search(text, limit=offset + limit)
    hits = found[offset:]
    end = offset + len(hits)
    more = found.more and bool(hits)
    notes = []
    if more and end >= MOST_FOUND:
        more = False
        notes.append(f"no more than {MOST_FOUND:,} hits can be asked for: add a word")
    if found.indexing:
        notes.append("the search index is being made anew: older values may be missing")
    elif not found.complete:
        notes.append("the search ended before the oldest values: add a rarer word")
    if not text.strip():
        notes.append("no word was given")
    return results.Hits(
        hits=[_hit(hit) for hit in hits],
        next_offset=end if more else None,
        note="; ".join(notes) or None,
    )


def _hit(hit: Hit) -> results.Hit:
    start, end = hit.match
    return results.Hit(
        task_id=hit.task_id,
        step=hit.step_index,
        step_id=hit.step_id,
        goal=None if hit.goal is None else visible(hit.goal),
        field=hit.field,
        also=list(hit.also),
        error_type=named(hit.error_type),
        at=hit.at,
        times=hit.times,
        before=visible(hit.snippet[:start]),
        match=visible(hit.snippet[start:end]),
        after=visible(hit.snippet[end:]),
        value_characters=hit.value_length,
    )
