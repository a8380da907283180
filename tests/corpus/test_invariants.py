# SPDX-License-Identifier: Apache-2.0
"""What holds for every trace of every instrumentation, whatever it says."""

from __future__ import annotations

import math
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory.spans.encode import decode
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.ledger import events_value, links_value, origin_value
from otel_taskhistory.store.rebuild import rebuild_span
from otel_taskhistory.store.writer import Entry
from tests.corpus.tables import NAMES, entries, history
from tests.store.deliveries import check, public, rows

TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def sums(database: Path, sql: str) -> dict[str, list[int | None]]:
    """Key → sums of tokens, of a query with the key first."""
    found = rows(database, sql.format(", ".join(f"sum({name})" for name in TOKENS)))
    return {row.pop("key"): list(row.values()) for row in found}


@pytest.mark.parametrize("name", NAMES)
def test_every_call_has_its_place_and_is_counted_once(
    recorded: Callable[[str], Path], name: str
) -> None:
    """A model span is in one step, a tool span in one tool call, and tokens add up."""
    given, database = entries(name), recorded(name)
    roles = Counter(one.facts.role for one in given)
    with closing(sqlite3.connect(database)) as connection:
        ask = connection.execute
        calls = ask("SELECT span, step, task, twin_of FROM _model_calls").fetchall()
        assert len({call[0] for call in calls}) == roles["model"]
        assert all(step is not None and task is not None for _, step, task, _ in calls)
        shown = ask(
            "SELECT count(*) FROM _model_calls AS call JOIN _model_calls AS twin"
            " ON twin.id = call.twin_of WHERE twin.twin_of IS NULL AND twin.task = call.task"
        ).fetchone()[0]
        assert shown == sum(twin is not None for *_, twin in calls)
        tools = ask("SELECT span, twin_of, step FROM _tool_calls").fetchall()
        assert len(tools) == len({span for span, *_ in tools}) == roles["tool"]
        places = {span: step for span, _, step in tools}
        outer = ask(
            "SELECT call.span, twin.span FROM _tool_calls AS call"
            " JOIN _tool_calls AS twin ON twin.id = call.twin_of AND twin.twin_of IS NULL"
        ).fetchall()
        assert len(outer) == sum(twin is not None for _, twin, _ in tools)
        assert all(places[span] == places[twin] for span, twin in outer)
    of_calls = sums(database, "SELECT step_id AS key, {} FROM model_calls GROUP BY step_id")
    of_steps = sums(database, "SELECT step_id AS key, {} FROM steps GROUP BY step_id")
    assert {key: of for key, of in of_steps.items() if key in of_calls} == of_calls
    of_tasks = sums(database, "SELECT task_id AS key, {} FROM tasks GROUP BY task_id")
    all_steps = sums(database, "SELECT task_id AS key, {} FROM steps GROUP BY task_id")
    nothing = [None] * len(TOKENS)
    assert of_tasks == {task: all_steps.get(task, nothing) for task in of_tasks}


@pytest.mark.parametrize("name", NAMES)
def test_spans_come_back_as_they_came(recorded: Callable[[str], Path], name: str) -> None:
    """Each attribute, event, link, time and origin; nothing is marked as reduced."""
    given, database = entries(name), recorded(name)
    assert len(rows(database, "SELECT * FROM spans")) == len(given)
    folder = ArtifactFolder(database.parent / "artifacts")
    with closing(sqlite3.connect(database)) as connection:
        for one in given:
            record = one.record
            found = rebuild_span(
                connection,
                lambda path: folder.path(path).read_bytes(),
                record.trace_id,
                record.span_id,
            )
            assert found["marks"] is None
            assert _seen(found) == _sent(record)


def _seen(found: dict[str, Any]) -> dict[str, Any]:
    names = ("attributes", "events", "links", "resource", "scope")
    return {
        **{name: _plain(decode(found[name])) for name in names},
        "times": (found["start_time_unix_nano"], found["end_time_unix_nano"]),
        "parent": (found["parent_span_id"], found["parent_remote"]),
        "status": (found["status_code"], found["status_message"]),
        "name": (found["name"], found["kind"], found["trace_state"], found["flags"]),
    }


def _sent(record: SpanRecord) -> dict[str, Any]:
    def origin(one: OriginRecord) -> Any:
        return _plain(origin_value(one))

    return {
        "attributes": _plain(record.attributes),
        "events": _plain(events_value(record)),
        "links": _plain(links_value(record)),
        "resource": origin(record.resource),
        "scope": origin(record.scope),
        "times": (record.start_ns, record.end_ns),
        "parent": (record.parent_span_id, record.parent_remote),
        "status": (record.status_code, record.status_message),
        "name": (record.name, record.kind, record.trace_state, record.flags),
    }


def _plain(value: Any) -> Any:
    """A value to be compared: NaN equals itself, a tuple is a list."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_arrival_makes_no_difference(
    recorded: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Shuffled and one by one, the tables are the same."""
    given = entries(name)
    shuffled = random.Random(name).sample(given, len(given))
    one_by_one = history(tmp_path, [[one] for one in shuffled])
    check(one_by_one)
    assert public(one_by_one) == public(recorded(name))


@cache
def small() -> list[str]:
    """Recordings of a few spans; asked for by the test, so that collecting reads none of them."""
    return [name for name in NAMES if len(entries(name)) < 30]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_neither_do_batches_and_other_traces_in_between(data: st.DataObject) -> None:
    """Two recordings at once, in any order, in any batches, some of it twice."""
    names = data.draw(st.lists(st.sampled_from(small()), min_size=1, max_size=2, unique=True))
    given_ = [one for name in names for one in entries(name)]
    arrived: list[Entry] = data.draw(st.permutations(given_))
    again = data.draw(st.lists(st.sampled_from(given_), max_size=4))
    cuts = data.draw(st.lists(st.integers(0, len(arrived)), max_size=5).map(sorted))
    batches = [
        arrived[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True)
    ]
    with tempfile.TemporaryDirectory() as directory:
        expected = public(history(Path(directory) / "at once", [given_]))
        found = history(Path(directory) / "other", [*filter(None, batches), again])
        check(found)
        assert public(found) == expected
