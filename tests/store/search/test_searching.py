# SPDX-License-Identifier: Apache-2.0
"""Full text over a history: each value once, wherever it stands, as it comes and as it goes."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from otel_taskhistory.store.retainer import WAITING
from otel_taskhistory.store.search import index
from otel_taskhistory.store.search.documents import OVERLAP, PART
from otel_taskhistory.store.search.snippets import AROUND, LONGEST, snippet
from otel_taskhistory.store.search.words import is_dense, parse


@contextmanager
def recording(directory: Path) -> Iterator[TaskTracer]:
    """A tracer on a history that is closed at the end."""
    exporter = TaskHistoryExporter(directory)
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    yield TaskTracer(provider, exporter=exporter)
    provider.shutdown()
    assert exporter.stats()["errors"] == {}


def conversation(tasks: TaskTracer, steps: int, *, words: str = "turn") -> str:
    """A task whose every step sends the whole conversation again; its id."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are the desk agent."}]
    with tasks.task("Book a table at Café Müller", agent="desk") as task:
        for number in range(steps):
            with task.step(f"look {number}") as step:
                messages.append({"role": "user", "content": f"{words} number{number}"})
                step.prompt(list(messages))
                answer = {"role": "assistant", "content": f"answer number{number}"}
                step.decision(answer)
                with step.tool_call("browser.click", {"selector": f"#go{number}"}) as call:
                    call.result(f"clicked {number} " + "lorem ipsum " * 40)
                messages += [answer, {"role": "tool", "content": f"result{number}"}]
        task.result("booked for eight")
        return task.id


def waiting(directory: Path) -> int:
    """Rows that wait to be indexed."""
    with closing(sqlite3.connect(directory / "history.db")) as connection, connection:
        count: int = connection.execute("SELECT count(*) FROM _unindexed").fetchone()[0]
    connection.close()
    return count


def test_a_message_that_was_sent_again_is_one_hit(tmp_path: Path) -> None:
    """It names the step to which it came first, the record that tells of it, and how often."""
    with recording(tmp_path) as tasks:
        task_id = conversation(tasks, 12)
    history = TaskHistory(tmp_path)
    (hit,) = history.search("number3 turn")
    assert (hit.field, hit.task_id, hit.step_index, hit.times) == ("prompt", task_id, 4, 9)
    step = history.steps(task_id)[3]
    assert hit.step_id == step.step_id
    (record,) = [one for one in timeline(history) if one.seq == hit.seq]
    assert (record.event, record.step_id) == ("step.prompt", step.step_id)
    assert hit.snippet[slice(*hit.match)] == "turn"


def timeline(history: TaskHistory) -> list[Any]:
    """All records there are."""
    watch, found = history.watch(), []
    while (record := watch.wait(0)) is not None:
        found.append(record)
    return found


@pytest.mark.parametrize(
    ("typed", "field", "index"),
    [
        ("cafe muller", "goal", None),
        ("eight", "result", None),
        ("answer number2", "decision", 3),
        ("browser.click", "name", 5),
        ('"#go1"', "arguments", 2),
        ("clicked 4", "result", 5),
        ("result1", "prompt", 3),
        ("desk agent", "prompt", 1),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_everything_said_is_found(
    tmp_path: Path, typed: str, field: str, index: int | None, ended: bool
) -> None:
    """Goals, prompts, decisions, names, arguments, results; indexed already, or just committed."""
    with recording(tmp_path) as tasks:
        conversation(tasks, 5)
        if not ended:
            assert 0 < waiting(tmp_path) < WAITING
            hits = TaskHistory(tmp_path).search(typed, limit=1)
    if ended:
        assert waiting(tmp_path) == 0
        hits = TaskHistory(tmp_path).search(typed, limit=1)
    assert [(hit.field, hit.step_index) for hit in hits] == [(field, index)]


def test_a_failed_step_is_found_by_its_error(tmp_path: Path) -> None:
    """And what the agent said went wrong with the whole task."""
    with recording(tmp_path) as tasks, tasks.task("x") as task:
        with pytest.raises(ValueError, match="volcano"), task.step("boil"):
            raise ValueError("the volcano is closed")
        task.fail("no lunch")
    history = TaskHistory(tmp_path)
    assert {hit.field for hit in history.search("volcano closed")} == {"error"}
    assert [hit.step_index for hit in history.search("lunch")] == [None]


def test_json_is_searched_as_people_read_it(tmp_path: Path) -> None:
    """Escapes in arguments make no words of their own; a phrase may go on in the next line."""
    with (
        recording(tmp_path) as tasks,
        tasks.task("x") as task,
        task.step("s") as step,
        step.tool_call("python", {"code": "import os\nprint(1)", "name": "Zoë"}) as call,
    ):
        call.result("one line\n  and another")
    history = TaskHistory(tmp_path)
    assert [hit.field for hit in history.search("print")] == ["arguments"]
    assert len(history.search("zoe")) == 1
    assert len(history.search('"line and another"')) == 1


def test_an_error_is_one_hit_and_has_its_type(tmp_path: Path) -> None:
    """An exception ends tool call, step and task: the step says it once."""
    with recording(tmp_path) as tasks, tasks.task("x") as task:
        with (
            pytest.raises(ValueError, match="volcano"),
            task.step("boil") as step,
            step.tool_call("pour"),
        ):
            raise ValueError("the volcano is closed")
        task.cancel("enough")
    assert len(TaskHistory(tmp_path).search("volcano")) == 1
    assert len(TaskHistory(tmp_path).search("ValueError")) >= 1


def test_what_changes_is_found_as_it_is(tmp_path: Path) -> None:
    """A value that was replaced is not found any more."""
    with (
        recording(tmp_path) as tasks,
        tasks.task("first goal") as task,
        task.step("s") as step,
        step.tool_call("t", {"a": "early"}) as call,
    ):
        call.result("late")
    history = TaskHistory(tmp_path)
    assert len(history.search("early")) == 1
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        connection.execute('UPDATE _tool_calls SET arguments = \'{"a": "other"}\'')
    connection.close()
    assert len(history.search("other")) == 1
    with recording(tmp_path):
        pass
    assert (len(history.search("early")), len(history.search("other"))) == (0, 1)


def test_a_very_long_value_is_found_by_any_part(tmp_path: Path) -> None:
    """Also by a phrase that stands where one part ends; and its end is indexed too."""
    filler = "word " * (PART // 5)
    edge = "needle in the hay" + "x" * 3
    text = filler[: PART - 9] + " " + edge + " " + filler + " thelast end"
    with recording(tmp_path) as tasks, tasks.task("x") as task, task.step("s") as step:
        step.prompt(text)
    history = TaskHistory(tmp_path)
    assert len(edge) < OVERLAP
    assert len(history.search(f'"{edge}"')) == 1
    assert len(history.search("thelast end")) == 1


def test_there_is_always_a_true_count(tmp_path: Path) -> None:
    """A limit is told."""
    with recording(tmp_path) as tasks:
        conversation(tasks, 5)
    hits = TaskHistory(tmp_path).search("browser.click", limit=3)
    assert (len(hits), hits.more, hits.complete) == (3, True, True)
    hits = TaskHistory(tmp_path).search("browser.click", limit=5)
    assert (len(hits), hits.more) == (5, False)


def test_what_is_removed_is_not_found(tmp_path: Path) -> None:
    """Neither by a search nor by a look at the files; what another task says too stays."""
    with recording(tmp_path) as tasks:
        first = conversation(tasks, 4, words="zebra")
        conversation(tasks, 2, words="lion")
    history = TaskHistory(tmp_path)
    assert history.search("zebra")
    assert [hit.task_id for hit in history.search("desk agent")] == [first]
    history.remove(first)
    assert not history.search("zebra")
    (hit,) = history.search("desk agent")
    assert (hit.task_id != first, hit.times) == (True, 2)
    assert history.purge()
    history.close()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"zebra" not in file.read_bytes()


def test_indexing_is_bounded_and_goes_on(tmp_path: Path) -> None:
    """A step makes words of so much text at most; what is left is found meanwhile, and later."""
    messages = [{"role": "user", "content": f"unique{n} " + "text " * 4000} for n in range(60)]
    with recording(tmp_path) as tasks, tasks.task("x") as task, task.step("s") as step:
        step.prompt(messages)
        connection = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
        indexer = index.Indexer(connection)
        steps, seen = 0, []
        more = True
        while more:
            connection.execute("BEGIN IMMEDIATE")
            more = indexer.step(50_000)
            seen.append(connection.execute("SELECT count(*) FROM _documents").fetchone()[0])
            connection.execute("COMMIT")
            steps += 1
            assert len(TaskHistory(tmp_path).search("unique7")) == 1
        assert steps > 10
        assert max(two - one for one, two in pairwise(seen)) <= 12
        connection.close()


def test_a_busy_agent_does_not_let_the_index_fall_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a quiet moment it is done after commits."""
    from otel_taskhistory.store import writer

    monkeypatch.setattr(writer, "BEHIND", 20)
    monkeypatch.setattr(writer.Writer, "_rest", lambda self: False)
    with recording(tmp_path) as tasks:
        conversation(tasks, 30)
        assert waiting(tmp_path) < 40


def test_an_index_that_lost_words_is_found_out_and_made_anew(tmp_path: Path) -> None:
    """As `doctor` does it."""
    with recording(tmp_path) as tasks:
        conversation(tasks, 3)
    connection = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    assert index.not_found(connection) == 0
    connection.execute("INSERT INTO _words (_words) VALUES ('delete-all')")
    assert index.not_found(connection) > 0
    indexer = index.Indexer(connection)
    connection.execute("BEGIN")
    indexer.rebuild()
    while indexer.step():
        pass
    connection.execute("COMMIT")
    assert index.not_found(connection) == 0
    connection.close()
    assert TaskHistory(tmp_path).search("desk agent")


def test_a_search_is_a_few_look_ups(tmp_path: Path) -> None:
    """Nothing is scanned but the hits: the same work whatever else there is."""
    with recording(tmp_path) as tasks:
        conversation(tasks, 3)
    history = TaskHistory(tmp_path)

    def cost() -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        def search(connection: sqlite3.Connection) -> None:
            connection.set_progress_handler(count, 100)
            try:
                from otel_taskhistory.store.search.find import search as find

                assert len(find(connection, "number2 turn", 5)) == 1
            finally:
                connection.set_progress_handler(None, 0)

        history.read(search)
        return steps

    small = cost()
    with recording(tmp_path) as tasks:
        for _ in range(8):
            conversation(tasks, 10, words="other")
    assert waiting(tmp_path) == 0
    assert cost() <= small + 5


# --- what a hit says of itself ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "field", "also"),
    [
        ("harbour closed", "result", ()),
        ("fetch harbour closed", "result", ("name",)),
        ("report harbour", "arguments", ("result",)),
        ("storm harbour is closed", "result", ("arguments",)),
        ("fetch", "name", ()),
        ("storm", "arguments", ()),
    ],
)
def test_a_hit_is_labelled_by_where_the_words_are(
    tmp_path: Path, typed: str, field: str, also: tuple[str, ...]
) -> None:
    """A tool call is one value: the label is what has most of the words, then what has the rest."""
    with (
        recording(tmp_path) as tasks,
        tasks.task("x") as task,
        task.step("s") as step,
        step.tool_call("fetch", {"q": "report", "why": "storm"}) as call,
    ):
        call.result("the harbour is closed")
    (hit,) = TaskHistory(tmp_path).search(typed)
    assert (hit.field, hit.also) == (field, also)
    assert hit.snippet[slice(*hit.match)].casefold() in typed


def test_words_of_two_values_that_touch_are_no_phrase(tmp_path: Path) -> None:
    """The end of the arguments and the beginning of the result are no words in a row."""
    with (
        recording(tmp_path) as tasks,
        tasks.task("x") as task,
        task.step("s") as step,
        step.tool_call("fetch", "the report") as call,
    ):
        call.result("harbour is closed")
    assert not TaskHistory(tmp_path).search('"report harbour"')


def test_a_hit_names_the_goal_on_one_line(tmp_path: Path) -> None:
    """Whoever reads it need not know ids by heart; of a long goal the beginning."""
    with recording(tmp_path) as tasks:
        for goal in ("Book a table\n for two", "long " * 500):
            with tasks.task(goal) as task, task.step("s") as step:
                step.result("found it")
    goals = [hit.goal for hit in TaskHistory(tmp_path).search("found it")]
    assert goals[1] == "Book a table for two"
    assert goals[0] is not None
    assert goals[0].endswith("long…")
    assert len(goals[0]) <= 300


def test_an_error_names_its_type(tmp_path: Path) -> None:
    """Of a step, and of a tool call whose step went on; nothing else has one."""
    with recording(tmp_path) as tasks, tasks.task("x") as task:
        with task.step("one") as step:
            with pytest.raises(KeyError), step.tool_call("t"):
                raise KeyError("volcano " + "far away " * 40 + "needle")
            step.result("went on, no volcano")
        with pytest.raises(TimeoutError), task.step("two"):
            raise TimeoutError("too slow " * 40 + "haystack")
    history = TaskHistory(tmp_path)
    (tool,) = history.search("needle")
    assert (tool.field, tool.error_type) == ("error", "KeyError")
    assert "haystack" in history.search("haystack")[0].snippet
    assert history.search("haystack")[0].error_type == "TimeoutError"
    assert [hit.error_type for hit in history.search("went")] == [None]


LONG_WORD = "https://example.com/" + "a" * 70 + "/end"


@pytest.mark.parametrize(
    "text",
    [
        "lorem ipsum dolor " * 20 + "needle" + " sit amet consetetur" * 20,
        ("x\n" * 60) + "needle" + ("\ny" * 60),
        f"{LONG_WORD} needle {LONG_WORD}",
        "z" * 140 + " needle " + "z" * 140,
        "word" * 30 + "/needle?" + "word" * 30,
        "日本語" * 60 + " needle " + "東京都" * 60,
        "needle",
        "e\u0301" * 120 + " needle " + "e\u0301" * 120,
        "👩\u200d💻 " * 40 + "needle" + " 👩\u200d💻" * 40,
    ],
)
def test_snippets_are_cut_between_words(text: str) -> None:
    """A word is shown whole or not at all, unless it is longer than all that is shown."""
    shown, (start, end) = snippet(parse("needle"), text)
    assert shown[start:end] == "needle"
    assert len(shown) <= 6 + 2 * (AROUND + LONGEST + 2)
    kept = shown.removeprefix("…").removesuffix("…")
    assert kept in text
    at = text.index(kept)
    for place in (at, at + len(kept)):
        around = text[max(place - 1, 0) : place + 1]
        whole = not 0 < place < len(text) or any(one.isspace() for one in around)
        longest = max(map(len, text.split()))
        assert whole or longest > AROUND + LONGEST or all(map(is_dense, around))
        assert not unicodedata.combining(text[place : place + 1] or " ")


def test_the_mark_is_a_whole_word() -> None:
    """What was asked for as a word is not marked within another one that begins so."""
    text = "errors are no error"
    shown, match = snippet(parse("error"), text)
    assert match == (14, 19)
    assert shown == text
    assert snippet(parse("err*"), text)[1] == (0, 3)
