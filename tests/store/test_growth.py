# SPDX-License-Identifier: Apache-2.0
"""Every value once: a history grows with what is new, not with how often it is sent again."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.store import contents, lists
from otel_taskhistory.store.contents import Contents
from tests.recorded import recording
from tests.store.deliveries import (
    check,
    message,
    own_step,
    own_task,
    png,
    rows,
    store,
    write,
)

Message = dict[str, Any]


def words(seed: int, count: int) -> str:
    """A text that no other seed gives, of about eight bytes a word."""
    return " ".join(f"{(seed * 7919 + i * 104729) % 99991:05d}ab" for i in range(count))


def record_conversation(directory: Path, steps: int) -> int:
    """Record a task whose conversation grows and shows a picture a step, sent again each time.

    Returns:
        Bytes of unique text and pictures in it.
    """
    unique = 0
    messages: list[Message] = [{"role": "system", "content": words(0, 100)}]
    with recording(directory) as tasks, tasks.task("read everything") as task:
        for number in range(1, steps + 1):
            picture = png(number, 1500)
            shown = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            seen = words(number, 120)
            messages.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": seen},
                        {"type": "image_url", "image_url": {"url": shown}},
                    ],
                }
            )
            with task.step("look") as step:
                step.prompt(messages, model="model-1")
                answer = words(10_000 + number, 30)
                step.decision(answer, usage={"input_tokens": 10, "output_tokens": 2})
                with step.tool_call("read", {"page": number}) as call:
                    result = words(20_000 + number, 60)
                    call.result(result)
                step.screenshot(picture)
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "tool", "content": result, "tool_call_id": str(number)})
            unique += len(seen) + len(answer) + len(result)
    return unique


def database_size(directory: Path) -> int:
    """Bytes of the closed database."""
    assert not (directory / "history.db-wal").exists()
    return (directory / "history.db").stat().st_size


def test_twice_the_steps_are_about_twice_the_bytes(tmp_path: Path) -> None:
    """A conversation that is sent again with each step costs what is new in it, once."""
    sizes, unique = {}, {}
    for steps in (30, 60, 120):
        directory = tmp_path / str(steps)
        unique[steps] = record_conversation(directory, steps)
        sizes[steps] = database_size(directory)
        check(directory / "history.db")
    assert sizes[60] / sizes[30] < 2.3
    assert sizes[120] / sizes[60] < 2.3
    # Besides its texts a step costs its rows and keys, the frame of its messages and its timeline.
    step, texts = (sizes[120] - sizes[60]) / 60, (unique[120] - unique[60]) / 60
    assert step - texts < 13_000


def test_pictures_are_files_once(tmp_path: Path) -> None:
    """A picture that every later prompt shows again, and that is a screenshot too, is one file."""
    record_conversation(tmp_path, 60)
    files = [path for path in (tmp_path / "artifacts").rglob("*.png") if path.is_file()]
    assert len(files) == 60
    database = tmp_path / "history.db"
    by_role = rows(database, "SELECT role, count(*) AS n FROM screenshots GROUP BY role")
    assert {row["role"]: row["n"] for row in by_role} == {"input": 60, "screenshot": 60}


def test_a_picture_is_input_where_it_is_shown_first(tmp_path: Path) -> None:
    """Prompts of sixty steps that all show the first picture give it one ``input`` row."""
    record_conversation(tmp_path, 10)
    shown = rows(
        tmp_path / "history.db",
        "SELECT step.step_index FROM screenshots AS shot JOIN steps AS step"
        " ON step.step_id = shot.step_id WHERE shot.role = 'input' ORDER BY shot.captured_at",
    )
    assert [row["step_index"] for row in shown] == list(range(1, 11))


def test_a_result_in_the_next_prompt_is_the_same_text(tmp_path: Path) -> None:
    """A tool's result is stored once, though it is a value of its own and part of every prompt."""
    record_conversation(tmp_path, 5)
    needle = words(20_003, 60)
    found = rows(
        tmp_path / "history.db",
        "SELECT sum(length(text) - length(replace(text, ?, ''))) / length(?) AS times"
        " FROM _contents",
        needle,
        needle,
    )
    assert found == [{"times": 1}]
    elsewhere = rows(
        tmp_path / "history.db",
        "SELECT 1 FROM _spans WHERE instr(attributes || events, ?)"
        " UNION ALL SELECT 1 FROM _tool_calls WHERE instr(coalesce(result, ''), ?)",
        needle,
        needle,
    )
    assert elsewhere == []


def prompts_of(database: Path) -> list[list[Message]]:
    """The prompts of the steps, in order."""
    found = rows(database, "SELECT prompt FROM steps ORDER BY step_index")
    return [json.loads(row["prompt"]) for row in found]


def nodes(database: Path) -> int:
    """How many nodes there are."""
    count: int = rows(database, "SELECT count(*) AS n FROM _nodes")[0]["n"]
    return count


LONG = [message(words(number, 50)) for number in range(12)]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        pytest.param([LONG[:4], LONG[:5], LONG[:6]], 6, id="grown"),
        pytest.param([LONG[:6], LONG[:3], LONG[:4]], 6, id="shortened at its end"),
        pytest.param([LONG[:6], [*LONG[:2], *LONG[3:6]]], 9, id="trimmed in the middle"),
        pytest.param([LONG[:6], [*LONG[:3], LONG[9], *LONG[4:6]]], 9, id="edited"),
        pytest.param([LONG[:6], LONG[6:9]], 9, id="another conversation"),
        pytest.param([LONG[:4], LONG[4:8], LONG[:5], LONG[4:9]], 10, id="two that take turns"),
    ],
)
def test_a_prompt_branches_from_the_longest_shared_beginning(
    tmp_path: Path, prompts: list[list[Message]], expected: int
) -> None:
    """A node is made only for what comes after the part that an earlier prompt begins with."""
    with store(tmp_path) as writer:
        write(writer, [own_task()])
        for number, prompt in enumerate(prompts, start=2):
            write(writer, [own_step(number, prompt=prompt)])
    database = tmp_path / "history.db"
    assert prompts_of(database) == prompts
    assert nodes(database) == expected
    contents_of_messages = rows(database, "SELECT count(DISTINCT content) AS n FROM _nodes")
    said = {json.dumps(one) for prompt in prompts for one in prompt}
    assert contents_of_messages == [{"n": len(said)}]


def test_system_instructions_come_first_and_are_stored_once(tmp_path: Path) -> None:
    """Instructions sent beside the messages are the first message of every prompt."""
    system = json.dumps([{"type": "text", "content": words(99, 200)}])
    sent = {"gen_ai.system_instructions": system}
    with store(tmp_path) as writer:
        write(writer, [own_task()])
        for number in range(2, 12):
            write(writer, [own_step(number, prompt=LONG[:number], attributes=sent)])
    database = tmp_path / "history.db"
    first = {"role": "system", "parts": json.loads(system)}
    assert prompts_of(database) == [[first, *LONG[:number]] for number in range(2, 12)]
    found = rows(
        database, "SELECT count(*) AS n FROM _contents WHERE instr(text, ?)", words(99, 200)[:300]
    )
    # The text itself, and the attribute, which is another string.
    assert found[0]["n"] <= 2
    check(database)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the store parses or cuts into pieces from now on."""
    seen: list[str] = []
    scan, strict, whole = lists._scan, lists._strict_scan, Contents.message

    def spy(text: str, at: int) -> tuple[Any, int]:
        value, end = strict(text, at)
        seen.append(text[at:end])
        return value, end

    def spy_message(self: Contents, raw: str) -> int:
        seen.append(raw)
        return whole(self, raw)

    monkeypatch.setattr(lists, "_strict_scan", spy)
    monkeypatch.setattr(lists, "_scan", scan)
    monkeypatch.setattr(contents.Contents, "message", spy_message)
    return seen


def test_what_is_known_is_not_parsed_again(tmp_path: Path, scanned: list[str]) -> None:
    """A prompt that grew costs the scanning of its new messages, once, also with instructions."""
    sent = {"gen_ai.system_instructions": json.dumps([{"type": "text", "content": words(1, 90)}])}
    with store(tmp_path) as writer:
        write(writer, [own_task()])
        write(writer, [own_step(2, prompt=LONG[:10], attributes=sent)])
        scanned.clear()
        write(writer, [own_step(3, prompt=LONG[:11], attributes=sent)])
        new = json.dumps(LONG[10])
        # Once cut off, once for the list as it came, once for the one that begins with the system.
        assert scanned == [new] * 3
        scanned.clear()
        write(writer, [own_step(4, prompt=LONG[:11], attributes=sent)])
        assert scanned == []


def test_a_trimmed_prompt_is_not_parsed_again(tmp_path: Path, scanned: list[str]) -> None:
    """Messages that moved because others were left out are recognised."""
    with store(tmp_path) as writer:
        write(writer, [own_task(), own_step(2, prompt=LONG[:10])])
        scanned.clear()
        write(writer, [own_step(3, prompt=[LONG[0], *LONG[5:10]])])
        assert scanned == []


def test_after_a_restart_nothing_is_stored_twice(tmp_path: Path) -> None:
    """Another process, which remembers nothing, finds what is there by its content."""
    with store(tmp_path) as writer:
        write(writer, [own_task(), own_step(2, prompt=LONG[:10])])
    before = nodes(tmp_path / "history.db")
    with store(tmp_path) as writer:
        write(writer, [own_step(3, prompt=LONG[:11])])
    assert nodes(tmp_path / "history.db") == before + 1
