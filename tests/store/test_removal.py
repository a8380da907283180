# SPDX-License-Identifier: Apache-2.0
"""A task goes whole, and with it what nothing else uses; everything else stays as it was."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.spans.record import EventRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.removal import in_use, references
from otel_taskhistory.store.unlinks import GRACE_NS, undeletable
from tests.store.deliveries import (
    agent,
    message,
    model,
    own_step,
    own_task,
    picture_part,
    png,
    public,
    tool,
    write,
)
from tests.store.keeping import (
    SECOND,
    age_files,
    ask,
    check_whole,
    execute,
    files,
    keeper,
    kept,
    left,
    limits,
    other_spans,
    record,
    shot,
    store,
    task_spans,
    trace_id,
    work,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def remove(directory: Path, number: int) -> None:
    """Remove the task with this number, to the end."""
    with keeper(directory) as retainer:
        retainer.remove(trace_id(number))
        work(retainer)


def picture_message(data: bytes) -> dict[str, Any]:
    """A message with a picture in it."""
    return {"role": "user", "parts": [picture_part(data)]}


def every_kind_of_task(directory: Path) -> int:
    """A history with all that a task may consist of; returns how many tasks it has."""
    with store(directory) as writer:
        picture = png(1, 900)
        write(writer, task_spans(1, steps=3, shots=(shot(writer, picture),)))
        shown = [message("look"), picture_message(png(2, 900)), message("and this " * 99)]
        same: dict[str, Any] = {"trace_id": trace_id(2)}
        step = own_step(2, prompt=shown, decision=[picture_message(png(3))], index=1, **same)
        write(writer, [own_task(1, end=9, **same), step])
        # Of another instrumentation: twin spans of one call, a tool, an agent within an agent.
        same = {"trace_id": trace_id(3)}
        asked = [message("what is the weather? " * 30)]
        write(
            writer,
            [
                agent(1, None, end=9, **same),
                model(2, 1, prompt=asked, **same),
                model(3, 2, prompt=asked, **same),
                tool(4, 1, **same),
                agent(5, 1, "inner", **same),
                model(6, 5, prompt=[*asked, picture_message(picture)], **same),
            ],
        )
        write(writer, other_spans(4))
        # A running snapshot that another version replaced later.
        same = {"trace_id": trace_id(5)}
        for end, words in ((None, "first " * 90), (3, "other " * 99)):
            write(
                writer,
                [
                    own_task(1, end=end, **same),
                    own_step(2, prompt=[message(words)], index=1, end=end, **same),
                ],
            )
    age_files(directory)
    return 5


def test_nothing_is_left_of_a_history_whose_tasks_have_all_gone(directory: Path) -> None:
    """Not one row, whatever the tasks consisted of, and no file."""
    tasks = every_kind_of_task(directory)
    for number in range(1, tasks + 1):
        remove(directory, number)
        check_whole(directory)
    assert left(directory) == {}
    assert files(directory) == set()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_all_others_stay_word_for_word(directory: Path, number: int) -> None:
    """Every public table says of the others what it said before."""
    every_kind_of_task(directory)

    def rows() -> dict[str, list[str]]:
        mine = trace_id(number)
        found = public(directory / "history.db")
        return {
            table: [row for row in some if mine not in row and owner(table, row) != mine]
            for table, some in found.items()
        }

    def owner(table: str, row: str) -> Any:
        return json.loads(row).get("trace_id" if table == "spans" else "task_id")

    before = rows()
    remove(directory, number)
    assert rows() == before
    assert number not in kept(directory)
    timeline = ask(directory, "SELECT count(*) FROM timeline WHERE task_id = ?", trace_id(number))
    assert timeline == [0]


def test_what_two_tasks_share_goes_with_the_second(directory: Path) -> None:
    """The same screenshot, the same system prompt: removing one task leaves the other whole."""
    with store(directory) as writer:
        picture = png(7, 4000)
        for number in (1, 2):
            write(writer, task_spans(number, steps=2, shots=(shot(writer, picture),)))
    age_files(directory)
    path = ask(directory, "SELECT path FROM _artifacts")[0]
    whole = ask(directory, "SELECT prompt, decision FROM steps WHERE task_id = ?", trace_id(2))
    remove(directory, 1)
    assert ask(directory, "SELECT prompt, decision FROM steps") == whole
    assert ask(directory, "SELECT path FROM screenshots") == [path]
    assert files(directory) == {path}
    check_whole(directory)
    remove(directory, 2)
    assert files(directory) == set()
    assert left(directory) == {}


def test_a_picture_that_is_in_a_prompt_stays_with_the_prompt(directory: Path) -> None:
    """It was a screenshot of one task and was shown to the model by another."""
    picture = png(9, 3000)
    with store(directory) as writer:
        write(writer, task_spans(1, shots=(shot(writer, picture),)))
        same: dict[str, Any] = {"trace_id": trace_id(2)}
        step = own_step(2, prompt=[picture_message(picture)], index=1, **same)
        write(writer, [own_task(1, end=9, **same), step])
    age_files(directory)
    remove(directory, 1)
    check_whole(directory)
    assert len(files(directory)) == 1
    remove(directory, 2)
    assert files(directory) == set()


def test_a_large_task_goes_in_steps_and_is_never_half_there(directory: Path) -> None:
    """The first step takes it out of every public table, the others a bounded number of rows."""
    with store(directory) as writer:
        spans = task_spans(1, steps=250, shots=(shot(writer, png(1, 500)),))
        for start in range(0, len(spans), 100):
            write(writer, spans[start : start + 100])
        write(writer, task_spans(2))
    age_files(directory)
    mine = trace_id(1)
    counts = "SELECT (SELECT count(*) FROM _spans), (SELECT count(*) FROM _nodes)"
    with keeper(directory, limits(max_tasks=1)) as retainer:
        sizes = [ask(directory, counts)[0]]
        more = True
        while more:
            more = retainer.step(rows=60).more
            sizes.append(ask(directory, counts)[0])
            assert kept(directory) == [2]
            for table in ("steps", "model_calls", "tool_calls", "screenshots", "timeline"):
                sql = f"SELECT count(*) FROM {table} WHERE task_id IS NOT ? AND task_id IS NOT NULL"
                assert ask(directory, sql, trace_id(2)) == [0], table
            assert ask(directory, "SELECT DISTINCT trace_id FROM spans") == [trace_id(2)]
            for table in ("model_calls", "tool_calls"):
                assert ask(directory, f"SELECT 1 FROM {table} WHERE task_id IS NULL") == []
    steps = [(one[0] - two[0], one[1] - two[1]) for one, two in pairwise(sizes)]
    assert len(steps) > 10
    assert max(spans for spans, _ in steps) <= 60
    assert max(nodes for _, nodes in steps) <= 200
    check_whole(directory)
    assert mine not in json.dumps(public(directory / "history.db"))


def test_one_very_long_prompt_goes_in_steps_too(directory: Path) -> None:
    """Its messages wait until they are looked at; a message that is used again meanwhile stays."""
    long = [SYSTEM_LINE, *(message(f"line {n}") for n in range(3000))]
    same: dict[str, Any] = {"trace_id": trace_id(1)}
    with store(directory) as writer:
        write(writer, [own_task(1, end=9, **same), own_step(2, prompt=long, index=1, **same)])
        write(writer, task_spans(2))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        assert retainer.step(rows=100).more
        assert ask(directory, "SELECT count(*) FROM _loose_nodes") == [1]
        with store(directory) as writer:  # the first 1,000 lines are sent again
            same = {"trace_id": trace_id(3)}
            again = own_step(2, prompt=long[:1001], index=1, end=None, **same)
            write(writer, [own_task(1, end=None, **same), again])
            writer.flush(30)
        work(retainer)
    check_whole(directory)
    prompt = json.loads(
        ask(directory, "SELECT prompt FROM steps WHERE task_id = ?", trace_id(3))[0]
    )
    assert prompt == long[:1001]
    assert ask(directory, "SELECT count(*) FROM _loose_nodes") == [0]


SYSTEM_LINE = message("be brief", "system")


def test_a_wrong_deletion_fails_loudly(directory: Path) -> None:
    """Foreign keys are on: a row that is in use cannot go, nor the owner of rows."""
    record(directory, range(1, 3))
    with keeper(directory) as retainer:
        connection = retainer._connection
        for table in ("_contents", "_nodes", "_spans", "_traces", "_owners", "_steps"):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(f"DELETE FROM {table}")


def test_a_task_that_cannot_be_removed_is_told_of_and_passed_over(directory: Path) -> None:
    """A table that a plugin or a later version added refers to it: the others still go."""
    record(directory, range(1, 6))
    execute(directory, "CREATE TABLE theirs (span INTEGER REFERENCES _spans(id))")
    execute(
        directory,
        "INSERT INTO theirs SELECT own.id FROM _spans AS own JOIN tasks ON tasks.id = own.task"
        " WHERE task_id = ? LIMIT 1",
        trace_id(1),
    )
    problems: list[Exception] = []
    with keeper(directory, limits(max_tasks=2), problem=problems.append) as retainer:
        work(retainer)
        assert len(problems) == 1
        assert not retainer.step().more
        assert kept(directory) == [4, 5]
        # It is out of sight, and its rows go as soon as nothing refers to them any more.
        execute(directory, "DELETE FROM theirs")
    with keeper(directory, limits(max_tasks=2)) as retainer:
        work(retainer)
    check_whole(directory)


def test_every_reference_is_looked_up_by_an_index(directory: Path) -> None:
    """Whether a content, message or file is in use costs a few look-ups, whatever there is."""
    record(directory, range(1, 3))
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        for table in ("_contents", "_nodes", "_artifacts"):
            refers = references(connection, table)
            assert len(refers) >= 2
            plan = connection.execute(f"EXPLAIN QUERY PLAN {in_use(refers)}", {"row": 1}).fetchall()
            scans = [row[3] for row in plan if row[3].startswith("SCAN ")]
            assert scans == ["SCAN CONSTANT ROW"], table


def test_every_foreign_key_to_a_row_that_goes_has_an_index(directory: Path) -> None:
    """SQLite looks through each of them when such a row is deleted."""
    record(directory, range(1, 2))
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            keys = connection.execute(f"SELECT * FROM pragma_foreign_key_list('{table}')")
            for key in keys.fetchall():
                column = key[3]
                plan = connection.execute(
                    f"EXPLAIN QUERY PLAN SELECT 1 FROM {table} WHERE {column} = 1"
                ).fetchall()
                assert "SCAN" not in plan[0][3], (table, column)


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_rows_stay_true_whatever_happens(directory: Path, seed: int) -> None:
    """Tasks that come, grow, end, are pinned, removed and pruned, in any order."""
    chance = random.Random(seed)
    alive: set[int] = set()
    shots: dict[int, tuple[EventRecord, ...]] = {}
    number = 0
    for _ in range(25):
        action = chance.choice(("new", "new", "other", "grow", "pin", "remove", "prune"))
        known = chance.choice(sorted(alive)) if alive else 0
        if action in ("new", "other") or not known:
            number += 1
            alive.add(number)
            with store(directory) as writer:
                if action == "other":
                    write(writer, other_spans(number))
                    continue
                shots[number] = (shot(writer, png(chance.randrange(4), 300)),)
                steps = chance.randrange(1, 4)
                write(writer, task_spans(number, steps=steps, shots=shots[number], ended=False))
        elif action == "grow":
            with store(directory) as writer:
                steps = chance.randrange(1, 4)
                write(writer, task_spans(known, steps=steps, shots=shots.get(known, ())))
        elif action == "pin":
            pinned = chance.randrange(2)
            execute(
                directory, "UPDATE tasks SET pinned = ? WHERE task_id = ?", pinned, trace_id(known)
            )
        else:
            age_files(directory)
            with keeper(directory, limits(max_tasks=chance.randrange(1, 5))) as retainer:
                work(retainer)
            alive = set(kept(directory))
            check_whole(directory)
    age_files(directory)
    execute(directory, "UPDATE tasks SET pinned = 0, status = 'failed'")
    with keeper(directory, limits(max_age=1), clock=lambda: time.time_ns() + 9**12) as retainer:
        work(retainer)
    assert left(directory) == {}
    assert files(directory) == set()


# --- files ---------------------------------------------------------------------------------------


def one_picture(directory: Path, number: int = 1) -> str:
    """A history of one task with a screenshot; returns the path of its file."""
    with store(directory) as writer:
        write(writer, task_spans(number, shots=(shot(writer, png(number, 700)),)))
    age_files(directory)
    return str(ask(directory, "SELECT path FROM _artifacts")[0])


def test_a_file_goes_after_the_commit_that_deletes_its_row(directory: Path) -> None:
    """In between it is noted, so that a crash there is made good."""
    path = one_picture(directory)
    with keeper(directory) as retainer:
        retainer.remove(trace_id(1))
        assert ask(directory, "SELECT count(*) FROM _artifacts") == [0]
        assert ask(directory, "SELECT path FROM _unlinks") == [path]
        assert files(directory) == {path}
        retainer.step()
        assert files(directory) == set()
        assert ask(directory, "SELECT count(*) FROM _unlinks") == [0]


def test_a_picture_stored_again_meanwhile_stays(directory: Path) -> None:
    """Its row is deleted, its file about to go, when another task shows the same picture."""
    path = one_picture(directory)
    with keeper(directory) as retainer:
        retainer.remove(trace_id(1))
        with store(directory) as writer:
            write(writer, task_spans(2, shots=(shot(writer, png(1, 700)),)))
        work(retainer)
    assert files(directory) == {path}
    check_whole(directory)


def test_a_picture_whose_row_is_still_to_come_stays(directory: Path) -> None:
    """The file first, its row later: it was touched, so it is not the one that was to go."""
    path = one_picture(directory)
    with keeper(directory) as retainer:
        retainer.remove(trace_id(1))
        with store(directory) as writer:
            event = shot(writer, png(1, 700))
            work(retainer)
            assert files(directory) == {path}
            write(writer, task_spans(2, shots=(event,)))
        work(retainer)
    assert files(directory) == {path}
    assert ask(directory, "SELECT path, status FROM screenshots") == [(path, "ok")]


def test_a_picture_whose_row_never_comes_goes_later(directory: Path) -> None:
    """Its writer was killed: after ten minutes nobody waits for it any more."""
    one_picture(directory)
    now = time.time_ns()
    later = [now]
    with keeper(directory, clock=lambda: later[0]) as retainer:
        retainer.remove(trace_id(1))
        ArtifactFolder(directory / "artifacts").put(png(1, 700), "png")
        work(retainer)
        assert len(files(directory)) == 1
        later[0] = now + GRACE_NS + 10 * SECOND
        work(retainer)
    assert files(directory) == set()


def test_a_file_that_was_touched_this_very_moment_waits_for_the_clock(directory: Path) -> None:
    """Two touches within one tick of the file system look the same: it is tried a tick later."""
    path = one_picture(directory)
    now = time.time_ns()
    os.utime(directory / "artifacts" / path, ns=(now, now + 1))
    with keeper(directory, clock=lambda: now) as retainer:
        retainer.remove(trace_id(1))
        work(retainer)
        assert files(directory) == {path}
    with keeper(directory, clock=lambda: now + 3 * SECOND) as retainer:
        work(retainer)
    assert files(directory) == set()


def test_a_missing_file_is_passed_over(directory: Path) -> None:
    """Somebody deleted half of the files by hand; the tasks go all the same."""
    with store(directory) as writer:
        for number in range(1, 7):
            write(writer, task_spans(number, shots=(shot(writer, png(number, 99)),)))
    age_files(directory)
    for path in sorted(files(directory))[:3]:
        (directory / "artifacts" / path).unlink()
    with keeper(directory, limits(max_tasks=1)) as retainer:
        assert work(retainer).tasks == 5
        retainer.remove(trace_id(6))
        work(retainer)
    assert left(directory) == {}
    assert files(directory) == set()


def test_a_file_that_cannot_be_removed_is_tried_again_later(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is gone all the same; what is in the way is told, and each time it waits longer."""
    path = one_picture(directory)
    now = time.time_ns()
    later = [now]
    tried: list[str] = []

    def busy(self: ArtifactFolder, relative: str) -> bool:
        tried.append(relative)
        raise PermissionError(13, "is used by another program")

    with keeper(directory, clock=lambda: later[0]) as retainer:
        with monkeypatch.context() as patched:
            patched.setattr(ArtifactFolder, "remove", busy)
            retainer.remove(trace_id(1))
            assert not retainer.step().more
            assert not retainer.step().more
            assert tried == [path]
            (found,) = undeletable(retainer._connection)
            assert (found.path, found.failures) == (path, 1)
            assert "used by another program" in found.error
            later[0] = found.next_ns
            retainer.step()
            (found,) = undeletable(retainer._connection)
            assert found.failures == 2
            assert found.next_ns - later[0] > SECOND
        later[0] = found.next_ns
        retainer.step()
        assert undeletable(retainer._connection) == []
    assert files(directory) == set()


@pytest.mark.parametrize(
    "path",
    ["notes.txt", "ab/notes.txt", "ab/" + "c" * 64 + ".png", "cd/sub/x.png", "ab/ab.png"],
)
def test_foreign_files_are_never_touched(directory: Path, path: str) -> None:
    """However old they are, and however everything around them goes."""
    one_picture(directory)
    foreign = directory / "artifacts" / path
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text("mine")
    os.utime(foreign, (1, 1))
    with keeper(directory) as retainer:
        retainer.remove(trace_id(1))
        work(retainer)
        while retainer.rest():
            pass
        work(retainer)
    assert foreign.read_text() == "mine"


def test_a_row_that_names_a_foreign_place_removes_nothing(directory: Path, tmp_path: Path) -> None:
    """A path that was changed by hand is not followed."""
    one_picture(directory)
    victim = tmp_path / "precious.png"
    victim.write_text("mine")
    execute(directory, "UPDATE _artifacts SET path = '../../precious.png'")
    with keeper(directory) as retainer:
        retainer.remove(trace_id(1))
        work(retainer)
    assert victim.read_text() == "mine"


def test_files_that_no_row_knows_go_after_ten_minutes(directory: Path) -> None:
    """A crash between file and row leaves them; one that was just written is left alone."""
    record(directory, range(1, 2))
    folder = ArtifactFolder(directory / "artifacts")
    old, new = folder.put(b"old", "bin").path, folder.put(b"new", "bin").path
    left_over = directory / "artifacts" / old[:2] / f"taskhistory-{'0' * 32}.tmp"
    left_over.write_bytes(b"half a file")
    later = time.time_ns() + GRACE_NS + SECOND
    os.utime(directory / "artifacts" / new, ns=(later, later))
    now = [time.time_ns()]
    with keeper(directory, clock=lambda: now[0]) as retainer:
        now[0] = later
        while retainer.rest():
            pass
        work(retainer)
    assert files(directory) == {new}
    assert not left_over.exists()


def test_rows_that_nothing_needs_are_found_within_a_day(directory: Path) -> None:
    """Whatever left them: they are looked for once a day, a few at a time."""
    record(directory, range(1, 3))
    for number in range(3):
        execute(
            directory,
            "INSERT INTO _contents (hash, template, pictures, text) VALUES (?, 0, 0, 'x')",
            number.to_bytes(4, "big"),
        )
    execute(
        directory,
        "INSERT INTO _nodes (content, length, pictures) SELECT max(id), 1, 0 FROM _contents",
    )
    execute(
        directory,
        "INSERT INTO _artifacts (sha256, path, media_type, bytes, status)"
        " VALUES ('aa', 'aa/aa.png', 'image/png', 9, 'ok')",
    )
    now = time.time_ns()
    later = [now]
    with keeper(directory, clock=lambda: later[0]) as retainer:
        now += 25 * 3600 * SECOND
        later[0] = now
        while retainer.rest():
            pass
        check_whole(directory)
        execute(
            directory,
            "INSERT INTO _contents (hash, template, pictures, text) VALUES (x'00', 0, 0, 'x')",
        )
        later[0] = now + 3600 * SECOND
        while retainer.rest():
            pass
        assert ask(directory, "SELECT count(*) FROM _contents WHERE hash = x'00'") == [1]
        later[0] = now + 25 * 3600 * SECOND
        while retainer.rest():
            pass
    check_whole(directory)
