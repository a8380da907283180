# SPDX-License-Identifier: Apache-2.0
"""A history read again: the same where the rules are the same, better where they are better."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
    conventions,
)
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.errors import SchemaTooNew
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store import reproject, rules
from otel_taskhistory.store.importing import import_records
from tests.corpus.tables import ONE_OF_EACH
from tests.otlp import logs_in, records_in
from tests.recorded import PICTURES, chat, data_url, one_task
from tests.store.deliveries import (
    agent,
    check,
    message,
    model,
    own_step,
    own_task,
    png,
    public,
    rows,
    span,
    store,
    write,
)
from tests.store.deliveries import data_url as url_of

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FILES = [CORPUS / f"{name}.jsonl" for name in ONE_OF_EACH]


def settings_of(directory: Path) -> Settings:
    """Of the history of a test."""
    return Settings.resolve(directory=directory, durability="normal")


def again(directory: Path, **said: Any) -> reproject.Reprojected:
    """Read all of a history again, without a pause."""
    done = reproject.reproject(
        settings_of(directory), **{"everything": True, "pause": lambda _: None} | said
    )
    check(directory / "history.db")
    return done


def everything(directory: Path) -> dict[str, Any]:
    """What people can see, and what must not change besides."""
    database = directory / "history.db"
    more = {
        "inside": "SELECT task_id, committed_ns, process, key FROM tasks ORDER BY task_id",
        "timeline": "SELECT task_id, step_id, at, event, detail FROM timeline ORDER BY seq",
        "logs": "SELECT * FROM logs ORDER BY span_id, time_unix_nano, body",
        "sides": "SELECT * FROM _sides ORDER BY trace",
    }
    with closing(sqlite3.connect(database)) as connection:
        return public(database) | {
            name: connection.execute(sql).fetchall() for name, sql in more.items()
        }


def older(directory: Path) -> int:
    """How many traces a reader is told were read by older rules."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        return rules.older_traces(connection)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_same_rules_give_the_same(tmp_path: Path, file: Path) -> None:
    """For what real instrumentations recorded, with their log records."""
    told = file.with_name(file.name.replace(".jsonl", ".logs.jsonl"))
    with store(tmp_path) as writer:
        import_records(writer, records_in(file))
        if told.exists():
            import_records(writer, [one for one in logs_in(told) if one.trace_id and one.span_id])
    before = everything(tmp_path)
    done = again(tmp_path)
    assert (done.failed, done.errors) == (0, ())
    assert done.spans == len(before["spans"])
    assert everything(tmp_path) == before


def recorded(directory: Path) -> None:
    """A history of our tracer with all there is: attempts, pictures, failures, interruptions."""
    exporter = TaskHistoryExporter(directory=directory, durability="normal")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tasks = TaskTracer(provider, exporter=exporter)
    one_task(tasks, "plain", steps=3)
    with tasks.task("with pictures", agent="desk", key="k1") as task:
        content = [{"type": "image_url", "image_url": {"url": data_url("png_ok.png")}}]
        for number in range(2):
            with task.step(f"s{number}") as step:
                step.screenshot((PICTURES / "png_ok.png").read_bytes(), caption="c")
                step.prompt([*chat("b", "look"), {"role": "user", "content": content}])
                step.decision("x" * 500, usage={"input_tokens": 3, "output_tokens": 4})
                step.prompt("again")
                step.decision("other", usage={"input_tokens": 5})
                step.result("y" * 400)
    with tasks.task("fails") as task, task.step("s") as step:
        step.fail("no")
    with tasks.task("mixed") as task, task.step("s"):
        tracer = provider.get_tracer("an.instrumentation")
        said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        with tracer.start_as_current_span("chat", attributes=said):
            pass
    tasks.task("never ends").step("open").prompt("asked")
    provider.shutdown()
    exporter.shutdown()


def test_what_our_tracer_recorded(tmp_path: Path) -> None:
    """Attempts, pins, keys, pictures, interruptions: all as before, and nothing is told twice."""
    recorded(tmp_path)
    with TaskHistory(tmp_path) as history:
        interrupted = next(task for task in history.tasks() if task.status == "interrupted")
        history.pin(history.tasks()[0].task_id)
    exporter = TaskHistoryExporter(directory=tmp_path, durability="normal")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    tasks = TaskTracer(provider, exporter=exporter)
    with tasks.task("go on", resume=interrupted.task_id) as task, task.step("more"):
        pass
    provider.shutdown()
    exporter.shutdown()
    before = everything(tmp_path)
    assert {json.loads(row)["attempt"] for row in before["tasks"]} == {1, 2}
    assert again(tmp_path).failed == 0
    assert everything(tmp_path) == before
    assert again(tmp_path).failed == 0
    assert everything(tmp_path) == before


def test_interrupted_stays_interrupted(tmp_path: Path) -> None:
    """With a root and without one, with open calls; the moment of the interruption too."""
    other = "f" * 32
    with store(tmp_path) as writer:
        write(writer, [own_task(end=None), own_step(2, prompt=[message("q")], end=None)])
        write(writer, [agent(1, None, trace_id=other, end=None), model(2, 1, trace_id=other)])
        write(writer, [model(3, 9, trace_id="e" * 32), model(4, 9, trace_id="e" * 32, end=None)])
    before = everything(tmp_path)
    assert {json.loads(row)["status"] for row in before["tasks"]} == {"interrupted"}
    again(tmp_path)
    assert everything(tmp_path) == before


def test_running_spans_of_living_processes_go_on_running(tmp_path: Path) -> None:
    """And end as if nothing had been read again in between."""
    with store(tmp_path / "twin") as writer:
        write(writer, [own_task(end=None), own_step(2, prompt=[message("q")], end=None)])
        write(writer, [own_step(2, prompt=[message("q")]), own_task()])
    with store(tmp_path / "one") as writer:
        write(writer, [own_task(end=None), own_step(2, prompt=[message("q")], end=None)])
        before = everything(tmp_path / "one")
        again(tmp_path / "one")
        assert everything(tmp_path / "one") == before
        assert rows(tmp_path / "one" / "history.db", "SELECT status FROM steps") == [
            {"status": "running"}
        ]
        write(writer, [own_step(2, prompt=[message("q")]), own_task()])
    assert public(tmp_path / "one" / "history.db") == public(tmp_path / "twin" / "history.db")


def shouting(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """A dialect that learned something: agents by another name, models that it did not know."""
    if record.name.startswith("think"):
        record = replace(record, attributes={**record.attributes, "gen_ai.operation.name": "chat"})
    facts = GENAI(record, logs)
    return facts and replace(facts, agent=facts.agent and facts.agent.upper())


GENAI = genai.read


def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this is a newer version, with other dialects."""
    monkeypatch.setattr(conventions, "DIALECTS", (shouting,))
    monkeypatch.setattr(conventions, "VERSION", conventions.VERSION + 1)


TRACES = [
    [agent(1, None, trace_id=f"{number:032x}"), span(2, 1, trace_id=f"{number:032x}", name="think")]
    for number in range(1, 6)
]


def older_history(directory: Path) -> None:
    """Five tasks, a transaction each."""
    with store(directory) as writer:
        for trace in TRACES:
            write(writer, trace)


def test_after_an_upgrade_it_is_as_if_recorded_by_the_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents, models and steps that the older rules did not see; a reader says what is due."""
    older_history(tmp_path / "old")
    assert older(tmp_path / "old") == 0
    upgrade(monkeypatch)
    older_history(tmp_path / "new")
    assert older(tmp_path / "old") == 5
    assert older(tmp_path / "new") == 0
    done = again(tmp_path / "old", everything=False)
    assert (done.traces, done.spans) == (5, 10)
    assert older(tmp_path / "old") == 0
    found = rows(tmp_path / "old" / "history.db", "SELECT agent, step_count FROM tasks")
    assert found == [{"agent": "HELPER", "step_count": 1}] * 5
    assert public(tmp_path / "old" / "history.db") == public(tmp_path / "new" / "history.db")
    assert again(tmp_path / "old", everything=False).spans == 0


def test_only_what_older_rules_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces that came after the upgrade are right already."""
    older_history(tmp_path)
    upgrade(monkeypatch)
    with store(tmp_path) as writer:
        write(writer, [agent(1, None, trace_id="a" * 32)])
        assert older(tmp_path) == 5
        assert again(tmp_path, everything=False).traces == 5
        assert older(tmp_path) == 0


def test_interrupted_it_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest traces first; what is done is done, whatever comes."""
    older_history(tmp_path)
    upgrade(monkeypatch)
    monkeypatch.setattr(reproject, "SPANS", 2)

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stop

    for left in (4, 3):
        with pytest.raises(Stop):
            again(tmp_path, everything=False, tell=stop)
        check(tmp_path / "history.db")
        assert older(tmp_path) == left
    found = rows(tmp_path / "history.db", "SELECT agent FROM tasks ORDER BY trace_id")
    assert [row["agent"] for row in found] == ["helper"] * 3 + ["HELPER"] * 2
    assert again(tmp_path, everything=False).traces == 3
    assert older(tmp_path) == 0


def test_two_at_once_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trace is read once, by whoever comes to it first."""
    older_history(tmp_path)
    upgrade(monkeypatch)
    monkeypatch.setattr(reproject, "SPANS", 2)
    others: list[reproject.Reprojected] = []

    def meanwhile(done: int, total: int) -> None:
        if not others:
            others.append(again(tmp_path, everything=False))

    mine = again(tmp_path, everything=False, tell=meanwhile)
    assert (mine.traces, others[0].traces) == (1, 4)


def test_an_older_version_that_goes_on_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it writes is due again; it is told, and an older version does not take anything back."""
    older_history(tmp_path)
    with monkeypatch.context() as newer:
        upgrade(newer)
        again(tmp_path, everything=False)
        assert older(tmp_path) == 0
    with store(tmp_path) as writer:
        write(writer, [agent(1, None, trace_id="b" * 32)])
    with pytest.raises(SchemaTooNew, match="upgrade"):
        again(tmp_path)
    upgrade(monkeypatch)
    assert older(tmp_path) == 6

    def meanwhile(done: int, total: int) -> None:
        with pytest.MonkeyPatch.context() as back:
            back.setattr(conventions, "VERSION", conventions.VERSION - 1)
            with store(tmp_path) as writer:
                write(writer, [agent(1, None, trace_id="c" * 32)])

    monkeypatch.setattr(reproject, "SPANS", 2)
    assert again(tmp_path, everything=False, tell=meanwhile).older_writer
    assert older(tmp_path) == 7
    assert not again(tmp_path, everything=False).older_writer
    assert older(tmp_path) == 0


def test_a_long_trace_takes_several_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that write at the same time wait for none of them long; the result is the same."""
    with store(tmp_path) as writer:
        write(writer, [agent(1, None), *(model(number, 1) for number in range(2, 60))])
        write(writer, [agent(1, None, trace_id="a" * 32)])
        write(writer, [own_task(trace_id="b" * 32), own_step(2, trace_id="b" * 32)])
    before = everything(tmp_path)
    monkeypatch.setattr(reproject, "SPANS", 7)
    steps: list[int] = []
    done = again(tmp_path, tell=lambda size, total: steps.append(size))
    assert (done.traces, done.spans) == (3, 62)
    assert len(steps) > 5
    assert everything(tmp_path) == before
    monkeypatch.setattr(reproject, "BYTES", 1)
    assert again(tmp_path).spans == 62
    assert everything(tmp_path) == before


def test_a_dialect_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span keeps its reading, and the others get theirs."""
    older_history(tmp_path)
    upgrade(monkeypatch)

    def failing(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        if record.trace_id == f"{3:032x}":
            raise ValueError("no")
        return shouting(record, logs)

    monkeypatch.setattr(conventions, "DIALECTS", (failing,))
    done = again(tmp_path, everything=False)
    assert (done.failed, done.errors, older(tmp_path)) == (2, ("ValueError",), 0)
    found = rows(tmp_path / "history.db", "SELECT agent FROM tasks ORDER BY trace_id")
    assert [row["agent"] for row in found] == ["HELPER", "HELPER", "helper", "HELPER", "HELPER"]


def test_a_reading_that_cannot_be_stored_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That span stays as it was, and so does all of it that followed from it."""
    older_history(tmp_path)
    upgrade(monkeypatch)

    def odd(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        facts = shouting(record, logs)
        bad = facts is not None and record.trace_id == f"{3:032x}"
        return replace(facts, agent=object()) if bad else facts  # type: ignore[type-var]

    monkeypatch.setattr(conventions, "DIALECTS", (odd,))
    done = again(tmp_path, everything=False)
    assert done.failed == 2
    found = rows(tmp_path / "history.db", "SELECT agent FROM tasks ORDER BY trace_id")
    assert [row["agent"] for row in found] == ["HELPER", "HELPER", "helper", "HELPER", "HELPER"]


def test_what_could_not_be_understood_may_be_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span that made a dialect fail says so until one reads it."""

    def failing(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
        raise ValueError("no")

    with store(tmp_path) as writer, monkeypatch.context() as broken:
        broken.setattr(conventions, "DIALECTS", (failing,))
        import_records(writer, [model(1, None)])
    database = tmp_path / "history.db"
    assert rows(database, "SELECT marks FROM spans") == [{"marks": '["meaning"]'}]
    assert rows(database, "SELECT * FROM model_calls") == []
    again(tmp_path)
    assert rows(database, "SELECT marks FROM spans") == [{"marks": None}]
    assert len(rows(database, "SELECT * FROM model_calls")) == 1


def test_a_picture_whose_file_has_gone_stays_known(tmp_path: Path) -> None:
    """Reading the span without it would lose the row that says what it was."""
    with store(tmp_path) as writer:
        write(writer, [model(1, None, prompt=[message(url_of(png(1, 300)))])])
    before = everything(tmp_path)
    assert before["screenshots"]
    (path,) = [row["path"] for row in rows(tmp_path / "history.db", "SELECT path FROM _artifacts")]
    (tmp_path / "artifacts" / path).unlink()
    assert again(tmp_path).failed == 0
    assert everything(tmp_path) == before


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """The history is whole, and running it again finishes the work."""
    older_history(tmp_path)
    database = tmp_path / "history.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE _meta SET value = '0.1' WHERE key = 'rules'")
        connection.commit()
    before = everything(tmp_path)
    program = (
        "import os, signal, sys\n"
        "from otel_taskhistory.settings import Settings\n"
        "from otel_taskhistory.store import reproject\n"
        "reproject.SPANS = 2\n"
        "left = [int(sys.argv[2])]\n"
        "def tell(size, total):\n"
        "    left[0] -= 1\n"
        "    if not left[0]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "reproject.reproject(Settings.resolve(directory=sys.argv[1]), tell=tell)\n"
    )
    assert older(tmp_path) == 5
    for left in (4, 2):
        killed = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), "1" if left == 4 else "2"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        check(database)
        assert older(tmp_path) == left
    assert again(tmp_path, everything=False).traces == 2
    assert everything(tmp_path) == before
