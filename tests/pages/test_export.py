# SPDX-License-Identifier: Apache-2.0
"""``export``: a task as a file that needs no history, with or without its contents."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from otel_taskhistory import TaskHistory
from otel_taskhistory.cli.export import export_command
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.pages import data
from otel_taskhistory.pages.animation import animation
from otel_taskhistory.pages.markdown import fenced, plain
from otel_taskhistory.pages.whole import WholeTask
from tests.pages.conftest import FAILED, STEPS, Recorded
from tests.recorded import chat, recording

SECRET = "s3cret"


def run(directory: Path, *arguments: str) -> Result:
    """The command on a history."""
    return CliRunner().invoke(export_command, [*arguments, "--directory", str(directory)])


def export(recorded: Recorded, target: Path, *arguments: str) -> bytes:
    """The file that it writes of the booking."""
    done = run(recorded.directory, recorded.booking, "-o", str(target), *arguments)
    assert done.exit_code == 0, done.output
    return target.read_bytes()


def test_the_page_works_from_a_file(open_page: Any, recorded: Recorded, tmp_path: Path) -> None:
    """Without server and network: the failed step with its picture, the axis, the keyboard."""
    file = tmp_path / "task.html"
    export(recorded, file)
    page = open_page(file.as_uri(), file.as_uri().rpartition("/")[0])
    page.wait_for_selector("#axis[data-ready]")
    shown = page.locator("#pane article:visible")
    assert shown.get_attribute("data-index") == str(FAILED)
    page.wait_for_function(
        "[...document.querySelectorAll('#pane article.shown figure img')]"
        ".some((one) => one.naturalWidth > 1)"
    )
    page.keyboard.press("f")
    assert shown.get_attribute("data-index") == str(STEPS)
    page.keyboard.press("Home")
    assert shown.get_attribute("data-index") == "1"
    page.locator('#steps li[data-index="3"] > a').click()
    assert shown.get_attribute("data-index") == "3"
    page.reload()
    page.wait_for_selector("#axis[data-ready]")
    assert shown.get_attribute("data-index") == "3"
    assert page.locator("#strip img").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_has_every_step_without_a_script(
    open_page: Any, recorded: Recorded, tmp_path: Path
) -> None:
    """Where scripts are off the steps stand one after the other."""
    file = tmp_path / "task.html"
    export(recorded, file)
    page = open_page(
        file.as_uri(), file.as_uri().rpartition("/")[0], java_script_enabled=False, width=390
    )
    assert page.locator("#pane article:visible").count() == STEPS


def test_the_page_carries_its_own_policy(recorded: Recorded, tmp_path: Path) -> None:
    """Only its own style and script may run, and it may load nothing."""
    page = export(recorded, tmp_path / "task.html").decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert policy[1].count("sha256-") == 3
    assert "unsafe" not in policy[1]
    assert not re.search(r'(?:src|href|action)="(?!#|data:image/)', page)


def test_json_has_all_that_the_api_knows(recorded: Recorded, tmp_path: Path) -> None:
    """It is strict JSON; task, steps, calls and pictures are as `TaskHistory` gives them."""
    text = export(recorded, tmp_path / "task.json").decode()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(text, parse_constant=refuse)
    history = recorded.history()
    assert found["task"]["goal"] == "Book a table"
    assert found["redacted"] is False
    steps = history.steps(recorded.booking, limit=100)
    assert [step["step_id"] for step in found["steps"]] == [step.step_id for step in steps]
    for told, step in zip(found["steps"], steps, strict=True):
        assert told["model_calls"][-1]["prompt"] == step.prompt
        assert told["model_calls"][-1]["decision"] == step.decision
        assert told["tool_calls"][0]["result"] == step.tool_result
        assert told["result"] == step.result
        shots = history.screenshots(recorded.booking, step.step_id)
        assert [shot["sha256"] for shot in told["screenshots"]] == [shot.sha256 for shot in shots]
    assert found["steps"][FAILED - 1]["stack_traces"]


def whole_prompts(document: Any) -> dict[str, list[str]]:
    """The messages of each prompt by step, put together as the guide says."""
    whole: dict[tuple[str, int], list[str]] = {}
    by_step = {}
    for step in document["steps"]:
        for call in step["model_calls"]:
            prompt = call["prompt"]
            first = prompt["begins_as"]
            before = whole[first["span_id"], first["ordinal"]] if first else []
            messages = [*before[: first["messages"] if first else 0], *prompt["messages"]]
            assert prompt["total"] == len(messages)
            whole[call["span_id"], call["ordinal"]] = by_step[step["step_id"]] = messages
    return by_step


def test_json_says_each_message_once_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long conversation that grows, is summed up and goes on: each prompt can be had whole."""
    monkeypatch.setattr(data, "WHOLE_UP_TO", 100)
    directory = tmp_path / "history"
    with recording(directory) as tasks, tasks.task("long") as task:
        messages = chat("be brief", "begin")
        for number in range(120):
            if number == 70:  # summed up: what was said before is gone
                messages = [messages[0], {"role": "user", "content": "all so far: marked-summary"}]
            if number == 90:  # a side track that shares a part only
                messages = messages[:9]
            messages = [*messages, {"role": "user", "content": f"marked-{number}-end"}]
            with task.step(f"part {number}") as step:
                step.prompt(messages, model="model-1")
                step.decision("yes")
    target = tmp_path / "task.json"
    done = run(directory, "latest", "-o", str(target))
    assert done.exit_code == 0, done.output
    text = target.read_text()
    for number in range(120):
        assert text.count(f"marked-{number}-end") == 1
    assert text.count("marked-summary") == 1
    whole = whole_prompts(json.loads(text))
    with TaskHistory(directory) as history:
        for step in history.steps("latest", limit=200):
            assert f"[{', '.join(whole[step.step_id])}]" == step.prompt


@pytest.mark.parametrize("up_to", [0, 500])
def test_json_has_a_plain_text_prompt_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_to: int
) -> None:
    """It is that text, also when it was sent before, in a task of any length."""
    monkeypatch.setattr(data, "WHOLE_UP_TO", up_to)
    directory = tmp_path / "history"
    with recording(directory) as tasks, tasks.task("plain") as task:
        for _ in range(2):
            with task.step("ask") as step:
                step.prompt("what now?", model="model-1")
            with task.step("nothing is asked"):
                pass
    target = tmp_path / "task.json"
    assert run(directory, "latest", "-o", str(target)).exit_code == 0
    steps = json.loads(target.read_text())["steps"]
    prompts = [[call["prompt"] for call in step["model_calls"]] for step in steps]
    assert prompts == [["what now?"], [], ["what now?"], []]


def test_markdown_tells_the_task(recorded: Recorded, tmp_path: Path) -> None:
    """Goal, outcome, each step with prompt, decision, calls and error."""
    text = export(recorded, tmp_path / "task.md").decode()
    assert text.startswith("# Book a table\n")
    assert text.count("\n## Step ") == STEPS
    assert "| Outcome | failed |" in text
    assert f"TimeoutError: no answer in step {FAILED}" in text
    assert '"selector": "#day-1"' in text


@pytest.mark.parametrize(
    "text", ["```\n# not a heading", "`" * 9, "plain", "", "~~~", "</details>", "a\r\nb"]
)
def test_nothing_leaves_its_fence(text: str) -> None:
    """A text with fences of its own is in a longer one."""
    fence, *lines = fenced(text, "json").rstrip("\n").split("\n")
    ticks = fence.removesuffix("json")
    assert set(ticks) == {"`"}
    assert lines[-1] == ticks
    assert all(ticks not in line for line in lines[:-1])


@pytest.mark.parametrize(
    "text",
    ["<script>x</script>", "[a](javascript:x)", "![x](https://e.test)", "| a |", "`x`", "@all"],
)
def test_no_markup_in_a_line_of_markdown(text: str) -> None:
    """What would be a link, a picture, a cell or HTML is escaped."""
    assert not re.search(r"(?<!\\)[<>\[\]|`@]", plain(text))
    assert not re.search(r"(?<!\\)://", plain(text))


@pytest.mark.parametrize(("suffix", "kind"), [("gif", "GIF"), ("webp", "WEBP")])
def test_the_screenshots_as_an_animation(
    recorded: Recorded, tmp_path: Path, suffix: str, kind: str
) -> None:
    """One frame for each different screenshot, with room for its caption, each shown a while."""
    file = tmp_path / f"task.{suffix}"
    export(recorded, file)
    with Image.open(file) as image:
        assert image.format == kind
        assert image.n_frames == 1 + (STEPS - 1) // 2
        durations = []
        for frame in range(image.n_frames):
            image.seek(frame)
            image.load()
            durations.append(image.info["duration"])
        assert min(durations) >= 700


def test_an_animation_keeps_to_its_size(tmp_path: Path) -> None:
    """It becomes smaller, and says how many pictures it has left out for that."""
    with recording(tmp_path / "history") as tasks, tasks.task("noisy") as task:
        for _ in range(12):
            with task.step() as step:
                step.screenshot(Image.frombytes("RGB", (400, 300), os.urandom(360_000)))
    with TaskHistory(tmp_path / "history") as history:
        whole = WholeTask(history, task.id)
        free = animation(whole, "WEBP", 100 * 2**20)
        tight = animation(whole, "WEBP", 120_000)
    assert free is not None
    assert tight is not None
    assert (free.frames, free.left_out) == (12, 0)
    assert len(free.data) > 120_000 >= len(tight.data)
    assert tight.frames + tight.left_out == 12


def test_a_task_without_pictures_makes_no_animation(recorded: Recorded, tmp_path: Path) -> None:
    """It says what to do instead, and leaves no file."""
    done = run(recorded.directory, recorded.good, "-o", str(tmp_path / "task.gif"))
    assert isinstance(done.exception, TaskHistoryError)
    assert "no screenshot" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A task in whose every content there is a secret."""
    directory = tmp_path_factory.mktemp("secret") / "history"
    with (
        recording(directory) as tasks,
        tasks.task(f"goal {SECRET}", agent="desk", key=SECRET) as task,
    ):
        with task.step("sign in") as step:
            messages = [
                {"role": "user", "content": f"a {SECRET}", SECRET: SECRET},
                {"role": SECRET, "content": [{"type": SECRET, "text": SECRET}]},
            ]
            step.prompt(messages, model="model-1")
            call = {"id": "call_1", "function": {"name": "fill", "arguments": SECRET}}
            step.decision(
                {"role": "assistant", "content": SECRET, "tool_calls": [call]},
                usage={"input_tokens": 7, "output_tokens": 3},
            )
            with step.tool_call("fill", {"value": SECRET}, call_id="call_1") as tool:
                tool.result(SECRET)
            with step.tool_call("look") as tool:
                tool.fail(SECRET)
            step.screenshot(Image.new("RGB", (9, 9)), caption=SECRET)
            step.result(SECRET)
            try:
                raise ValueError(SECRET)
            except ValueError as error:
                step.fail(error)
        task.fail(SECRET)
    return directory, task.id


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_without_contents_only_the_structure_is_left(
    secret: tuple[Path, str], tmp_path: Path, suffix: str
) -> None:
    """No content and no picture is in the file; names, outcomes and tokens are."""
    directory, task_id = secret
    file = tmp_path / f"task.{suffix}"
    assert SECRET in TaskHistory(directory).task(task_id).goal  # type: ignore[operator]
    done = run(directory, task_id, "-o", str(file), "--redact")
    assert done.exit_code == 0, done.output
    text = file.read_text(encoding="utf-8")
    assert SECRET not in text
    assert (
        "data:image/" not in text.replace("data:;", "").replace("img-src data:", "")
        or suffix != "html"
    )
    for kept in ("sign in", "fill", "failed", "model-1", "ValueError", "7", task_id):
        assert kept in text
    whole = run(directory, task_id, "-o", str(tmp_path / f"whole.{suffix}"))
    assert whole.exit_code == 0
    assert SECRET in (tmp_path / f"whole.{suffix}").read_text(encoding="utf-8")


def test_the_file_is_for_its_user_only(recorded: Recorded, tmp_path: Path) -> None:
    """Mode 0600, whatever the umask."""
    before = os.umask(0)
    try:
        export(recorded, tmp_path / "task.md")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "task.md").stat().st_mode) == 0o600


def test_a_file_is_not_written_over_unless_forced(recorded: Recorded, tmp_path: Path) -> None:
    """What is there stays, byte for byte, until --force."""
    file = tmp_path / "task.md"
    file.write_text("mine")
    done = run(recorded.directory, recorded.booking, "-o", str(file))
    assert isinstance(done.exception, TaskHistoryError)
    assert "--force" in str(done.exception)
    assert file.read_text() == "mine"
    export(recorded, file, "--force")
    assert file.read_text().startswith("# Book a table")
    assert [path.name for path in tmp_path.iterdir()] == ["task.md"]


def test_nothing_is_left_when_it_fails(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not whole is not in its place, nor beside it."""

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(WholeTask, "step", fail)
    done = run(recorded.directory, recorded.booking, "-o", str(tmp_path / "task.html"))
    assert isinstance(done.exception, OSError)
    assert list(tmp_path.iterdir()) == []


def test_standard_output_takes_text(recorded: Recorded) -> None:
    """With --format; pictures do not go there."""
    done = run(recorded.directory, recorded.booking, "-o", "-", "--format", "json")
    assert json.loads(done.output)["task"]["task_id"] == recorded.booking
    for arguments in (["-o", "-"], ["-o", "-", "--format", "gif"]):
        done = run(recorded.directory, recorded.booking, *arguments)
        assert done.exit_code == click.UsageError.exit_code


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "task.pdf"],
        ["-o", "task"],
        ["other", "-o", "task.html"],
        ["-o", "task.gif", "--redact"],
    ],
)
def test_wrong_usage_is_told(recorded: Recorded, tmp_path: Path, arguments: list[str]) -> None:
    """An unknown kind, two tasks for a page, pictures without contents."""
    done = run(recorded.directory, recorded.booking, *arguments)
    assert done.exit_code == click.UsageError.exit_code
    assert not (tmp_path / arguments[-1]).exists()
