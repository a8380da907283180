# SPDX-License-Identifier: Apache-2.0
"""The README and the documentation: what they tell people to type does what they say."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from otel_taskhistory import TaskHistory
from tests.docs.blocks import Block, blocks, commands, looks_like
from tests.docs.reader import ROOT, Reader, collector
from tests.recorded import PICTURES, chat, one_task, recording

PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]
PAGES = [page for page in PAGES if not page.startswith("docs/_build/")]

ELSEWHERE = {
    "docs/querying.md": "tests/test_recipes.py",
    "docs/moving.md": "tests/transport/test_moving_docs.py",
    "docs/forward.md": "tests/transport/test_forward_docs.py",
    "docs/fleet.md": "tests/test_fleet_example.py",
    "docs/frameworks.md": "tests/frameworks/guides.py",
}
"""Pages whose blocks other tests run."""

RUN = {"python", "console", "sh", "bash", "js"}
"""Languages of blocks that somebody could run."""

EMPTY = {"docs/tutorial.md"}
"""Pages for those who have no history yet."""


def runnable(page: str) -> list[Block]:
    """Blocks of a page that are run here."""
    found = [block for block in blocks(ROOT / page, page) if block.language in RUN]
    return [block for block in found if "not run" not in block.marks]


HERE = [page for page in PAGES if page not in ELSEWHERE and runnable(page)]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with tasks that succeeded, failed, and one whose process died."""
    folder = tmp_path_factory.mktemp("recorded") / "history"
    with recording(folder) as tasks:
        one_task(tasks, "book a table", steps=2)
        with tasks.task("find the report", agent="desk") as task:
            with task.step("fetch") as step:
                step.prompt(chat("be brief", "find the report"), model="small")
                step.decision("I fetch it", usage={"input_tokens": 50, "output_tokens": 5})
                with step.tool_call("http.get", {"url": "/report"}) as call:
                    call.fail("404: the table closed")
                step.screenshot((PICTURES / "png_ok.png").read_bytes(), caption="not found")
            task.fail("the report is gone")
    program = f"""
        import os
        from otel_taskhistory import configure
        task = configure({str(folder)!r}).task("look around", agent="desk")
        step = task.step("look")
        step.prompt("What is there?", model="small")
        step.screenshot({str(PICTURES / "png_ok.png")!r}, caption="the last one")
        os._exit(9)
    """
    died = subprocess.run([sys.executable, "-c", dedent(program)], cwd=ROOT, check=False)
    assert died.returncode == 9
    return folder


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Address of something that takes OTLP."""
    server = collector()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("page", HERE)
def test_a_page_does_what_it_says(page: str, history: Path, endpoint: str, tmp_path: Path) -> None:
    """A reader saves its files, runs its Python from top to bottom, then its commands."""
    with TaskHistory(history) as opened:
        task_id = opened.task("latest").task_id
    reader = Reader(tmp_path, None if page in EMPTY else history, endpoint, task_id)
    found = runnable(page)
    for block in found:
        if "file" in block.marks:
            reader.save(block)
    python = [one for one in found if one.language == "python" and "file" not in one.marks]
    alone = [[one] for one in python if "program" in one.marks]
    for program in [[one for one in python if "program" not in one.marks], *alone]:
        done = reader.run_python(program)
        assert done.status == 0, done.err
        assert "Traceback" not in done.err
    for block in found:
        if block.language != "python":
            read_console(reader, block)


def read_console(reader: Reader, block: Block) -> None:
    """Type the commands of a block, beginning in the reader's own folder."""
    assert block.language == "console", f"{block.page}:{block.line} is {block.language}"
    where = reader.begin()
    for command in commands(block):
        if installs_what_there_is(command.text) or makes_what_there_is(command.text):
            continue
        done, where = reader.run_console(command, where)
        place = f"{block.page}:{block.line}: {command.text}\n{done.out}\n{done.err}"
        assert done.status in {0, int(block.marks.get("status", 0))}, place
        assert "Traceback" not in done.err, place
        if command.output and block.marks.get("output") != "varies":
            assert looks_like(command.output, done.out), place


def installs_what_there_is(command: str) -> bool:
    """Whether it is a `pip install`: of us, with an extra that we have, or of what we know."""
    if not command.startswith("pip install "):
        return False
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    known = str(project["dependency-groups"]) + str(project["project"])
    for name in re.findall(r"[\w.-]+(?:\[[\w,]+\])?", command.removeprefix("pip install ")):
        package, _, wanted = name.rstrip("]").partition("[")
        assert package in known, command
        assert not wanted or (package == "otel-taskhistory" and set(wanted.split(",")) <= {*extras})
    return True


def makes_what_there_is(command: str) -> bool:
    """Whether it is a `make`; each is a target of the Makefile."""
    match = re.match(r"make ([\w-]+)", command)
    if match is None:
        return False
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{match[1]}:", makefile, re.MULTILINE), command
    return True


def test_what_is_not_run_says_why() -> None:
    """Every block that somebody could run is run, here or by a named test, or has a reason."""
    for page in PAGES:
        for block in blocks(ROOT / page, page):
            if block.language in RUN and page not in ELSEWHERE:
                reason = block.marks.get("not run", "-")
                assert page in HERE or reason != "-", f"{page}:{block.line}"
                assert len(reason.split()) > 2 or reason == "-", f"{page}:{block.line}"
            assert block.language or page in ELSEWHERE, f"{page}:{block.line} has no language"


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_that_other_tests_run_are_named_there(page: str) -> None:
    """So that none of them is forgotten when a test goes."""
    test = (ROOT / ELSEWHERE[page]).read_text(encoding="utf-8")
    assert Path(page).name in test


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Links to files of the repository, and to headings of pages."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if "reference/" in path and not target.exists():
            assert path.startswith(("reference/", "../reference/")), link  # made by `make docs`
            continue
        assert target.exists(), f"{page} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page} links to {link}"


def anchors(page: Path) -> set[str]:
    """Addresses of the headings of a page, as code hosts make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
