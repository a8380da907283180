# SPDX-License-Identifier: Apache-2.0
"""Blocks of code in Markdown, with what a comment right above them says of how they are run.

``<!-- not run: REASON -->``
    It cannot be run here.
``<!-- file: NAME -->``
    It is a file that the reader saves.
``<!-- status: N -->``
    A command of it may end with this status.
``<!-- program: of its own -->``
    It does not go on from the Python above it.
``<!-- output: varies -->``
    What is printed below its commands is an example.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MARK = re.compile(r"<!-- ([a-z ]+): (.+) -->")


@dataclass(frozen=True)
class Block:
    """A block of code; `line` is where its fence is, `marks` what the comments above it say."""

    page: str
    line: int
    language: str
    code: str
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A command of a console, and the lines printed below it."""

    text: str
    output: str


def blocks(page: Path, name: str) -> Iterator[Block]:
    """Every block of a page, in order."""
    marks: dict[str, str] = {}
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            code = []
            for _, inside in lines:
                if inside.startswith("```"):
                    break
                code.append(inside)
            yield Block(name, number, line.strip("`").strip(), "\n".join(code), marks)
            marks = {}
        elif match := _MARK.fullmatch(line):
            marks = {**marks, match[1]: match[2]}
        else:
            marks = {}


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; one goes on over lines as long as a quotation is open."""
    text, output = "", []
    for line in block.code.splitlines():
        if text and _is_open(text):
            text += "\n" + line
        elif line.startswith("$ "):
            if text:
                yield Command(text, "\n".join(output))
            text, output = line[2:], []
        else:
            output.append(line)
    if text:
        yield Command(text, "\n".join(output))


def _is_open(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def shape(text: str) -> list[str]:
    """Lines of a text without what differs between two runs: ids, numbers, units, how wide."""
    text = re.sub(r"\b[0-9a-f]{8,}\b", "#", text)
    text = re.sub(r"(?<!\w)[0-9][0-9.,:-]*(?: (?:ms|s|min|B|KiB|MiB)\b)?", "0", text)
    return [re.sub(r"[\s─-]+", " ", line).strip() for line in text.strip().splitlines()]


def looks_like(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; a line ``…`` stands for any lines at its end."""
    wanted, got = shape(shown), shape(printed)
    if wanted and wanted[-1] == "…":
        wanted = wanted[:-1]
        got = got[: len(wanted)]
    return wanted == got
