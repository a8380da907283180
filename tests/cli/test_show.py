# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory show``: what somebody needs to know about a task, at once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.text import width
from tests.recorded import PICTURES, chat, data_url, one_task, recording

from .conftest import Run


def block(text: str, step: int) -> str:
    """The part of the output about one step."""
    parts = text.split("\n── ")
    return next(part for part in parts if part.startswith(f"{step}  "))


@pytest.fixture
def failed(directory: Path) -> str:
    """A task whose agent trims its conversation; then a tool fails. Returns its id."""
    with recording(directory) as tasks:
        task = tasks.task("book a table", agent="desk-1")
        with pytest.raises(ConnectionError), task:
            book_a_table(task)
    return task.id


def book_a_table(task: Any) -> None:
    """Two steps, the second of which fails."""
    first = chat("be brief", "book a table for two", "which day?", "Friday")
    with task.step("open site") as step:
        step.prompt(first, model="model-1")
        step.decision(
            {
                "role": "assistant",
                "content": "I open the site.",
                "tool_calls": [asked_for("open", '{"url": "a.test"}')],
            },
            usage={"input_tokens": 812, "output_tokens": 40},
        )
        with step.tool_call("open", {"url": "a.test"}, call_id="call-1") as call:
            call.result({"title": "Tables"})
        step.screenshot((PICTURES / "png_ok.png").read_bytes(), caption="the site")
        step.result("site is open")
    with task.step("press") as step:
        step.prompt(
            [first[0], first[3], {"role": "user", "content": "the page says: Tables"}],
            model="model-2",
        )
        step.decision("I press go.")
        with step.tool_call("press", {"selector": "#go"}):
            raise ConnectionError("the site went away")


def asked_for(name: str, arguments: str) -> dict[str, Any]:
    """A tool call as a chat model asks for it."""
    return {
        "id": "call-1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def test_failure_comes_first(run: Run, failed: str) -> None:
    """The first line says what failed, the next at which step and why."""
    lines = run("show", failed[:8]).stdout.splitlines()
    assert lines[0].split(None, 2) == ["✗", "failed", "book a table"]
    assert lines[1] == "failed at step 2 (press): ConnectionError: the site went away"


def test_the_facts_of_the_task_are_there(run: Run, failed: str) -> None:
    """Id, agent, model, times with their zone, tokens, steps by outcome."""
    facts = {
        line[:10].strip(): line[10:] for line in run("show", "latest").stdout.splitlines()[2:9]
    }
    assert facts["task"] == failed
    assert facts["agent"] == "desk-1 · model-2"
    assert facts["tokens"] == "812 in · 40 out"
    assert facts["steps"] == "2 (1 failed, 1 succeeded)"
    assert " UTC → " in facts["when"]


def test_a_step_shows_all_that_happened_in_it(run: Run, failed: str, directory: Path) -> None:
    """Prompt, decision, tool call with arguments and result, picture, result, tokens."""
    text = block(run("show", failed).stdout, 1)
    assert text.startswith("1  open site ─")
    assert " · model-1 · 812→40 tokens" in text
    assert "prompt    4 messages, the first prompt" in text
    assert "  + system    be brief" in text
    assert "  + user      book a table for two" in text
    assert "decision  I open the site." in text
    assert 'tool      ✓ open(url="a.test")  ' in text
    assert '= {"title": "Tables"}' in text
    assert "result    site is open" in text
    assert " image/png, " in text
    assert '"the site"' in text
    with TaskHistory(directory) as history:
        (shot,) = history.screenshots(failed)
    assert f"picture   {directory}/artifacts/{shot.path}\n" in text


def test_a_step_shows_what_is_new_and_what_the_agent_removed(run: Run, failed: str) -> None:
    """Against the prompt of the step before."""
    text = block(run("show", failed).stdout, 2)
    assert "prompt    3 messages · 1 new · 2 removed" in text
    assert "  − user      book a table for two" in text
    assert "  − assistant which day?" in text
    assert "  + user      the page says: Tables" in text
    assert "be brief" not in text
    assert 'tool      ✗ press(selector="#go")' in text
    assert "error     ConnectionError: the site went away" in text


def test_a_step_is_shown_whole(run: Run, failed: str) -> None:
    """Every message of the prompt with its number and role, times, ids, the stack trace."""
    text = run("show", failed, "--step", "2").stdout
    assert "prompt  3 messages" in text
    for number, role, said in (
        (1, "system", "be brief"),
        (2, "user", "Friday"),
        (3, "user", "the page says: Tables"),
    ):
        assert f"  {number} {role}\n    {said}\n" in text
    assert "decision\n  text\n    I press go." in text
    assert "Traceback (most recent call last):" in text
    assert "ConnectionError: the site went away" in text


def test_a_step_can_be_named_by_its_id(run: Run, failed: str, directory: Path) -> None:
    """As shown by other programs."""
    with TaskHistory(directory) as history:
        step = history.steps(failed)[1]
    assert run("show", failed, "--step", step.step_id).stdout == (
        run("show", failed, "--step", "2").stdout
    )


def test_long_texts_are_shortened_and_it_says_so(run: Run, directory: Path) -> None:
    """How many characters are missing, and the command that shows them, which does."""
    long = "".join(f"word{number} " for number in range(3000))
    with recording(directory) as tasks, tasks.task("long") as task, task.step("say") as step:
        step.prompt(chat("be brief", long), model="m")
        step.decision(long)
        with step.tool_call("look", {"at": long}) as call:
            call.result(long)
        step.result(long)
    text = run("show", "latest").stdout
    assert text.count(" more characters") == 5
    assert len(text) < 8000
    assert (
        f"all of it otel-taskhistory show {task.id[:8]} --step 1 " in text.replace("python -m ", "")
        or "--step 1" in text
    )
    whole = run("show", "latest", "--step", "1").stdout
    assert whole.count("word2999") == 5
    assert "more characters" not in whole


def test_parallel_tool_calls_are_seen_as_such(run: Run, directory: Path) -> None:
    """Those that overlap in time are marked, each with its own duration and outcome."""
    both = threading.Barrier(2)

    def look(step: Any, name: str) -> None:
        with step.tool_call("look", {"at": name}) as call:
            both.wait()
            call.fail("is not there") if name == "b" else call.result("found")

    with recording(directory) as tasks, tasks.task("two") as task, task.step("look") as step:
        threads = [threading.Thread(target=look, args=(step, name)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with step.tool_call("later") as call:
            call.result("alone")
    text = run("show", "latest").stdout
    assert "tools     2 in parallel, " in text
    assert '∥ ✓ look(at="a")  ' in text
    assert '∥ ✗ look(at="b")  ' in text
    assert "! is not there" in text
    assert "          ✓ later()  " in text


def test_what_was_printed_a_moment_ago_is_not_repeated(run: Run, directory: Path) -> None:
    """The decision and the tool result of the step before stand in the next prompt as a pointer."""
    with recording(directory) as tasks, tasks.task("growing") as task:
        messages: list[dict[str, Any]] = chat("be brief", "look around")
        asked = {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [asked_for("look", "{}")],
        }
        with task.step("one") as step:
            step.prompt(messages, model="m")
            step.decision(asked)
            with step.tool_call("look", {}, call_id="call-1") as call:
                call.result({"seen": "a red square"})
        answer = {"role": "tool", "tool_call_id": "call-1", "content": '{"seen":"a red square"}'}
        with task.step("two") as step:
            step.prompt([*messages, asked, answer], model="m")
            step.decision("done")
        changed = {**answer, "content": '{"seen": "something else"}'}
        with task.step("three") as step:
            step.prompt([*messages, asked, changed], model="m")
    text = run("show", "latest").stdout
    assert "+ assistant (what it decided in step 1)" in block(text, 2)
    assert "+ tool      ← (the result of look, above)" in block(text, 2)
    assert '+ tool      ← {"seen": "something else"}' in block(text, 3)


def test_pictures_in_messages_are_named_not_dumped(run: Run, directory: Path) -> None:
    """Their bytes are in files; the message shows a short name, the step where the file is."""
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": data_url("png_ok.png")}},
    ]
    with recording(directory) as tasks, tasks.task("see") as task, task.step("look") as step:
        step.prompt([{"role": "user", "content": content}], model="m")
        step.decision("a square")
    for text in (run("show", "latest").stdout, run("show", "latest", "--step", "1").stdout):
        assert "iVBOR" not in text
        assert "image" in text
        assert f"shown     {directory}/artifacts/" in text


def test_a_picture_whose_file_is_gone_is_told(run: Run, failed: str, directory: Path) -> None:
    """Instead of a path that leads nowhere."""
    for path in (directory / "artifacts").glob("*/*.png"):
        path.unlink()
    assert "(the file is gone)" in block(run("show", failed).stdout, 1)


def test_a_running_task_is_shown_as_it_is_now(run: Run, directory: Path) -> None:
    """Running for how long, with the prompt it is thinking about."""
    with recording(directory) as tasks, tasks.task("now") as task, task.step("think") as step:
        step.prompt(chat("be brief", "what now?"), model="m")
        text = run("show", "latest").stdout
    assert text.startswith("● running")
    assert " · running for " in text
    assert "  + user      what now?" in text


def test_a_long_task_is_shown_in_pages(run: Run, directory: Path) -> None:
    """It says how many steps there are, and the command for the next ones, which works."""
    with recording(directory) as tasks:
        one_task(tasks, steps=5)
    text = run("show", "latest", "--limit", "2").stdout
    assert "showing 2 of 5 steps; next:" in text
    cursor = text.split("--cursor ")[1].split()[0]
    rest = run("show", "latest", "--cursor", cursor).stdout
    assert [line.split()[1] for line in rest.splitlines() if line.startswith("── ")] == list("345")
    assert "+ user      go on after 2" in block(rest, 3)
    assert "a goal" not in rest.splitlines()[0]


def test_json_has_every_step_with_what_belongs_to_it(run: Run, directory: Path) -> None:
    """One strict document: the task's columns and its steps, prompts complete."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=23)
    document = json.loads(run("show", task_id, "--json").stdout, parse_constant=pytest.fail)
    with TaskHistory(directory) as history:
        assert document["goal"] == history.task(task_id).goal
        for shown, stored in zip(document["steps"], history.steps(task_id), strict=True):
            for name in ("step_id", "prompt", "decision", "result", "duration_ms"):
                assert shown[name] == getattr(stored, name)
            (tool,) = shown["tool_calls"]
            assert tool["arguments"] == history.tool_calls(task_id, stored.step_id)[0].arguments
            assert shown["screenshots"] == []
    assert len(json.loads(run("show", task_id, "--json", "--limit", "4").stdout)["steps"]) == 4
    with recording(directory) as tasks, tasks.task("no steps"):
        pass
    assert json.loads(run("show", "latest", "--json").stdout)["steps"] == []


def test_json_of_a_step_has_its_model_calls(run: Run, directory: Path) -> None:
    """A step that asked twice has both, each with its prompt."""
    with recording(directory) as tasks, tasks.task("twice") as task, task.step("ask") as step:
        step.prompt("first try", model="m")
        step.decision("bad")
        step.prompt("second try", model="m")
        step.decision("good")
    document = json.loads(run("show", "latest", "--step", "1", "--json").stdout)
    assert document["prompt"] == "second try"
    assert [call["prompt"] for call in document["model_calls"]] == ["first try", "second try"]
    text = run("show", "latest").stdout
    assert "model call 1 of 2" in text
    assert "second try" in text


@pytest.mark.parametrize("columns", [12, 20, 40, 80, 120])
@pytest.mark.parametrize("arguments", [[], ["--step", "1"], ["--step", "2"]])
def test_it_fits_the_screen(run: Run, failed: str, arguments: list[str], columns: int) -> None:
    """All but what is to be copied: paths of pictures and commands stay on one line."""
    result = run("show", failed, *arguments, columns=columns)
    assert (result.exit_code, result.stderr) == (0, "")
    for line in result.stdout.splitlines():
        assert width(line) <= columns or "/artifacts/" in line or "otel-taskhistory" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "there is no task 'nope'; the newest: "),
        (["latest", "--step", "9"], "has no step 9: it has 2 steps"),
        (["latest", "--step", "abcdefabcdefabcd"], "there is no step 'abcdefabcdefabcd' in task "),
        (["latest", "--cursor", "x"], "'x' is no cursor"),
    ],
)
def test_what_is_not_there_is_status_1(
    run: Run, failed: str, arguments: list[str], words: str
) -> None:
    """One line on stderr that helps."""
    result = run("show", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("otel-taskhistory: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_step_and_paging_exclude_each_other(run: Run, failed: str) -> None:
    """That is wrong usage."""
    assert run("show", failed, "--step", "1", "--limit", "3").exit_code == 2


def test_what_the_sdk_cut_off_is_told(run: Run, directory: Path) -> None:
    """Attributes over the limit of the SDK are missing from the record: the reader must know."""
    with recording(directory) as tasks, tasks.task("many") as task, task.step("s") as step:
        for number in range(300):
            step.span.set_attribute(f"k{number}", number)
    assert "the SDK's limits cut off " in run("show", "latest").stdout
