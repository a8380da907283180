# SPDX-License-Identifier: Apache-2.0
"""The agent's tools on real files, a real service and real commands."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.demo.host_agent import tools as tools_module
from otel_taskhistory.demo.host_agent.demo import unused_port
from otel_taskhistory.demo.host_agent.service import InventoryService
from otel_taskhistory.demo.host_agent.tools import (
    CommandError,
    HttpError,
    describe_project,
    http_get,
    run_command,
    standard_tools,
)
from otel_taskhistory.demo.host_agent.workspace import Workspace


def test_files_are_listed_largest_first(workspace: Workspace, shop: Path) -> None:
    """With their sizes, only those that match, and none of a cache."""
    (shop / "__pycache__").mkdir()
    (shop / "__pycache__" / "old.py").write_text("x" * 999)
    found = workspace.list_files("shop", "*.py")
    assert found["total"] == 5
    assert found["files"][0] == {
        "path": "shop/parts/bolt.py",
        "bytes": (shop / "parts" / "bolt.py").stat().st_size,
    }
    assert found["files"][-1] == {"path": "shop/parts/__init__.py", "bytes": 0}
    assert workspace.list_files("shop")["total"] == 6


def test_files_are_read_in_parts(workspace: Workspace) -> None:
    """From a line on, so many lines; the total tells whether there is more."""
    assert workspace.read_file("shop/desk.py", first_line=6, max_lines=2) == {
        "path": "shop/desk.py",
        "first_line": 6,
        "total_lines": 10,
        "text": 'def sell(item):\n    """Sell one item.',
    }
    assert workspace.read_file("shop/desk.py", first_line=99)["text"] == ""


def test_bytes_that_are_no_text_are_read_all_the_same(workspace: Workspace, shop: Path) -> None:
    """With replacement characters, not with an error."""
    (shop / "raw.bin").write_bytes(b"a\xff\x00b")
    assert workspace.read_file("shop/raw.bin")["text"] == "a\ufffd\x00b"


def test_a_module_is_measured(workspace: Workspace) -> None:
    """Lines, those with code, functions and classes, methods included."""
    assert workspace.measure_module("shop/till.py") == {
        "path": "shop/till.py",
        "lines": 5,
        "code_lines": 2,
        "functions": 1,
        "classes": 1,
    }


def test_text_is_searched_letter_by_letter(workspace: Workspace) -> None:
    """In all files below a directory or in one file, with the line it stands in."""
    found = workspace.search_text("shop", "count it")
    assert [(m["path"], m["line"], m["text"]) for m in found["matches"]] == [
        ("shop/desk.py", 9, "And count it."),
        ("shop/notes.txt", 1, "till: count it"),
    ]
    assert workspace.search_text("shop/notes.txt", "count")["total"] == 1
    assert workspace.search_text("shop", "c.unt")["total"] == 0


def test_imports_of_the_package_are_found(workspace: Workspace) -> None:
    """Relative ones, absolute ones and submodules; not those of other packages."""
    assert workspace.module_imports("shop/desk.py")["imports"] == [
        *("shop/till.py", "shop/__init__.py", "shop/parts/bolt.py"),
    ]
    assert workspace.module_imports("shop/parts/bolt.py")["imports"] == ["shop/till.py"]


@pytest.mark.parametrize("path", ["shop/../secret", "shop/link", "/etc/hostname", "..", ""])
def test_nothing_outside_the_workspace_is_read(workspace: Workspace, shop: Path, path: str) -> None:
    """Neither by dots nor by links nor by absolute paths."""
    (shop.parent / "secret").write_text("key")
    (shop / "link").symlink_to(shop.parent / "secret")
    with pytest.raises(PermissionError):
        workspace.read_file(path)


def test_a_walk_does_not_follow_links_out(workspace: Workspace, shop: Path) -> None:
    """Listing and searching keep to the workspace as reading does."""
    (shop.parent / "secret").write_text("count it")
    (shop / "link.py").symlink_to(shop.parent / "secret")
    assert "shop/link.py" not in {f["path"] for f in workspace.list_files("shop")["files"]}
    assert "shop/link.py" not in {
        m["path"] for m in workspace.search_text("shop", "count it")["matches"]
    }


def test_a_missing_file_is_named(workspace: Workspace) -> None:
    """As the agent wrote it, without the machine's own path."""
    with pytest.raises(FileNotFoundError, match=r"^shop/none.py: no such file or directory$"):
        workspace.read_file("shop/none.py")


def test_installed_projects_make_a_workspace() -> None:
    """Code and metadata of what is installed; what is not is left out."""
    workspace = Workspace.of_installed("sqlite-utils", "no-such-project-at-all")
    code, metadata = workspace.names
    assert code == "sqlite_utils"
    assert "Name: sqlite-utils" in workspace.read_file(f"{metadata}/METADATA")["text"]


def test_a_project_is_described() -> None:
    """Version, licence and core requirements, as its metadata has them."""
    about = describe_project("sqlite-utils")
    assert about["project"] == "sqlite-utils"
    assert about["metadata_file"].startswith(f"sqlite_utils-{about['version']}")
    assert "click" in about["requires"]
    assert "pytest" not in about["requires"]


def test_the_service_tells_of_this_environment() -> None:
    """A project's size is that of its files on the disk."""
    with InventoryService() as service:
        body = http_get(f"{service.url}/projects/sqlite-utils")["body"]
        names = http_get(f"{service.url}/projects")["body"]["projects"]
    assert body["bytes"] > 100_000
    assert body["version"] == describe_project("sqlite-utils")["version"]
    assert "sqlite-utils" in names


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/projects/no-such-project-at-all", 404),
        ("/nowhere", 404),
        ("/projects/no-such-project-at-all/signature", 404),
        ("/projects/sqlite-utils/signature", 500),
    ],
)
def test_the_service_really_fails(path: str, status: int) -> None:
    """Any HTTP client sees the status; the agent's tool says it and shows the body."""
    with InventoryService() as service:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{service.url}{path}")  # noqa: S310  (loopback)
        with raised.value as response:
            assert response.code == status
            assert "error" in json.loads(response.read())
        with pytest.raises(HttpError, match=f"^{status} .*error"):
            http_get(f"{service.url}{path}")


def test_the_service_starts_and_stops_by_itself() -> None:
    """Two run at once on ports of their own; afterwards nothing listens and no thread is left."""
    before = set(threading.enumerate())
    with InventoryService() as one, InventoryService() as two:
        assert one.url != two.url
        assert http_get(f"{one.url}/health")["body"]["status"] == "ok"
        assert http_get(f"{two.url}/health")["status"] == 200
    with pytest.raises(ConnectionRefusedError):
        http_get(f"{one.url}/health")
    assert not [t for t in set(threading.enumerate()) - before if t.name == "inventory-service"]


@pytest.mark.parametrize(
    "url", ["https://example.org/", "http://example.org/", "file:///etc/hostname", "127.0.0.1"]
)
def test_only_this_machine_is_asked(url: str) -> None:
    """Other hosts and schemes are refused before anything is sent."""
    with pytest.raises(PermissionError, match="loopback"):
        http_get(url)


def test_a_closed_port_refuses() -> None:
    """The port that the demo's failing goal uses really has no listener."""
    with pytest.raises(ConnectionRefusedError):
        http_get(f"http://127.0.0.1:{unused_port()}/")


def test_commands_run() -> None:
    """The output is that of the program."""
    version = ".".join(map(str, sys.version_info[:3]))
    found = run_command("python --version")
    assert found["exit_status"] == 0
    assert found["output"].startswith(f"Python {version}")


def test_other_commands_are_refused() -> None:
    """Only the fixed ones run."""
    with pytest.raises(PermissionError, match="is none of"):
        run_command("python --version; id")


def test_a_command_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status and the end of its stderr."""
    argv = [sys.executable, "-c", "import sys; sys.exit('no paper')"]
    monkeypatch.setitem(tools_module.COMMANDS, "print", argv)
    with pytest.raises(CommandError, match="exit status 1: no paper"):
        run_command("print")


def test_the_model_is_told_of_every_tool(workspace: Workspace) -> None:
    """Each definition has a description, and its required arguments are among its properties."""
    definitions: list[dict[str, Any]] = standard_tools(workspace).definitions()
    assert len({d["function"]["name"] for d in definitions}) == len(definitions) == 8
    for definition in definitions:
        function = definition["function"]
        assert function["description"].endswith(".")
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
