# SPDX-License-Identifier: Apache-2.0
"""What the policy knows how to do: for each kind of goal, a pure function from what was seen to a
decision.

Each skill is asked again after every step, with all observations so far, and finds from them how
far it has come. Every number and quotation in an answer is taken from an observation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5}


@dataclass(frozen=True, slots=True)
class Seen:
    """A tool call of an earlier step and what came back."""

    name: str
    arguments: dict[str, Any]
    value: Any
    """The JSON value the tool returned, None when it failed."""
    error: str | None
    """``Type: message`` when it failed."""


@dataclass(frozen=True, slots=True)
class Act:
    """Carry out these calls, side by side, and come back with what they return."""

    said: str
    calls: tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The goal is reached."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The goal cannot be reached."""

    reason: str


Decision = Act | Answer | GiveUp


def decide(goal: str, seen: list[Seen]) -> Decision:
    """The next decision for `goal`, by the first skill whose pattern it matches."""
    for pattern, skill in SKILLS:
        match = re.search(pattern, goal)
        if match:
            return skill(match, seen)
    return GiveUp("this policy has no skill for that goal; a real model may have")


def largest_modules(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """List a package's files, measure the biggest candidates, compare."""
    wanted, package = NUMBERS.get(goal["count"], 3), goal["package"]
    if not seen:
        call = ("list_files", {"path": package, "pattern": "*.py"})
        return Act(f"First the Python files of {package}.", (call,))
    if seen[0].error:
        return GiveUp(f"the files of {package} cannot be listed: {seen[0].error}")
    files = seen[0].value["files"]
    measured = [s.value for s in _of(seen, "measure_module") if not s.error]
    if not _of(seen, "measure_module") and files:
        # Bytes only hint at the number of lines, so twice as many are measured as are wanted.
        calls = tuple(("measure_module", {"path": f["path"]}) for f in files[: 2 * wanted])
        said = f"{len(files)} files. I measure the {len(calls)} with the most bytes."
        return Act(said, calls)
    if not measured:
        return GiveUp(f"no module of {package} could be measured")
    top = sorted(measured, key=lambda module: -int(module["lines"]))[:wanted]
    lines = [
        f"{place}. {m['path']}: {m['lines']} lines ({m['code_lines']} of code), "
        f"{m['functions']} functions, {m['classes']} classes"
        for place, m in enumerate(top, start=1)
    ]
    return Answer("\n".join([f"The {len(top)} largest of {len(files)} modules:", *lines]))


def licence(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Ask for the metadata, then read the places where the licence is stated."""
    project = goal["project"]
    if not seen:
        return Act("I ask what the project says of itself.", (_describe(project),))
    if seen[0].error:
        return GiveUp(f"{project} cannot be described: {seen[0].error}")
    about = seen[0].value
    if len(seen) == 1:
        calls = tuple(
            ("read_file", {"path": path, "max_lines": 5}) for path in about["licence_files"]
        )
        if about["metadata_file"]:
            search = {"path": about["metadata_file"], "text": "License"}
            calls = (("search_text", search), *calls)
        if calls:
            return Act("Now the places where it is stated, all at once.", calls)
    places = [
        f"{match['path']} line {match['line']}: {match['text']}"
        for found in _of(seen, "search_text")
        for match in (found.value or {"matches": []})["matches"]
        if match["text"].startswith(("License-Expression:", "License:", "Classifier: License"))
    ]
    for read in _of(seen, "read_file"):
        if read.value:
            title = " ".join(read.value["text"].split())[:80]
            places.append(f"{read.value['path']} begins: {title}")
    if not places:
        return GiveUp(f"neither the metadata nor a file of {project} states a licence")
    name = about["licence"] or "the licence below"
    return Answer("\n".join([f"{project} {about['version']} uses {name}. It says so in:", *places]))


def most_room(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Find the core dependencies, ask the inventory service for all of them at once, compare."""
    project, url = goal["project"], goal["url"]
    if not seen:
        return Act("I need the list of its core dependencies.", (_describe(project),))
    if seen[0].error:
        return GiveUp(f"{project} cannot be described: {seen[0].error}")
    names = seen[0].value["requires"]
    answers = _of(seen, "http_get")
    if not answers and names:
        calls = tuple(("http_get", {"url": f"{url}/projects/{name}"}) for name in names)
        return Act(f"{len(calls)} dependencies; I ask for all of them in parallel.", calls)
    items = sorted((a.value["body"] for a in answers if not a.error), key=lambda i: -i["bytes"])
    if not items:
        return GiveUp(f"the inventory knows no size of a dependency of {project}")
    lines = [
        f"{i['project']} {i['version']}: {i['bytes']} bytes in {i['files']} files" for i in items
    ]
    lines += [f"not known: {a.error}" for a in answers if a.error]
    total = sum(i["bytes"] for i in items)
    share = 100 * items[0]["bytes"] // max(total, 1)
    first = f"{items[0]['project']}, with {share} % of the {total} bytes of all {len(items)}."
    return Answer("\n".join([first, *lines]))


def broken_endpoint(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Ask a service what it offers, try everything it names, report what fails."""
    url = goal["url"]
    if not seen:
        return Act("The service lists its endpoints itself.", (("http_get", {"url": f"{url}/"}),))
    if seen[0].error:
        return GiveUp(f"the service does not answer: {seen[0].error}")
    endpoints = seen[0].value["body"]["endpoints"]
    tried = seen[1:]
    if not tried and endpoints:
        calls = tuple(("http_get", {"url": f"{url}{path}"}) for path in endpoints)
        return Act(f"I try all {len(calls)} in parallel.", calls)
    broken = [s for s in tried if s.error]
    if not broken:
        return Answer(f"None: all {len(tried)} endpoints answer.")
    lines = [f"{s.arguments['url'].removeprefix(url)}: {s.error}" for s in broken]
    return Answer("\n".join([f"{len(broken)} of {len(tried)} endpoints:", *lines]))


def definition(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Search for the definition of a name, then read it."""
    package, name = goal["package"], goal["name"]
    if not seen:
        calls = tuple(
            ("search_text", {"path": package, "text": f"{kind} {name}", "pattern": "*.py"})
            for kind in ("def", "class")
        )
        return Act("It may be a function or a class; I search for both.", calls)
    failed = next((s for s in seen if s.error), None)
    if failed:
        return GiveUp(f"{package} cannot be searched: {failed.error}")
    places = [
        match
        for found in _of(seen, "search_text")
        for match in found.value["matches"]
        if re.match(rf"(async )?(def|class) {re.escape(name)}\b", match["text"])
    ]
    if not places:
        return GiveUp(f"nothing called {name} is defined in {package}")
    read = _of(seen, "read_file")
    if not read:
        calls = tuple(
            ("read_file", {"path": p["path"], "first_line": p["line"], "max_lines": 30})
            for p in places[:4]
        )
        return Act(f"{len(places)} definitions; I read {len(calls)}.", calls)
    lines = []
    for place, text in zip(places, (r.value["text"] for r in read), strict=False):
        doc = re.search(r'"""\s*(.+?)\s*(?:"""|\n\s*\n)', text, re.DOTALL)
        does = " ".join(doc[1].split()) if doc else "(no docstring)"
        lines.append(f"{place['path']} line {place['line']}: {place['text']} {does}")
    return Answer("\n".join(lines))


def version(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Compare what a command reports with what the metadata claims, asking both at once."""
    project = goal["project"]
    if not seen:
        command = f"python -m {project.replace('-', '_')} --version"
        calls = (_describe(project), ("run_command", {"command": command}))
        return Act("I ask the metadata and the command at the same time.", calls)
    failed = next((s for s in seen if s.error), None)
    if failed:
        return GiveUp(f"{failed.name} failed: {failed.error}")
    claimed, printed = seen[0].value["version"], seen[1].value["output"]
    verdict = "Yes" if claimed in printed.split() else "No"
    return Answer(f'{verdict}: the metadata claims {claimed}, the command prints "{printed}".')


def follow_imports(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Visit the modules that a module needs, one a step, those found first first."""
    start = goal["path"]
    depth = {start: 0}
    for visit in seen:
        if visit.error and visit.arguments["path"] == start:
            return GiveUp(f"{start} cannot be read: {visit.error}")
        for path in (visit.value or {"imports": []})["imports"]:
            depth.setdefault(path, depth[visit.arguments["path"]] + 1)
    visited = {visit.arguments["path"] for visit in seen}
    waiting = [path for path in depth if path not in visited]
    if waiting:
        said = f"{len(visited)} modules read, {len(waiting)} waiting. Next: {waiting[0]}"
        return Act(said, (("module_imports", {"path": waiting[0]}),))
    lines = [f"{'  ' * level}{path}" for path, level in depth.items()]
    deepest = max(depth.values())
    first = f"{len(depth) - 1} further modules, {deepest} imports deep at most, in the order found:"
    unread = [f"not read: {visit.error}" for visit in seen if visit.error]
    return Answer("\n".join([first, *lines, *unread]))


def fetch(goal: re.Match[str], seen: list[Seen]) -> Decision:
    """Fetch something from a service; try once more before giving up."""
    call = ("http_get", {"url": goal["url"]})
    if seen and not seen[-1].error:
        return Answer(f"{goal['what']}: {seen[-1].value['body']}")
    if not seen:
        return Act(f"I ask for {goal['what']}.", (call,))
    if len(seen) == 1:
        return Act("No answer. The service may be restarting; I try once more.", (call,))
    return GiveUp(f"{goal['url']} failed {len(seen)} times, last with {seen[-1].error}")


def _describe(project: str) -> tuple[str, dict[str, Any]]:
    return ("describe_project", {"project": project})


def _of(seen: list[Seen], name: str) -> list[Seen]:
    return [item for item in seen if item.name == name]


Skill = Callable[[re.Match[str], list[Seen]], Decision]
SKILLS: tuple[tuple[str, Skill], ...] = (
    (r"the (?P<count>\w+) largest modules of the Python package (?P<package>\w+)", largest_modules),
    (r"[Ww]hich licence does (?P<project>[\w.-]+) use", licence),
    (
        r"core dependency of (?P<project>[\w.-]+) takes the most room.*?(?P<url>http://[\w.:]+)",
        most_room,
    ),
    (r"[Ww]hich endpoints? of the service at (?P<url>http://[\w.:]+)", broken_endpoint),
    (r"[Ww]here in (?P<package>\w+) is (?P<name>\w+) defined", definition),
    (r"[Dd]oes (?P<project>[\w.-]+) report the version", version),
    (r"[Ff]ollow the imports from .*?(?P<path>\w+/[\w/]+\.py)", follow_imports),
    (r"[Ff]etch (?P<what>.+?) from (?P<url>http://\S+)", fetch),
)
