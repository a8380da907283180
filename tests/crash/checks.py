# SPDX-License-Identifier: Apache-2.0
"""What must hold of a history whose agent was killed, checked through its public tables."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_taskhistory import TaskHistory, TaskHistoryError
from tests.crash.reports import Seen, SeenStep
from tests.crash.scripted import Place, picture, sha256, stored

INTERRUPTED_IS_MARKED: Final = True
"""Whether what dead processes left running is ``interrupted`` after the next writer has opened."""

ORPHANS_ARE_SWEPT: Final = True
"""Whether files that no row knows are removed when they are older than `GRACE_SECONDS`."""

GRACE_SECONDS: Final = 600

CHECKPOINTS_WAIT: Final = False
"""Whether a checkpoint returns after its commit also when another commit is in progress.

The contract lets it go with the next group then, so that a kill within these milliseconds loses
it; how many that were is in the summary."""

_TABLES: Final = ("tasks", "steps", "tool_calls", "model_calls")
_FINAL: Final = {"succeeded", "failed", "cancelled", "interrupted"}


class Broken(AssertionError):
    """A promise of the history does not hold."""


def hold(condition: object, *message: object) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(" ".join(map(str, message)))


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """The database of a history as any program opens it to read."""
    uri = f"{(directory / 'history.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


@dataclass(slots=True)
class Checker:
    """Checks one history again and again while it grows."""

    directory: Path
    begun: bool = False
    """Some agent has said that it opened the history."""
    ended: dict[str, str] = field(default_factory=dict)
    """By id of each step whose end has returned: the digest of what the history tells of it."""
    hashed: set[str] = field(default_factory=set)
    """Files whose content was right; cleared to look at all of them again."""
    running: set[tuple[str, str]] = field(default_factory=set)
    """Running rows, table and id, as the last check found them."""
    left_running: int = 0
    """Rows of dead processes that stayed ``running`` after another one had opened the history."""
    interrupted: int = 0
    orphans: int = 0
    late: int = 0
    """Checkpoints that had returned and are not there: they waited for a commit in progress."""

    def check(self, seen: Seen) -> None:
        """Raise `Broken` unless all holds, after the process that reported `seen` is dead.

        Raises:
            Broken: something does not hold.
        """
        self.begun |= seen.open
        if not self.begun:
            return  # killed while it made the history: the next one must be able to
        try:
            with TaskHistory(self.directory) as history:
                history.tasks(limit=5)
            with reading(self.directory) as database:
                self._sound(database)
                self._told(database, seen)
                self._statuses(database, seen)
                self._files(database, seen)
        except (TaskHistoryError, sqlite3.Error, OSError, ValueError, LookupError) as error:
            raise Broken(f"the history cannot be read: {error!r}") from error

    def check_all(self) -> None:
        """Look at every step that ever ended, and every file, once more."""
        self.hashed.clear()
        with reading(self.directory) as database:
            found = {
                step["step_id"]: _digest(step, _parts(database, step))
                for step in database.execute("SELECT * FROM steps")
                if step["step_id"] in self.ended
            }
            hold(found.keys() == self.ended.keys(), "steps that had ended are gone:", found.keys())
            changed = [step for step, digest in found.items() if digest != self.ended[step]]
            hold(not changed, "steps that had ended have changed since:", changed)
            self._rows_have_files(database)

    def _sound(self, database: sqlite3.Connection) -> None:
        verdict = [row[0] for row in database.execute("PRAGMA integrity_check")]
        hold(verdict == ["ok"], "integrity_check:", verdict)
        dangling = [tuple(row) for row in database.execute("PRAGMA foreign_key_check")]
        hold(not dangling, "foreign_key_check:", dangling)

    # --- what was told ---

    def _told(self, database: sqlite3.Connection, seen: Seen) -> None:
        steps = _by_id(database, "steps", "step_id", seen)
        shots = _many(database, "screenshots", seen)
        calls = _many(database, "tool_calls", seen)
        tasks = _by_id(database, "tasks", "task_id", seen)
        for step in seen.steps:
            row = steps.get(step.step_id)
            visible = _visible(row, calls.get(step.step_id, []), shots.get(step.step_id, []))
            _check_order(step, visible)
            self.late += sum(
                step.returned.count(kind) > visible.get(kind, 0) for kind in set(step.returned)
            )
            missing = step.confirmed - visible.keys()
            hold(not missing, step.place.name, "lacks what had returned:", missing)
            hold(
                visible.get("shot", 0) >= step.confirmed_shots,
                step.place.name,
                "lacks screenshots that had returned",
            )
            if row is not None:
                _check_values(step.place, row, calls.get(step.step_id, []))
            if step.tool_ended:
                call = calls[step.step_id][0]
                hold(call["status"] == "succeeded", "a tool call that had ended:", dict(call))
                hold(call["result"] == step.place.tool_result, "its result:", dict(call))
            if step.ended:
                assert row is not None
                _check_ended(step, row, shots.get(step.step_id, []), database)
                self.ended[step.step_id] = _digest(row, _parts(database, row))
        for task_id, ended in seen.tasks.items():
            row = tasks.get(task_id)
            count = sum(step["task_id"] == task_id for step in steps.values())
            hold(row is None or row["step_count"] == count, "step_count of", row and dict(row))
            if ended:
                hold(row is not None and row["status"] == "succeeded", "ended task", task_id)

    # --- statuses ---

    def _statuses(self, database: sqlite3.Connection, seen: Seen) -> None:
        running: set[tuple[str, str]] = set()
        for table, key in (("tasks", "task_id"), ("steps", "step_id"), ("tool_calls", "span_id")):
            rows = database.execute(f"SELECT {key}, status FROM {table} WHERE status = 'running'")
            running |= {(table, row[0]) for row in rows}
        strange = {
            (table, row[0])
            for table in _TABLES
            for row in database.execute(f"SELECT DISTINCT status FROM {table}")
            if row[0] not in _FINAL | {"running"}
        }
        hold(not strange, "statuses that do not exist:", strange)
        if seen.open:
            left = running & self.running
            self.left_running = len(left)
            if INTERRUPTED_IS_MARKED:
                hold(not left, "still running after another process has opened:", left)
        if seen.closed and INTERRUPTED_IS_MARKED:
            hold(not running, "running after all ended and the history was closed:", running)
        self.running = running
        self.interrupted = database.execute(
            "SELECT count(*) FROM steps WHERE status = 'interrupted'"
        ).fetchone()[0]

    # --- files ---

    def _files(self, database: sqlite3.Connection, seen: Seen) -> None:
        for step in seen.steps:
            for number in step.shots:
                self._check_file(sha256(picture(number)), None)
        known = self._rows_have_files(database)
        artifacts = self.directory / "artifacts"
        there = {path.relative_to(artifacts).as_posix() for path in artifacts.glob("??/*")}
        orphans = there - known
        self.orphans = len(orphans)
        # What was left by a process that died when the grace time was over long ago.
        old = [name for name in orphans if _age(artifacts / name) > GRACE_SECONDS]
        if ORPHANS_ARE_SWEPT and seen.closed:
            hold(not old, "files without rows, older than the grace time:", old)

    def make_orphans_old(self) -> None:
        """As if the grace time of all files that no row knows were over."""
        with reading(self.directory) as database:
            known = self._rows_have_files(database)
        artifacts = self.directory / "artifacts"
        long_ago = time.time() - 2 * GRACE_SECONDS
        for path in artifacts.glob("??/*"):
            if path.relative_to(artifacts).as_posix() not in known:
                os.utime(path, (long_ago, long_ago))

    def _rows_have_files(self, database: sqlite3.Connection) -> set[str]:
        rows = database.execute("SELECT DISTINCT sha256, path, status FROM screenshots").fetchall()
        for row in rows:
            hold(row["status"] == "ok", "a picture's status:", dict(row))
            self._check_file(row["sha256"], row["path"])
        return {row["path"] for row in rows}

    def _check_file(self, digest: str, path: str | None) -> None:
        expected = _path(digest)
        hold(path in (None, expected), "a row names another file:", path)
        if digest in self.hashed:
            return
        file = self.directory / "artifacts" / expected
        hold(file.is_file(), "no file", expected)
        hold(sha256(file.read_bytes()) == digest, "another content in", expected)
        self.hashed.add(digest)


def _path(digest: str) -> str:
    return f"{digest[:2]}/{digest}.png"


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _by_id(
    database: sqlite3.Connection, table: str, key: str, seen: Seen
) -> dict[str, sqlite3.Row]:
    rows = [row for task in seen.tasks for row in _of_task(database, table, task)]
    found = {row[key]: row for row in rows}
    hold(len(found) == len(rows), f"an id is twice in {table}")
    return found


def _many(database: sqlite3.Connection, table: str, seen: Seen) -> dict[str, list[sqlite3.Row]]:
    found: dict[str, list[sqlite3.Row]] = {}
    for task in seen.tasks:
        for row in _of_task(database, table, task):
            found.setdefault(row["step_id"], []).append(row)
    return found


def _of_task(database: sqlite3.Connection, table: str, task: str) -> list[sqlite3.Row]:
    order = {"screenshots": "ORDER BY rowid", "tool_calls": "ORDER BY started_at"}.get(table, "")
    return database.execute(f"SELECT * FROM {table} WHERE task_id = ? {order}", (task,)).fetchall()


def _parts(database: sqlite3.Connection, step: sqlite3.Row) -> list[sqlite3.Row]:
    which = (step["task_id"], step["step_id"])
    return [
        row
        for table in ("tool_calls", "model_calls")
        for row in database.execute(
            f"SELECT * FROM {table} WHERE task_id = ? AND step_id = ?", which
        )
    ] + database.execute(
        "SELECT role, sha256, path, status FROM screenshots WHERE task_id = ? AND step_id = ?"
        " ORDER BY captured_at, role, sha256",
        which,
    ).fetchall()


def _digest(step: sqlite3.Row, parts: list[sqlite3.Row]) -> str:
    rows = [dict(step), *map(dict, parts)]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _visible(
    row: sqlite3.Row | None, calls: list[sqlite3.Row], shots: list[sqlite3.Row]
) -> dict[str, int]:
    """Which checkpoints of a step the history shows, and how many of each."""
    if row is None:
        return {}
    taken = sum(shot["role"] == "screenshot" for shot in shots)
    counts = {
        "step": 1,
        "prompt": int(row["prompt"] is not None),
        "decision": int(row["decision"] is not None),
        "tool": len(calls),
        "shot": taken,
    }
    return {kind: count for kind, count in counts.items() if count}


def _check_order(step: SeenStep, visible: dict[str, int]) -> None:
    """What a thread says later is never there without what it said before."""
    kinds = ("step", "prompt", "decision", "tool", "shot")
    there = [kind in visible for kind in kinds]
    hold(there == sorted(there, reverse=True), step.place.name, "has gaps:", visible)


def _check_values(place: Place, row: sqlite3.Row, calls: list[sqlite3.Row]) -> None:
    """Nothing is half there: what is to be seen of a step is whole, whether or not it ended."""
    hold(row["name"] == place.name and row["step_index"] == place.step + 1, "mixed up:", place)
    if row["prompt"] is not None:
        hold(stored(row["prompt"]) == place.sent(), "the prompt of", place.name)
    hold(row["decision"] in (None, place.decision), "the decision of", place.name)
    hold(row["result"] in (None, place.result), "the result of", place.name)
    hold(len(calls) <= 1, "tool calls of", place.name, len(calls))
    for call in calls:
        hold(json.loads(call["arguments"]) == place.arguments, "arguments in", place.name)
        hold(call["call_id"] == f"call-{place.name}", "the id of the tool call in", place.name)
        hold(call["result"] in (None, place.tool_result), "the tool result in", place.name)


def _check_ended(
    step: SeenStep, row: sqlite3.Row, shots: list[sqlite3.Row], database: sqlite3.Connection
) -> None:
    """A step whose end had returned is complete."""
    place = step.place
    wanted: dict[str, Any] = {
        "status": place.status,
        "decision": place.decision,
        "result": place.result,
        "model": "model-1",
        "tool_name": "browser.click",
        "tool_result": place.tool_result,
        "input_tokens": 10,
        "output_tokens": 2,
        "agent": f"agent-{place.thread}",
    }
    found = {name: row[name] for name in wanted}
    hold(found == wanted, place.name, "had ended, but is", found)
    hold(row["prompt"] is not None and row["ended_at"] is not None, place.name, "is not whole")
    hold(json.loads(row["tool_arguments"]) == place.arguments, "arguments of", place.name)
    taken = [shot["sha256"] for shot in shots if shot["role"] == "screenshot"]
    hold(
        sorted(taken) == sorted(sha256(picture(number)) for number in place.screenshots),
        place.name,
        "has other screenshots:",
        taken,
    )
    last = _path(sha256(picture(place.screenshots[-1]))) if place.screenshots else None
    hold(row["screenshot"] == last, place.name, "has as its last screenshot", row["screenshot"])
    events = [
        event[0]
        for event in database.execute(
            "SELECT event FROM timeline WHERE task_id = ? AND step_id = ? ORDER BY seq",
            (step.task_id, step.step_id),
        )
    ]
    hold(
        events.count("step.started") == 1
        and events.count("step.ended") == 1
        and events[0] == "step.started"
        and events[-1] == "step.ended",
        place.name,
        "has the timeline",
        events,
    )
