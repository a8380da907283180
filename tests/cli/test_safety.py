# SPDX-License-Identifier: Apache-2.0
"""Whatever a model, a page or a tool wrote: it is shown, and never acts on the terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.cli.terminal import Screen
from tests.recorded import PICTURES, chat, recording

from .conftest import Run

ROOT = Path(__file__).parents[2]
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def hostile_texts() -> list[str]:
    """Names and values of the spans in the test data that try to act."""
    document = json.loads((ROOT / "tests" / "data" / "hostile_text.jsonl").read_text())
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key in ("stringValue", "name") and isinstance(item, str):
                    found.append(item)
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(document)
    return list(dict.fromkeys(found))


HOSTILE = [
    *hostile_texts(),
    "nul \x00 in the middle",
    "\x1b[1A\x1b[2K✓ succeeded",
    "line one\n\x1b]8;;http://evil.test\x1b\\two",
    "\u2066isolate\u2069 \u2028 \ufeff \U000e0041",
    "\x85\x9d0;title\x9c",
]


def acts(text: str) -> list[str]:
    """The characters of an output that a terminal would obey."""
    return [
        character
        for character in text
        if character != "\n"
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or character in "\u061c\u200b\u200e\u200f\ufeff\U000e0041"
            or unicodedata.bidirectional(character)
            in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        )
    ]


@pytest.fixture
def hostile(directory: Path) -> int:
    """A history in which every text is hostile; returns how many tasks."""
    picture = (PICTURES / "png_ok.png").read_bytes()
    with recording(directory) as tasks:
        for text in HOSTILE:
            with tasks.task(text, agent=text, conversation_id=text, key=text) as task:
                with task.step(text) as step:
                    step.prompt([*chat(text, text), {"role": text, "content": text}], model=text)
                    step.decision(text, finish_reason=text)
                    with step.tool_call(text, {text: text}, call_id=text) as call:
                        call.result(text)
                    with step.tool_call(text, text) as call:
                        call.fail(text)
                    step.screenshot(picture, caption=text)
                    step.fail(text)
                task.fail(text)
    return len(HOSTILE)


@pytest.mark.parametrize("columns", [20, 80])
def test_lists_and_pages_hold_no_character_that_acts(run: Run, hostile: int, columns: int) -> None:
    """In the list, in each task, in each step shown whole."""
    result = run("tasks", columns=columns)
    assert (result.exit_code, acts(result.stdout)) == (0, [])
    lines = result.stdout.splitlines()
    if columns < 80:  # a task takes several lines there
        assert len(lines) >= 2 * hostile
        assert max(map(len, lines)) <= columns
    else:
        assert len(lines) == hostile + 1
    for line in run("tasks").stdout.splitlines()[1:]:
        for arguments in ([], ["--step", "1"]):
            result = run("show", line.split()[0], *arguments, columns=columns)
            assert (result.exit_code, result.stderr) == (0, "")
            assert acts(result.stdout) == []


def test_what_is_hidden_is_written_out(run: Run, hostile: int) -> None:
    """The reader sees that something was there, and what."""
    text = run("tasks", columns=200).stdout
    assert r"\x1b[2J\x1b[1;31mfake prompt$\x1b[0m" in text
    assert r"user\u202etxt.exe" in text
    assert r"nul \x00 in the middle" in text


def test_json_is_safe_to_print_and_exact(run: Run, hostile: int) -> None:
    """One strict document whose values are the recorded ones, without a character that acts."""
    result = run("tasks", "--json", "--limit", "100")
    assert acts(result.stdout) == []
    assert [row["goal"] for row in json.loads(result.stdout)] == HOSTILE[::-1]
    result = run("show", "latest", "--json")
    assert acts(result.stdout) == []
    assert json.loads(result.stdout)["steps"][0]["name"] == HOSTILE[-1]


def test_csv_keeps_every_text(run: Run, hostile: int) -> None:
    """Piped, CSV is data: but for the apostrophe before a formula nothing is changed."""
    result = run("tasks", "--csv", "--limit", "100")
    rows = list(csv.DictReader(io.StringIO(result.stdout_bytes.decode(), newline="")))
    assert [row["goal"].removeprefix("'") for row in rows] == HOSTILE[::-1]


def test_an_error_message_is_one_safe_line(run: Run, hostile: int) -> None:
    """Also when it repeats what somebody pasted into the command line."""
    result = run("show", "\x1b[2J\u202e\nx")
    assert result.exit_code == 1
    assert (acts(result.stderr), result.stderr.count("\n")) == ([], 1)
    assert acts(run("tasks", "--since", "\x1b[2J\u202e").stderr) == []
    assert acts(run("\x1b[2J").stderr) == []


# --- on a terminal --------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the command writes to a terminal."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_taskhistory", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end was closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    assert process.wait() == 0
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_nothing_else(hostile: int, directory: Path) -> None:
    """The only control sequences are our own styles."""
    for arguments in (
        ["tasks"],
        ["show", "latest"],
        ["show", "latest", "--step", "1"],
        ["tasks", "--csv"],
        ["stats"],
    ):
        text = on_a_terminal(*arguments, "--directory", str(directory))
        if arguments[0] != "stats" and "--csv" not in arguments:
            assert STYLE.search(text)
        assert acts(STYLE.sub("", text)) == []


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_switched_off(
    hostile: int, directory: Path, environment: dict[str, str]
) -> None:
    """As no-color.org says, and on a terminal that has none."""
    text = on_a_terminal("show", "latest", "--directory", str(directory), **environment)
    assert "\x1b" not in text


def test_a_pipe_gets_no_colours(run: Run, hostile: int) -> None:
    """Nor an unknown width: 100 columns."""
    assert "\x1b" not in run("show", "latest").stdout


def test_every_style_is_safe_whatever_is_printed() -> None:
    """Each way of printing makes its text printable."""
    for text in HOSTILE:
        file = io.StringIO()
        screen = Screen(file, columns=40, colour=True)
        screen.line((text, "bold"), (text, "bad"), indent=3)
        screen.block(text, "dim", label=(text, "name"), room=6)
        screen.whole(text, "good", label=(text, "alarm"), room=6)
        screen.rule([(text, "title")], [(text, "busy")])
        screen.table(["a", "b"], [[(text, ""), (text, "name")]], right={0})
        assert acts(STYLE.sub("", file.getvalue())) == []
