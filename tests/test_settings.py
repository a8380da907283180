# SPDX-License-Identifier: Apache-2.0
"""Settings: argument, else environment, else default; a bad value is one clear sentence."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.settings import (
    Retention,
    Settings,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

NO_ENVIRONMENT: Mapping[str, str] = {}


def resolve(environ: Mapping[str, str] = NO_ENVIRONMENT, **arguments: Any) -> Settings:
    """`Settings.resolve` in an environment of the test's own."""
    return Settings.resolve(environ=environ, **arguments)


def env(**settings: str) -> dict[str, str]:
    """An environment of ``OTEL_TASKHISTORY_*``; the prefix is added."""
    return {f"OTEL_TASKHISTORY_{name}": value for name, value in settings.items()}


# --- defaults ---------------------------------------------------------------------------------


def test_defaults_are_those_of_the_contract() -> None:
    """With nothing given, the history of `host-agent` lies in the user's state folder."""
    home = platformdirs.user_state_path("otel-taskhistory") / "host-agent"
    assert resolve() == Settings(
        directory=home,
        database=home / "history.db",
        artifacts=home / "artifacts",
        owner="host-agent",
        owner_explicit=False,
        directory_explicit=False,
        retention=Retention(max_age=timedelta(days=30), max_tasks=1000, max_bytes=2 * 2**30),
        durability="full",
        busy_timeout=5.0,
    )


def test_two_owners_with_default_settings_have_nothing_in_common() -> None:
    """Another owner has another directory, and so another database and artifact folder."""
    agent, runtime = resolve(), resolve(owner="local-runtime")
    assert agent.directory != runtime.directory
    assert agent.directory not in (*runtime.database.parents, *runtime.artifacts.parents)
    assert runtime.directory not in (*agent.database.parents, *agent.artifacts.parents)


def test_the_process_environment_is_read_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without `environ`, the variables are those of the process."""
    monkeypatch.setenv("OTEL_TASKHISTORY_DIRECTORY", str(tmp_path))
    assert Settings.resolve().directory == tmp_path


def test_the_default_directory_follows_the_xdg_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default lies where platformdirs says that a user's state belongs."""
    monkeypatch.setattr(platformdirs, "user_state_path", lambda name: tmp_path / name)
    assert resolve().directory == tmp_path / "otel-taskhistory" / "host-agent"


def test_settings_touch_no_disk(tmp_path: Path) -> None:
    """Deciding where a history would be makes nothing there."""
    resolve(directory=tmp_path / "a", database=tmp_path / "b.db", artifacts=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_settings_load_neither_opentelemetry_nor_sqlite() -> None:
    """The lowest layer needs the standard library only, until a default directory is asked for."""
    program = (
        "import sys, types; package = types.ModuleType('otel_taskhistory');"
        "package.__path__ = [sys.argv[1]]; sys.modules['otel_taskhistory'] = package;"
        "before = set(sys.modules);"  # what a coverage tool in the process has loaded
        "import otel_taskhistory.settings;"
        "print({'opentelemetry', 'sqlite3', 'platformdirs'} & (set(sys.modules) - before))"
    )
    package = Path(sys.modules["otel_taskhistory.settings"].__file__ or "").parent
    done = subprocess.run(
        [sys.executable, "-c", program, str(package)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


# --- precedence -------------------------------------------------------------------------------

PRECEDENCE = [
    ("owner", "OWNER", "by-argument", "by-environment", "owner"),
    ("directory", "DIRECTORY", "/by/argument", "/by/environment", "directory"),
    ("database", "DATABASE", "/by/argument.db", "/by/environment.db", "database"),
    ("artifacts", "ARTIFACTS", "/by/argument", "/by/environment", "artifacts"),
    ("durability", "DURABILITY", "full", "normal", "durability"),
    ("busy_timeout", "BUSY_TIMEOUT", "1.5", "2.5", "busy_timeout"),
]


@pytest.mark.parametrize(("argument", "variable", "given", "from_env", "field"), PRECEDENCE)
def test_an_argument_beats_the_environment(
    argument: str, variable: str, given: str, from_env: str, field: str
) -> None:
    """Argument, else environment: for each setting that is one value."""
    environ = env(**{variable: from_env})
    assert str(getattr(resolve(environ, **{argument: given}), field)) == given
    assert str(getattr(resolve(environ), field)) == from_env
    assert str(getattr(resolve(environ, **{argument: None}), field)) == from_env


@pytest.mark.parametrize(("argument", "variable", "given", "from_env", "field"), PRECEDENCE)
def test_a_bad_variable_does_not_matter_when_the_argument_is_given(
    argument: str, variable: str, given: str, from_env: str, field: str
) -> None:
    """What an argument overrides is not even looked at."""
    assert str(getattr(resolve(env(**{variable: "\0"}), **{argument: given}), field)) == given


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_an_empty_variable_counts_as_unset(blank: str) -> None:
    """An empty or blank variable is the same as none, as OpenTelemetry has it."""
    names = "DIRECTORY OWNER DATABASE ARTIFACTS MAX_AGE MAX_TASKS MAX_BYTES DURABILITY BUSY_TIMEOUT"
    assert resolve(env(**dict.fromkeys(names.split(), blank))) == resolve()


def test_what_was_given_explicitly_is_known() -> None:
    """Owner and directory say whether somebody chose them, even if they chose the default."""
    assert resolve(owner="host-agent").owner_explicit
    assert resolve(env(OWNER="host-agent")).owner_explicit
    assert not resolve(directory="/x").owner_explicit
    assert resolve(directory="/x").directory_explicit
    assert resolve(env(DIRECTORY="/x")).directory_explicit
    assert not resolve(owner="x", database="/x.db").directory_explicit


# --- places -----------------------------------------------------------------------------------


def test_a_given_directory_is_the_history_itself() -> None:
    """The owner is not appended to a directory that was given."""
    settings = resolve(env(DIRECTORY="/var/lib/agent"), owner="runtime")
    assert settings.directory == Path("/var/lib/agent")
    assert settings.database == Path("/var/lib/agent/history.db")
    assert settings.artifacts == Path("/var/lib/agent/artifacts")


def test_database_and_artifacts_can_be_elsewhere() -> None:
    """Either can be put elsewhere; the other stays in the directory."""
    settings = resolve(env(DATABASE="/fast/h.db"), directory="/agent")
    assert (settings.database, settings.artifacts) == (Path("/fast/h.db"), Path("/agent/artifacts"))
    settings = resolve(env(ARTIFACTS="/large/pictures"), directory="/agent")
    assert (settings.database, settings.artifacts) == (
        Path("/agent/history.db"),
        Path("/large/pictures"),
    )


def test_relative_paths_are_made_absolute_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A later change of the working folder does not move the history."""
    monkeypatch.chdir(tmp_path)
    settings = resolve(directory="here", database="db/h.db", artifacts=Path("pictures"))
    monkeypatch.chdir("/")
    assert settings.directory == tmp_path / "here"
    assert settings.database == tmp_path / "db" / "h.db"
    assert settings.artifacts == tmp_path / "pictures"


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``~`` works in arguments and variables, where no shell has expanded it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert resolve(directory="~/agent").directory == tmp_path / "agent"
    assert resolve(env(DATABASE="~/h.db")).database == tmp_path / "h.db"


@pytest.mark.parametrize("name", ["with space", "ünïcode-日本", "a'b\"c", "trailing.", "%41"])
def test_unusual_names_are_kept(name: str) -> None:
    """A path is taken as it is, whatever characters a file name may hold."""
    assert resolve(directory=f"/x/{name}").directory == Path("/x") / name


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
def test_a_file_name_that_is_not_utf8_is_kept() -> None:
    """Bytes that are no UTF-8, as Python escapes them, are a path like any other."""
    path = os.fsdecode(b"/x/\xff\xfe")
    assert resolve(directory=path).directory == Path(path)


@pytest.mark.parametrize("argument", ["directory", "database", "artifacts"])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\0b", "holds a NUL"),
        ("/x/\ud800", "cannot be a file name"),
        ("~nobody-by-this-name/x", "cannot be made absolute"),
        (b"/bytes", "is not a path"),
        (7, "is not a path"),
        (True, "is not a path"),
        (["/x"], "is not a path"),
    ],
)
def test_what_is_no_path_is_refused(argument: str, value: Any, what: str) -> None:
    """A path that cannot be one is told by the name of its argument."""
    with pytest.raises(SettingsError, match=rf"^{argument}=.* {what}.*; give"):
        resolve(**{argument: value})


def test_a_path_object_in_bytes_is_refused() -> None:
    """A PathLike that gives bytes is no path in text."""

    class Bytes(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return b"/x"

    with pytest.raises(SettingsError, match=r"directory=.* is not a path in text"):
        resolve(directory=Bytes())


@pytest.mark.parametrize("value", [":memory:", "file:h.db?mode=ro"])
def test_a_database_is_a_plain_file(value: str) -> None:
    """SQLite's special names are refused rather than made into files of that name."""
    with pytest.raises(SettingsError, match=r"OTEL_TASKHISTORY_DATABASE=.* is not a plain file"):
        resolve(env(DATABASE=value))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"directory": "/x", "artifacts": "/x"}, "artifacts"),
        ({"directory": "/x/y", "artifacts": "/x"}, "artifacts"),
        ({"directory": "/x", "database": "/x/artifacts/h.db"}, "database"),
        ({"database": "/x/h", "artifacts": "/x/h"}, "artifacts"),
    ],
)
def test_the_database_may_not_lie_in_the_artifact_folder(
    arguments: dict[str, Any], name: str
) -> None:
    """A folder that is cleaned of unknown files is no place for the database."""
    with pytest.raises(SettingsError, match=rf"^{name}=.* into the artifact folder; give"):
        resolve(**arguments)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no home folder is known, the message names the variable to set."""
    monkeypatch.setattr(platformdirs, "user_state_path", lambda _: Path("~nobody-by-this-name/x"))
    with pytest.raises(SettingsError, match=r"no home folder .* set OTEL_TASKHISTORY_DIRECTORY"):
        resolve()
    assert resolve(directory="/x").directory == Path("/x")


def test_a_working_folder_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A relative path in a deleted working folder is a clear error, not a stray OSError."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SettingsError, match=r"directory='here' cannot be made absolute"):
        resolve(directory="here")


# --- owner ------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["a", "host-agent", "Agent_7.v2", "0", "_x", "x" * 64, "a..b"])
def test_owner_names(owner: str) -> None:
    """A name that is a folder name everywhere is an owner."""
    assert resolve(owner=owner).owner == owner
    assert resolve(env(OWNER=f" {owner}\n")).owner == owner


@pytest.mark.parametrize(
    "owner",
    [
        "", ".", "..", ".hidden", "../other", "a/b", "a\\b", "/abs", "~", "-rf", "end.", "x" * 65,
        "a b", "a\0b", "a\nb", "a:b", "ä", "\u0661", "\ud800", 7, True, b"bytes", ["x"],
    ],
)  # fmt: skip
def test_bad_owner_names(owner: object) -> None:
    """What could leave its folder, or is a folder name only on some systems, is refused."""
    with pytest.raises(SettingsError, match=r"^owner=.* is not an owner's name; use 1 to 64"):
        resolve(owner=owner)


@pytest.mark.parametrize("owner", ["con", "NUL", "Aux.agent", "com1", "LPT9.x"])
def test_owner_names_that_windows_reserves(owner: str) -> None:
    """A device name of Windows is refused on every system, so that a history can move."""
    with pytest.raises(SettingsError, match=r"^OTEL_TASKHISTORY_OWNER=.* Windows"):
        resolve(env(OWNER=owner))


# --- durability, busy timeout -----------------------------------------------------------------


@pytest.mark.parametrize(("text", "expected"), [("full", "full"), (" NORMAL ", "normal")])
def test_durability(text: str, expected: str) -> None:
    """`full` and `normal`, in any case."""
    assert resolve(durability=text).durability == expected
    assert resolve(env(DURABILITY=text)).durability == expected


@pytest.mark.parametrize("value", ["", "off", "fully", 1, True, ["full"]])
def test_bad_durability(value: object) -> None:
    """Any other word is refused, with the two that are accepted."""
    with pytest.raises(SettingsError, match=r"^durability=.*; use full or normal$"):
        resolve(durability=value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (2, 2.0), (0.25, 0.25), ("0", 0.0), ("3", 3.0), (" 0.5 ", 0.5), (3600, 3600.0)],
)
def test_busy_timeout(value: float | str, seconds: float) -> None:
    """Seconds, as a number or as text; 0 is not to wait at all, and not the default."""
    found = resolve(busy_timeout=value).busy_timeout
    assert found == seconds
    assert isinstance(found, float)
    assert resolve(env(BUSY_TIMEOUT=str(value))).busy_timeout == seconds


@pytest.mark.parametrize(
    "value",
    [
        "", "soon", "5s", "-1", "1e3", "nan", "inf", "1_0", "\u0661", "3601", "9" * 400,
        -1, -0.001, float("nan"), float("inf"), 3600.5, 10**400, True, [5], timedelta(5),
    ],
)  # fmt: skip
def test_bad_busy_timeout(value: object) -> None:
    """No number, a negative, endless or absurdly long one is refused."""
    with pytest.raises(SettingsError, match=r"^busy_timeout=.*; use seconds from 0 to 3600"):
        resolve(busy_timeout=value)


# --- retention --------------------------------------------------------------------------------


def test_retention_by_environment() -> None:
    """Each limit can be set by itself; the others keep their defaults."""
    assert resolve(env(MAX_AGE="12h")).retention == Retention(max_age=timedelta(hours=12))
    assert resolve(env(MAX_TASKS="7")).retention == Retention(max_tasks=7)
    assert resolve(env(MAX_BYTES="500MB")).retention == Retention(max_bytes=500_000_000)


@pytest.mark.parametrize("word", ["none", "unlimited", "None", " UNLIMITED "])
def test_limits_can_be_lifted_by_environment(word: str) -> None:
    """`none` and `unlimited` lift a limit."""
    environ = env(MAX_AGE=word, MAX_TASKS=word, MAX_BYTES=word)
    assert resolve(environ).retention == Retention(None, None, None)


def test_a_retention_argument_replaces_the_environment_wholly() -> None:
    """A `Retention` given by argument is used as it is, limits it leaves alone included."""
    environ = env(MAX_AGE="1h", MAX_TASKS="banana", MAX_BYTES="1")
    assert resolve(environ, retention=Retention(max_tasks=5)).retention == Retention(max_tasks=5)


@pytest.mark.parametrize(
    ("variable", "value", "what", "hint"),
    [
        *(("MAX_AGE", v, "is not a duration", "use e.g. 30d, 12h or none")
          for v in ("banana", "30", "d", "-1d", "1y", "1M", "1h1d", "1d1d", "P1D", "1,5d",
                    "\u0661d", "1e3d", "0x1d", "9" * 61 + "d", "nan", "inf")),
        ("MAX_AGE", "0d", "would keep nothing", "use e.g. 30d, 12h or none"),
        ("MAX_AGE", "0.0000001s", "would keep nothing", "use e.g. 30d, 12h or none"),
        ("MAX_AGE", "36501d", "is more than 100 years", "use e.g. 30d, 12h or none"),
        ("MAX_AGE", "9" * 40 + "w", "is too long a duration", "use e.g. 30d, 12h or none"),
        *(("MAX_TASKS", v, "is not a whole number", "use a whole number from 1, or none")
          for v in ("banana", "1.5", "-5", "+5", "1e3", "1_000", "\u0661", "ten", "9" * 41)),
        ("MAX_TASKS", "0", "would keep nothing", "use a whole number from 1, or none"),
        ("MAX_TASKS", str(2**63), "is too large", "use a whole number from 1, or none"),
        *(("MAX_BYTES", v, "is not a size", "use e.g. 2GiB, 500MB, 1048576 or none")
          for v in ("banana", "-1", "2G", "2 PB", "1e9", "GiB", "1,000", "\u0661", "1.", ".5GB")),
        ("MAX_BYTES", "0", "would keep nothing", "use e.g. 2GiB, 500MB, 1048576 or none"),
        ("MAX_BYTES", "0.5 B", "would keep nothing", "use e.g. 2GiB, 500MB, 1048576 or none"),
        ("MAX_BYTES", "9999999999 TB", "is too large", "use e.g. 2GiB, 500MB, 1048576 or none"),
    ],
)  # fmt: skip
def test_bad_limits_in_the_environment(variable: str, value: str, what: str, hint: str) -> None:
    """One sentence: the variable, its value, what is wrong with it, what is accepted."""
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:59]}…"
    with pytest.raises(SettingsError) as caught:
        resolve(env(**{variable: value}))
    assert str(caught.value) == f"OTEL_TASKHISTORY_{variable}={shown} {what}; {hint}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_age", timedelta(0)),
        ("max_age", timedelta(days=-1)),
        ("max_age", timedelta(days=36_500, microseconds=1)),
        ("max_age", timedelta.max),
        ("max_age", "30d"),
        ("max_age", 30),
        *((field, value) for field in ("max_tasks", "max_bytes")
          for value in (0, -1, 2**63, True, 1.5, float("nan"), "1000", "2GiB")),
    ],
)  # fmt: skip
def test_bad_limits_by_argument(field: str, value: Any) -> None:
    """Zero, negative, absurd or of another type: refused by the name of the field."""
    with pytest.raises(SettingsError, match=rf"^Retention\.{field}=.*; use"):
        Retention(**{field: value})


@pytest.mark.parametrize("value", ["30d", 30, {"max_age": None}, Retention])
def test_what_is_no_retention_is_refused(value: object) -> None:
    """Another type than `Retention` is refused by the name of the argument."""
    with pytest.raises(SettingsError, match=r"^retention=.* is not a Retention; use"):
        resolve(retention=value)


def test_limits_at_the_edge_are_accepted() -> None:
    """The smallest and the largest limits that make sense are allowed."""
    assert Retention(timedelta(microseconds=1), 1, 1).max_bytes == 1
    assert Retention(timedelta(days=36_500), 2**63 - 1, 2**63 - 1).max_tasks == 2**63 - 1


def test_settings_cannot_be_changed() -> None:
    """Settings are facts: decided once, then read."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve().owner = "other"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Retention().max_tasks = 1  # type: ignore[misc]


def test_a_bad_value_is_shown_on_one_short_line() -> None:
    """A message repeats no more than the beginning of a value, and no control characters."""
    with pytest.raises(SettingsError) as caught:
        resolve(owner="\x1b[31m\n" + "x" * 10_000_000)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_a_bad_value_that_cannot_be_shown_is_told_by_its_type() -> None:
    """A value whose repr fails is refused like any other."""

    class Unshowable:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(SettingsError, match=r"^owner=<Unshowable> is not an owner's name"):
        resolve(owner=Unshowable())
    with pytest.raises(SettingsError, match=r"^Retention\.max_tasks=<int> is too large"):
        Retention(max_tasks=10**5000)


# --- durations and sizes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("90m", timedelta(minutes=90)),
        ("45s", timedelta(seconds=45)),
        ("2w", timedelta(weeks=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        (" 1w 2d 3h 4m 5s ", timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("1.5 h", timedelta(minutes=90)),
        ("0.25s", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_are_read(text: str, expected: timedelta) -> None:
    """Durations as people write them."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", " ", "5", "d5", "1d 1d", "1H", "soon"])
def test_a_text_that_is_no_duration(text: str) -> None:
    """A command's own name for the setting is in the message; without one, only the value."""
    with pytest.raises(SettingsError, match=r"^'.*' is not a duration; use e\.g\. 30d, 12h or 1d"):
        parse_duration(text)
    with pytest.raises(SettingsError, match=r"^--since='.*' is not a duration; use 1d$"):
        parse_duration(text, name="--since", hint="use 1d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1048576", 1_048_576),
        ("2GiB", 2 * 2**30),
        ("500MB", 500_000_000),
        ("1.5 GB", 1_500_000_000),
        ("0.1GB", 100_000_000),
        ("7 b", 7),
        ("1kb", 1000),
        ("1 kIb", 1024),
        ("3TiB", 3 * 2**40),
        ("1.0001kB", 1000),
        ("0", 0),
    ],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    """Sizes as people write them: kB is 1000, KiB is 1024."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "2G", "two", "-1", "1 0", "1B B", "1" * 61])
def test_a_text_that_is_no_size(text: str) -> None:
    """What is no size is refused, and the message says what one looks like."""
    with pytest.raises(SettingsError, match=r"is not a size; use e\.g\. 2GiB, 500MB or 1048576$"):
        parse_size(text)
    with pytest.raises(SettingsError, match=r"^--limit=.* is not a size; use 1MB$"):
        parse_size(text, name="--limit", hint="use 1MB")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=30), "30d"),
        (timedelta(days=1, hours=12), "1d12h"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(milliseconds=250), "0.25s"),
        (timedelta(0), "0s"),
        (timedelta(hours=-36), "-1d12h"),
    ],
)
def test_durations_are_shown(duration: timedelta, text: str) -> None:
    """Durations are shown short, in the units they are read in."""
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10**6)))
def test_a_shown_duration_reads_back_exactly(duration: timedelta) -> None:
    """`parse_duration` inverts `format_duration`."""
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (2 * 2**30, "2 GiB"),
        (5000 * 2**40, "5000 TiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes_are_shown(size: int, text: str) -> None:
    """Sizes are shown in the largest unit that leaves a number of one or more."""
    assert format_size(size) == text


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_a_shown_size_is_near_the_size(size: int) -> None:
    """What is shown reads back to the size within half of its last digit."""
    shown = format_size(size)
    assert abs(parse_size(shown) - size) <= parse_size(f"0.05 {shown.split()[1]}") + 1


# --- scrubbing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "variable", "secrets", "scrub"),
    [
        (None, None, (), False),
        (None, "", (), False),
        (None, "true", (), True),
        (None, " ON ", (), True),
        (None, "1", (), True),
        (None, "false", (), False),
        (None, "no", (), False),
        (False, "true", (), False),
        (True, "false", (), True),
        (None, None, ["hunter2"], True),
        (True, None, ["hunter2"], True),
    ],
)
def test_scrubbing_is_switched_on_by_argument_environment_or_secrets(
    argument: bool | None, variable: str | None, secrets: Any, scrub: bool
) -> None:
    """Off by default."""
    environ = {} if variable is None else env(SCRUB=variable)
    settings = resolve(environ, scrub=argument, secrets=secrets)
    assert settings.scrub is scrub
    assert settings.secrets == tuple(secrets)


@pytest.mark.parametrize(
    ("environ", "arguments", "named"),
    [
        (env(SCRUB="maybe"), {}, "OTEL_TASKHISTORY_SCRUB='maybe'"),
        ({}, {"scrub": "maybe"}, "scrub='maybe'"),
        ({}, {"scrub": 7}, "scrub=7"),
        ({}, {"scrub": False, "secrets": ["hunter2"]}, "scrub=False"),
        (env(SCRUB="off"), {"secrets": ["hunter2"]}, "OTEL_TASKHISTORY_SCRUB=off"),
        ({}, {"secrets": "hunter2"}, "secrets="),
        ({}, {"secrets": ["abc"]}, "secrets="),
        ({}, {"secrets": [None]}, "secrets="),
        ({}, {"secrets": 5}, "secrets="),
    ],
)
def test_a_bad_scrubbing_setting_is_one_sentence_without_the_secret(
    environ: Mapping[str, str], arguments: dict[str, Any], named: str
) -> None:
    """A secret that would stay in the open is an error, and is not in its text."""
    with pytest.raises(SettingsError) as caught:
        resolve(environ, **arguments)
    message = str(caught.value)
    assert named in message
    assert "hunter2" not in message
    assert "'abc'" not in message


def test_settings_do_not_show_the_secrets() -> None:
    """They are printed and logged as other settings are."""
    assert "hunter2" not in repr(resolve(secrets=["hunter2"]))
