# SPDX-License-Identifier: Apache-2.0
"""What is built and shipped: the wheel, its entry points, its version, and the commands shown."""

from __future__ import annotations

import configparser
import email.message
import email.parser
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest

from otel_taskhistory._version import __version__

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel as users get it, built from this folder without a network."""
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = target.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def dist_info(wheel: zipfile.ZipFile, name: str) -> str:
    """The text of a file of the wheel's metadata."""
    (member,) = (m for m in wheel.namelist() if m.endswith(f".dist-info/{name}"))
    return wheel.read(member).decode("utf-8")


def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    """The wheel's METADATA."""
    return email.parser.Parser().parsestr(dist_info(wheel, "METADATA"))


def entry_points(wheel: zipfile.ZipFile) -> list[EntryPoint]:
    """The wheel's entry points of every group."""
    parser = configparser.ConfigParser()
    parser.read_string(dist_info(wheel, "entry_points.txt"))
    return [
        EntryPoint(name, value, group)
        for group in parser.sections()
        for name, value in parser[group].items()
    ]


def test_the_wheel_is_typed_and_licensed(wheel: zipfile.ZipFile) -> None:
    """Type checkers use our types, and the licence is in the wheel."""
    assert "otel_taskhistory/py.typed" in wheel.namelist()
    assert "Apache License" in dist_info(wheel, "licenses/LICENSE")
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Every file of the package is in the wheel, with the demo's agent; tests are not."""
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "otel_taskhistory").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    agent = ROOT / "examples" / "host_agent"
    ours |= {
        f"otel_taskhistory/demo/host_agent/{path.relative_to(agent).as_posix()}"
        for path in agent.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == ours


def test_the_wheel_asks_for_what_the_contract_says(wheel: zipfile.ZipFile) -> None:
    """Installing it brings the six core packages and no others; all else is an extra."""
    required = metadata(wheel).get_all("Requires-Dist") or []
    core = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert core == {
        "opentelemetry-api",
        "opentelemetry-sdk",
        "sqlite-utils",
        "pillow",
        "platformdirs",
        "click",
    }
    assert metadata(wheel)["Requires-Python"] == ">=3.11"


def test_the_extra_all_brings_every_extra() -> None:
    """`otel-taskhistory[all]` leaves no extra out."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("otel-taskhistory[").removesuffix("]").split(",")
    assert {*named, "all"} == set(extras)


def test_every_entry_point_resolves(wheel: zipfile.ZipFile) -> None:
    """What others find by our entry points exists."""
    found = entry_points(wheel)
    assert {(point.group, point.name) for point in found} >= {
        ("console_scripts", "otel-taskhistory"),
        ("opentelemetry_traces_exporter", "taskhistory"),
        ("pytest11", "taskhistory"),
    }
    for point in found:
        assert point.load() is not None


def test_versions_agree(wheel: zipfile.ZipFile) -> None:
    """The package, the wheel, the installed metadata and the changelog say the same version."""
    assert metadata(wheel)["Version"] == __version__
    assert version("otel-taskhistory") == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.split(r"(?m)^## ", changelog)[1]
    assert re.search(rf"(?<![\d.]){re.escape(__version__)}(?![\d]|\.\d)", newest)


def test_the_package_runs_as_a_module() -> None:
    """`python -m otel_taskhistory` is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "otel_taskhistory", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"tasks", "show", "demo"} <= set(done.stdout.split())


def test_the_make_commands_shown_exist() -> None:
    """Each `make NAME` in the README, in CI and in the Makefile's own help is a target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^([a-z]+):", makefile))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"(?ms)^```.*?^```|`[^`\n]+`", readme))
    shown = set(re.findall(r"\bmake ([a-z]+)", code))
    assert {"demo", "test"} <= shown
    assert shown <= targets
    assert set(re.findall(r"\bmake ([a-z]+)", (ROOT / ".ci/run").read_text("utf-8"))) == {"test"}
