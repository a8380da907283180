# SPDX-License-Identifier: Apache-2.0
"""Answers from a history: each a few index look-ups, each of bounded size.

Every text is cut to one of the lengths below and says so, with the question that gives the rest;
every list is a page. An answer of the largest kind (a step) is some 60,000 characters at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from otel_taskhistory.cli.messages import read_message, shown
from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.history import STATUSES, Hit, TaskHistory
from otel_taskhistory.mcp import results
from otel_taskhistory.mcp.texts import name, piece, visible
from otel_taskhistory.mcp.values import Window, read_step_value, read_task_value
from otel_taskhistory.pages.reading import read
from otel_taskhistory.store import reader
from otel_taskhistory.store.ids import find_step, find_task
from otel_taskhistory.store.overview.step import CallView, StepView, step_view
from otel_taskhistory.store.overview.steps import StepLine, StepList, step_list
from otel_taskhistory.store.overview.tasks import TaskHead, TaskLine, task_head, task_lines
from otel_taskhistory.store.times import LATEST_NS
from otel_taskhistory.store.views import ModelCall, Screenshot, Step, Task, ToolCall
from otel_taskhistory.units import bad_value, parse_duration

LINE: Final = 240
"""Characters of a text in a list."""
SHORT: Final = 800
"""Of arguments, and of each new message."""
LONG: Final = 1_600
"""Of results, errors and decisions."""
GOAL: Final = 4_000
"""Of the goal and result of a task that is asked for."""
VALUE: Final = 16_000
"""Of one value that is asked for, at a time."""

CALLS: Final = 6
"""Model calls and tool calls of a step at a time."""
MOST_FOUND: Final = 1_000
"""Hits that can be reached by paging."""

_MESSAGES: Final = (10, 3)
"""New messages of a call that are shown: when it is the only one of its step, else."""
_PICTURES: Final = 6
_STACKS: Final = 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_ID: Final = 64
_DIGITS: Final = 10  # a longer row of digits is an id of a step, not a number


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
        _one_of("status", status, STATUSES),
        _moment("since", since),
        _moment("until", until),
        agent,
        None if kind == "any" else _one_of("kind", kind, ("agent", "other")),
    )
    page, total = read(
        history,
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

    head, page = read(history, query)
    task = head.task

    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return _continued(value, most, f"task_id={task.task_id!r}, part={part!r}")

    return results.TaskDetail(
        **_of_task(task),
        goal=text(task.goal, "goal", GOAL),
        result=text(task.result, "result", GOAL),
        error=text(task.error, "error", GOAL),
        conversation_id=_named(task.conversation_id),
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
        goal=_text(task.goal, LINE, ask),
        steps=task.step_count,
        error=_text(task.error, LINE, ask),
    )


def _of_task(task: Task) -> dict[str, Any]:
    """What every answer says of a task."""
    return {
        "task_id": task.task_id,
        "agent": _named(task.agent),
        "kind": task.kind,
        "status": task.status,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "duration_ms": task.duration_ms,
        "model": _named(task.model),
        "used": _used(task),
    }


def _other(task: Task) -> results.OtherTask:
    ask = f"ask get_task with task_id={task.task_id!r}"
    return results.OtherTask(
        task_id=task.task_id, goal=_text(task.goal, LINE, ask), status=task.status
    )


def _step_line(history: TaskHistory, line: StepLine) -> results.StepLine:
    step = line.step
    ask = f"ask get_step with step={step.step_id!r}"
    return results.StepLine(
        **_of_step(step),
        said=_text(line.said or None, LINE, ask),
        tool=_named(step.tool_name),
        tool_arguments=_text(step.tool_arguments, LINE, ask),
        tool_calls=line.tools,
        error=_text(step.error, LINE, ask),
        picture=None if line.picture is None else _picture(history, line.picture),
    )


# --- steps --------------------------------------------------------------------------------------


def get_step(
    history: TaskHistory, task_id: str, step: int | str, first_call: int
) -> results.StepDetail:
    """A step, with its calls from `first_call` on."""
    view = read(history, lambda c: step_view(c, *_find_step(c, task_id, step)))
    found = view.step

    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return _continued(value, most, _part(found, part))

    calls = list(enumerate(view.calls, 1))[first_call - 1 :][:CALLS]
    tools = list(enumerate(view.tools, 1))[first_call - 1 :][:CALLS]
    more = max(len(view.calls), len(view.tools)) >= first_call + CALLS
    return results.StepDetail(
        task_id=found.task_id,
        **_of_step(found),
        ended_at=found.ended_at,
        model=_named(found.model),
        used=_used(found),
        result=text(found.result, "result", LONG),
        error=text(found.error, "error", LONG),
        model_calls=[_model_call(view, number, call) for number, call in calls],
        model_calls_total=len(view.calls),
        tool_calls=[_tool_call(found, number, call) for number, call in tools],
        tool_calls_total=len(view.tools),
        next_calls=f"ask get_step with step={found.step_id!r}, first_call={first_call + CALLS}"
        if more
        else None,
        pictures=[_picture(history, picture) for picture in view.pictures[:_PICTURES]],
        pictures_total=len(view.pictures),
        stack_traces=[
            _some(text(stack, f"stack_traces/{number}", LONG))
            for number, (_, stack) in enumerate(view.stacks[:_STACKS], 1)
        ],
        previous_step_id=view.previous,
        next_step_id=view.following,
    )


def _of_step(step: Step) -> dict[str, Any]:
    """What every answer says of a step."""
    return {
        "step": step.step_index,
        "step_id": step.step_id,
        "name": name(step.name),
        "agent": _named(step.agent),
        "status": step.status,
        "attempt": step.attempt,
        "started_at": step.started_at,
        "duration_ms": step.duration_ms,
    }


def _find_step(connection: Any, typed_task: str, step: int | str) -> tuple[str, str]:
    """(task id, step id) of a number or an id."""
    task_id = find_task(connection, typed_task)
    wanted = str(step).strip()
    if len(wanted) > _LONGEST_ID:
        raise TaskNotFound(f"no step has an id of {len(wanted):,} characters")
    if not (wanted.lstrip("-").isdecimal() and wanted.isascii() and len(wanted) < _DIGITS):
        return find_step(connection, wanted, task_id)
    number = int(wanted)
    page = step_list(connection, task_id, f"from:{number}.0", 4)
    same = [line.step for line in page.lines if line.step.step_index == number]
    if len(same) == 1:
        return task_id, same[0].step_id
    if same:
        ids = ", ".join(one.step_id for one in same)
        raise TaskNotFound(
            f"several steps of task {task_id} have the number {number}: ask by {ids}"
        )
    if page.total and len(wanted) >= 4:
        return find_step(connection, wanted, task_id)
    raise TaskNotFound(f"task {task_id} has no step {number}: it has {page.total} steps")


def _model_call(view: StepView, number: int, shown_call: CallView) -> results.ModelCall:
    call, prompt = shown_call.call, shown_call.prompt
    own = f"model_calls/{number}"
    most = _MESSAGES[0] if len(view.calls) == 1 else _MESSAGES[1]
    new = () if prompt is None else prompt.new[:most]
    whole_prompt, whole_decision = f"{own}/prompt", f"{own}/decision"
    return results.ModelCall(
        number=number,
        **_of_call(call),
        model=_named(call.model),
        attempt=call.attempt,
        used=_used(call),
        finish_reason=_named(call.finish_reason),
        error=_continued(call.error, LONG, _part(view.step, f"{own}/error")),
        prompt_messages=0 if prompt is None else prompt.total,
        new_messages=[
            _message(position, text, _part(view.step, f"{whole_prompt}/{position}"))
            for position, text in new
        ],
        new_messages_total=0 if prompt is None else prompt.new_total,
        removed_messages_total=0 if prompt is None else prompt.removed_total,
        decision=[
            _said(text, LONG, _part(view.step, f"{whole_decision}/{position}"))[1]
            for position, text in enumerate(shown_call.decision[:2], 1)
        ],
        whole_prompt=f"get_text with {_part(view.step, whole_prompt)}",
        whole_decision=f"get_text with {_part(view.step, whole_decision)}",
    )


def _tool_call(step: Step, number: int, call: ToolCall) -> results.ToolCall:
    def text(value: str | None, part: str, most: int) -> results.Text | None:
        return _continued(value, most, _part(step, f"tool_calls/{number}/{part}"))

    return results.ToolCall(
        number=number,
        name=name(call.name),
        call_id=_named(call.call_id),
        **_of_call(call),
        arguments=text(call.arguments, "arguments", SHORT),
        result=text(call.result, "result", LONG),
        error=text(call.error, "error", LONG),
    )


def _of_call(call: ModelCall | ToolCall) -> dict[str, Any]:
    return {"status": call.status, "duration_ms": call.duration_ms}


def _message(position: int, text: str, part: str) -> results.Message:
    role, said = _said(text, SHORT, part)
    return results.Message(position=position, role=role, text=said)


def _said(text: str, most: int, part: str) -> tuple[str, results.Text]:
    """(role, words) of a message; its JSON is another text, so the rest is asked for from 0."""
    message = read_message(text)
    words = "\n".join([*map(shown, message.parts), *([message.sent] if message.sent else [])])
    return name(message.role), _some(_text(words, most, f"whole: ask get_text with {part}"))


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
        own, step_id = _find_step(connection, task_id, step)
        read_step_value(connection, own, step_id, part, window)
        return own, step_id, window

    own, step_id, window = read(history, query)
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
    if not found.complete:
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
        field=hit.field,
        at=hit.at,
        times=hit.times,
        before=visible(hit.snippet[:start]),
        match=visible(hit.snippet[start:end]),
        after=visible(hit.snippet[end:]),
        value_characters=hit.value_length,
    )


# --- parts of answers ---------------------------------------------------------------------------


def _text(value: str | None, most: int, ask: str) -> results.Text | None:
    if value is None:
        return None
    beginning = piece(value, most)
    return results.Text(text=beginning.text, truncated=beginning.note(ask))


def _continued(value: str | None, most: int, part: str) -> results.Text | None:
    """A text whose rest is asked for where it was cut."""
    if value is None:
        return None
    beginning = piece(value, most)
    ask = f"ask get_text with {part}, offset={beginning.characters}"
    return results.Text(text=beginning.text, truncated=beginning.note(ask))


def _some(text: results.Text | None) -> results.Text:
    return results.Text(text="") if text is None else text


def _part(step: Step, part: str) -> str:
    return f"task_id={step.task_id!r}, step={step.step_id!r}, part={part!r}"


def _named(text: str | None) -> str | None:
    return None if text is None else name(text)


def _used(row: Task | Step | ModelCall) -> results.Used:
    return results.Used(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_tokens=row.cached_tokens,
        reasoning_tokens=row.reasoning_tokens,
        cost=row.cost,
    )


def _picture(history: TaskHistory, picture: Screenshot) -> results.Picture:
    file = None
    if picture.path is not None:
        try:
            file = str(history.artifact(picture.path))
        except ValueError:  # not one of ours: a path that came with an imported span
            file = None
    return results.Picture(
        role=picture.role,
        sha256=name(picture.sha256),
        file=file,
        media_type=name(picture.media_type),
        width=picture.width,
        height=picture.height,
        bytes=picture.bytes,
        caption=_named(picture.caption),
        status=picture.status,
    )


# --- arguments ----------------------------------------------------------------------------------


def _one_of(what: str, value: str | None, known: Sequence[str]) -> str | None:
    if value is not None and value not in known:
        raise bad_value(what, value, "is not known", f"use one of {', '.join(known)}")
    return value


def _moment(what: str, text: str | None) -> int | None:
    """A time as ns since 1970: ISO 8601 (UTC unless it says a zone), or how long ago."""
    if text is None:
        return None
    moment: datetime | None = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text.strip())
    try:
        if moment is None:
            moment = datetime.now(UTC) - parse_duration(text)
    except (SettingsError, OverflowError):
        raise bad_value(
            what, text, "is no time", "use e.g. 2026-11-30, 2026-11-30T13:00:00Z, or 90m, 2h, 30d"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(max(ns, 0), LATEST_NS)
