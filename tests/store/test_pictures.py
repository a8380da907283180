# SPDX-License-Identifier: Apache-2.0
"""Pictures in odd places: taken out where they can be put back exactly, else left alone."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.spans.encode import decode
from otel_taskhistory.spans.record import EventRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.pictures import REFERENCE, REFERENCE_LENGTH, put_back, take_out
from otel_taskhistory.store.rebuild import rebuild_span
from tests.store.deliveries import (
    NOON,
    TRACE,
    agent,
    check,
    data_url,
    message,
    model,
    own_step,
    own_task,
    own_tool,
    picture_part,
    png,
    rows,
    span_id,
    store,
    stored,
    tool,
    write,
)

PICTURE = png(1, 200)
RUN = base64.b64encode(PICTURE).decode()
REFERENCED = REFERENCE + hashlib.sha256(PICTURE).hexdigest()
SVG = base64.b64encode(b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>').decode()


def wrapped(run: str, end: str = "\n", width: int = 76) -> str:
    """Base64 broken into lines."""
    return end.join(run[at : at + width] for at in range(0, len(run), width))


def rebuilt(directory: Path, number: int) -> dict[str, Any]:
    """The attributes of a span with its pictures put back."""
    folder = ArtifactFolder(directory / "artifacts")
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        again = rebuild_span(
            connection, lambda path: folder.path(path).read_bytes(), TRACE, span_id(number)
        )
    assert again["missing"] == []
    attributes: dict[str, Any] = decode(again["attributes"])
    return attributes


def shots(directory: Path) -> list[dict[str, Any]]:
    """The rows of ``screenshots``."""
    return rows(directory / "history.db", "SELECT * FROM screenshots ORDER BY id")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RUN, id="alone"),
        pytest.param(data_url(PICTURE), id="data URL"),
        pytest.param(f"see {data_url(PICTURE)}, and {RUN}\nand {RUN}\nWell", id="three times"),
        pytest.param(json.dumps({"u": json.dumps({"v": data_url(PICTURE)})}), id="JSON in JSON"),
        pytest.param(f"src={RUN}&x=1", id="in a query"),
        pytest.param(f"{RUN}\n\n{RUN}", id="lines of whole pictures"),
    ],
)
def test_taken_out_and_put_back(text: str) -> None:
    """Only references stay, and the text comes back exactly."""
    shown, found = take_out(text)
    assert "iVBOR" not in shown
    assert {picture.data for picture in found} == {PICTURE}
    for picture in found:
        reference = shown[picture.position : picture.position + REFERENCE_LENGTH]
        assert reference == REFERENCED
    assert put_back(shown, [(picture.position, picture.data) for picture in found]) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(wrapped(RUN), id="lines"),
        pytest.param(wrapped(RUN, "\r\n", 64), id="lines of another length"),
        pytest.param(wrapped(RUN, "\\n"), id="escaped line breaks"),
        pytest.param(wrapped(RUN, "\n", 200), id="long lines"),
        pytest.param(RUN.rstrip("=")[:-1], id="missing padding"),
        pytest.param(RUN[:100] + "_" + RUN[101:], id="URL-safe alphabet"),
        pytest.param(RUN[:100] + "-", id="URL-safe alphabet at its end"),
        pytest.param(RUN[:100] + "%2B" + RUN[101:], id="escaped for a URL"),
        pytest.param(RUN[:100] + "\\/" + RUN[101:], id="escaped slash"),
        pytest.param(RUN[:100] + "\\u002b" + RUN[101:], id="escaped plus sign"),
        pytest.param("ab" + RUN, id="within other base64"),
        pytest.param(RUN + "=", id="too much padding"),
        pytest.param(f"data:image/svg+xml;base64,{SVG}", id="SVG"),
        pytest.param("data:text/html;base64," + SVG, id="HTML"),
        pytest.param("data:image/png;base64,iVBORw0KGgo", id="only the beginning"),
        pytest.param(REFERENCED, id="a typed reference"),
        pytest.param("/9j/ is how a JPEG begins, UklGR a WebP", id="talk about it"),
    ],
)
def test_left_alone(tmp_path: Path, text: str) -> None:
    """What could not be had again from the picture's bytes, or is none, stays in the text."""
    assert take_out(text) == (text, [])
    record = own_step(2, prompt=[message(text)], attributes={"x": text, "y": "z" * 300 + text})
    stored(tmp_path, [[own_task(), record]])
    assert rebuilt(tmp_path, 2) == dict(record.attributes)
    assert shots(tmp_path) == []


@given(st.lists(st.sampled_from([RUN, data_url(png(2)), REFERENCED, "\n", "A", "=", '"', "x y"])))
def test_any_mixture_comes_back(pieces: list[str]) -> None:
    """Whatever stands around them, pictures are put back where they were."""
    text = "".join(pieces)
    shown, found = take_out(text)
    assert put_back(shown, [(picture.position, picture.data) for picture in found]) == text


def test_a_typed_reference_is_no_picture(tmp_path: Path) -> None:
    """A model that writes what a reference looks like gets its own words back, not a picture."""
    typed = {
        "text": "t" * 300 + REFERENCED,
        "alone": REFERENCED,
        "real": "t " * 150 + RUN,
        "same when shown": "t " * 150 + REFERENCED,
        "forged": "t " * 150 + REFERENCED + "\0300",
    }
    prompt = [message(typed["text"]), message(typed["real"]), message(REFERENCED + " " * 300)]
    record = own_step(2, prompt=prompt, attributes=typed)
    stored(tmp_path, [[own_task(), record]])
    assert rebuilt(tmp_path, 2) == dict(record.attributes)
    database = tmp_path / "history.db"
    (row,) = rows(database, "SELECT prompt, attributes FROM steps JOIN spans ON span_id = step_id")
    assert [one["parts"][0]["content"][-10:] for one in json.loads(row["prompt"])][:2] == [
        REFERENCED[-10:]
    ] * 2
    found = rows(database, "SELECT role FROM screenshots")
    assert found == [{"role": "input"}]


def test_the_same_picture_many_times_is_one_file(tmp_path: Path) -> None:
    """In one text, in many messages, as bytes and as text: one file, one ``input`` row."""
    again = f"{data_url(PICTURE)} {data_url(PICTURE)} {RUN}"
    nested = json.dumps({"deep": [json.dumps({"url": data_url(PICTURE)})]})
    prompt = [message(again), message(nested), {"role": "user", "parts": [picture_part(PICTURE)]}]
    record = own_step(2, prompt=prompt, attributes={"raw": PICTURE, "list": [again * 2]})
    stored(tmp_path, [[own_task(), record]])
    assert rebuilt(tmp_path, 2) == dict(record.attributes)
    (row,) = shots(tmp_path)
    assert (row["role"], row["step_id"], row["status"]) == ("input", span_id(2), "ok")
    files = [file for file in (tmp_path / "artifacts").rglob("*") if file.suffix == ".png"]
    assert [file.read_bytes() for file in files] == [PICTURE]


@pytest.mark.parametrize("own", [True, False])
def test_what_a_model_or_tool_makes_is_output(tmp_path: Path, own: bool) -> None:
    """Pictures in a decision or a tool's result are ``output`` of their step."""
    drawn, found = png(5, 150), png(6, 150)
    decision = [{"role": "assistant", "parts": [picture_part(drawn)]}]
    result = {semconv.GEN_AI_TOOL_CALL_RESULT: json.dumps({"image": data_url(found)})}
    if own:
        step = own_step(2, prompt=[message("draw")], decision=decision)
        batch = [own_task(), step, own_tool(3, 2, attributes=result)]
    else:
        step = model(2, 1, prompt=[message("draw")], decision=decision)
        batch = [agent(1, None), step, tool(3, 1, attributes=result)]
    database = stored(tmp_path, [[one] for one in batch])
    check(database)
    said = [(row["role"], row["sha256"], row["step_id"]) for row in shots(tmp_path)]
    assert sorted(said) == sorted(
        ("output", hashlib.sha256(data).hexdigest(), span_id(2)) for data in (drawn, found)
    )


def screenshot_event(**facts: Any) -> EventRecord:
    """A screenshot event of a step; names without their prefix."""
    prefix = "taskhistory.screenshot."
    attributes = {prefix + name: value for name, value in facts.items()}
    return EventRecord(semconv.TASKHISTORY_SCREENSHOT_EVENT, NOON, attributes)


def shown_by(directory: Path, event: EventRecord) -> dict[str, Any]:
    """The row of a step's only screenshot."""
    database = stored(directory, [[own_task(), own_step(2, events=(event,))]])
    check(database)
    (row,) = shots(directory)
    (step,) = rows(database, "SELECT screenshot FROM steps")
    assert step["screenshot"] == row["path"]
    return row


SHA = hashlib.sha256(PICTURE).hexdigest()
GOOD = {
    "sha256": SHA,
    "path": f"{SHA[:2]}/{SHA}.png",
    "media_type": "image/png",
    "width": 3,
    "height": 2,
    "bytes": len(PICTURE),
    "status": "ok",
    "caption": "what I see",
}


def test_a_screenshot_event_is_believed_where_it_can_be_true(tmp_path: Path) -> None:
    """A sound event whose file is here is a row with all it says."""
    with store(tmp_path) as writer:
        writer.store_picture(PICTURE)
    row = shown_by(tmp_path, screenshot_event(**GOOD))
    assert {name: row[name] for name in GOOD} == GOOD
    assert row["captured_at"] == "2026-09-21T14:13:20.000000Z"


def test_a_screenshot_of_another_machine_has_no_file(tmp_path: Path) -> None:
    """All it says but a path, which leads nowhere here."""
    row = shown_by(tmp_path, screenshot_event(**GOOD))
    said = GOOD | {"path": None, "status": "not_stored"}
    assert {name: row[name] for name in said} == said


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ({"path": "../../etc/passwd"}, {"path": None, "status": "not_stored"}),
        ({"path": f"{SHA[:2]}/{SHA}.png/../x"}, {"path": None, "status": "not_stored"}),
        ({"path": f"/{SHA[:2]}/{SHA}.png"}, {"path": None, "status": "not_stored"}),
        ({"path": f"{SHA[:2]}/{SHA}.png\n"}, {"path": None, "status": "not_stored"}),
        ({"path": f"{SHA[:2]}/{SHA[:-1]}0.png"}, {"path": None, "status": "not_stored"}),
        ({"path": 7}, {"path": None, "status": "not_stored"}),
        ({"sha256": "no hex"}, {"sha256": "", "path": None, "status": "not_stored"}),
        ({"sha256": SHA.upper()}, {"sha256": "", "path": None, "status": "not_stored"}),
        ({"sha256": None}, {"sha256": "", "path": None, "status": "not_stored"}),
        ({"width": -3, "height": 2**63}, {"width": None, "height": None}),
        ({"width": "3", "height": True}, {"width": None, "height": None}),
        ({"bytes": -1}, {"bytes": 0}),
        ({"bytes": b"x"}, {"bytes": 0}),
        ({"media_type": "text/html\r\nX: y"}, {"media_type": "application/octet-stream"}),
        ({"media_type": ["image/png"]}, {"media_type": "application/octet-stream"}),
        ({"status": "fine"}, {"path": None, "status": "not_stored"}),
        ({"status": "empty", "path": None}, {"path": None, "status": "empty"}),
        ({"caption": "x\ud83e"}, {"caption": "x\\ud83e"}),
        ({"caption": {"a": 1}}, {"caption": None}),
    ],
)
def test_a_hostile_screenshot_event_is_kept_safe(
    tmp_path: Path, lie: dict[str, Any], expected: dict[str, Any]
) -> None:
    """No path but that of a file of ours, no size below zero, no made-up status."""
    row = shown_by(tmp_path, screenshot_event(**{**GOOD, **lie}))
    assert {name: row[name] for name in expected} == expected


def test_an_empty_screenshot_event_is_a_row(tmp_path: Path) -> None:
    """A step says that it took a picture, and nothing more."""
    row = shown_by(tmp_path, screenshot_event())
    assert (row["sha256"], row["path"], row["status"], row["bytes"]) == ("", None, "not_stored", 0)


def test_a_later_version_of_a_step_replaces_its_screenshots(tmp_path: Path) -> None:
    """Rows follow the version of the span that is kept: changed, added and gone."""
    one, other = screenshot_event(**GOOD), screenshot_event(**{**GOOD, "caption": "again"})
    versions = [(one, one), (other,), (one, other, one)]
    with store(tmp_path) as writer:
        write(writer, [own_task()])
        for end, events in enumerate(versions, start=3):
            write(writer, [own_step(2, events=events, end=end)])
            said = ["what I see" if event is one else "again" for event in events]
            assert [row["caption"] for row in shots(tmp_path)] == said
    check(tmp_path / "history.db")


def test_a_stored_screenshot_is_linked_to_its_file(tmp_path: Path) -> None:
    """The row of the file is made when the step that took the picture comes."""
    with store(tmp_path) as writer:
        file = writer.store_picture(PICTURE)
        record: SpanRecord = own_step(
            2, events=(screenshot_event(**{**GOOD, "path": file.path}),), prompt=[message(RUN)]
        )
        write(writer, [own_task(), record])
    found = rows(
        tmp_path / "history.db",
        "SELECT shot.role, art.sha256, art.path, art.bytes FROM screenshots AS shot"
        " JOIN _artifacts AS art ON art.id = shot.artifact ORDER BY shot.role",
    )
    facts = {"sha256": SHA, "path": file.path, "bytes": len(PICTURE)}
    assert found == [{"role": "input", **facts}, {"role": "screenshot", **facts}]
