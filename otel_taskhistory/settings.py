# SPDX-License-Identifier: Apache-2.0
"""Where a history lives and how it behaves: argument, else environment, else default.

`Settings.resolve` decides every setting once and touches no disk. ``None`` always means "not
given" for an argument, and an empty environment variable counts as unset, as the OpenTelemetry
specification says. A value that makes no sense is a `SettingsError` of one sentence that names
the argument or variable, shows the value and says what is accepted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeVar

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.units import (
    NUMBER,
    bad_value,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

__all__ = [
    "Durability",
    "Retention",
    "Settings",
    "format_duration",
    "format_size",
    "parse_duration",
    "parse_size",
]

ENV_DIRECTORY: Final = "OTEL_TASKHISTORY_DIRECTORY"
"""The folder of the history."""
ENV_OWNER: Final = "OTEL_TASKHISTORY_OWNER"
"""Which component the history belongs to."""
ENV_DATABASE: Final = "OTEL_TASKHISTORY_DATABASE"
"""The database file, when it is to be elsewhere than ``DIRECTORY/history.db``."""
ENV_ARTIFACTS: Final = "OTEL_TASKHISTORY_ARTIFACTS"
"""The folder of pictures, when it is to be elsewhere than ``DIRECTORY/artifacts``."""
ENV_MAX_AGE: Final = "OTEL_TASKHISTORY_MAX_AGE"
"""How long a task is kept: a duration such as ``30d`` or ``12h``, or ``none``."""
ENV_MAX_TASKS: Final = "OTEL_TASKHISTORY_MAX_TASKS"
"""How many tasks are kept: a whole number, or ``none``."""
ENV_MAX_BYTES: Final = "OTEL_TASKHISTORY_MAX_BYTES"
"""How much room the history may take: a size such as ``2GiB``, or ``none``."""
ENV_DURABILITY: Final = "OTEL_TASKHISTORY_DURABILITY"
"""``full`` or ``normal``."""
ENV_BUSY_TIMEOUT: Final = "OTEL_TASKHISTORY_BUSY_TIMEOUT"
"""How long to wait for a lock, in seconds."""
ENV_SCRUB: Final = "OTEL_TASKHISTORY_SCRUB"
"""Whether secrets are masked before anything is written: ``true`` or ``false``."""
ENV_REMOTE_POLICY: Final = "OTEL_TASKHISTORY_REMOTE_POLICY"
"""What ``taskhistory_otlp`` lets out: the name of a policy, ``ids_only`` by default."""

DEFAULT_OWNER: Final = "host-agent"
DATABASE_NAME: Final = "history.db"
ARTIFACTS_NAME: Final = "artifacts"
DEFAULT_BUSY_TIMEOUT: Final = 5.0
SHORTEST_SECRET: Final = 4
"""Characters of a secret that is given; a shorter one would mask half of every text."""

_LONGEST_AGE: Final = timedelta(days=36_500)  # more would leave the calendar when subtracted
_LARGEST_INTEGER: Final = 2**63 - 1  # of an SQLite column
_LONGEST_BUSY_TIMEOUT: Final = 3600.0  # an agent that stands still for longer is not "waiting"

_AGE_HINT: Final = "use e.g. 30d, 12h or none"
_TASKS_HINT: Final = "use a whole number from 1, or none"
_BYTES_HINT: Final = "use e.g. 2GiB, 500MB, 1048576 or none"
_BUSY_HINT: Final = f"use seconds from 0 to {_LONGEST_BUSY_TIMEOUT:.0f}, e.g. 5 or 0.5"
_OWNER_HINT: Final = (
    "use 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-', beginning with a letter, "
    "a digit or '_' and not ending with '.'"
)

Durability = Literal["full", "normal"]
StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history is kept; each limit may be None for "no limit".

    Raises:
        SettingsError: a limit is zero, negative, of another type, or beyond any sense.
    """

    max_age: timedelta | None = timedelta(days=30)
    """A task goes when its last commit is older than this; at most 100 years."""
    max_tasks: int | None = 1000
    """The newest this many tasks are kept."""
    max_bytes: int | None = 2 * 2**30
    """Bytes that database and artifacts may take together."""

    def __post_init__(self) -> None:
        for name, value, problem_of, hint in (
            ("max_age", self.max_age, _age_problem, "use e.g. timedelta(days=30) or None"),
            ("max_tasks", self.max_tasks, _count_problem, "use a whole number from 1, or None"),
            ("max_bytes", self.max_bytes, _count_problem, "use a number of bytes from 1, or None"),
        ):
            if value is not None and (problem := problem_of(value)):
                raise bad_value(f"Retention.{name}", value, problem, hint)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of one history, decided."""

    directory: Path
    """The folder of the history; absolute, may not exist yet."""
    database: Path
    """The SQLite file; absolute."""
    artifacts: Path
    """The folder of pictures; absolute."""
    owner: str
    """Which component the history belongs to."""
    owner_explicit: bool
    """Whether the owner was given, by argument or environment."""
    directory_explicit: bool
    """Whether the directory was given, by argument or environment."""
    retention: Retention
    durability: Durability
    busy_timeout: float
    """Seconds to wait for a lock; 0 means not at all."""
    scrub: bool = False
    """Whether secrets are masked before anything is written."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that are masked then, beside those that look secret."""

    @classmethod
    def resolve(
        cls,
        *,
        directory: StrPath | None = None,
        owner: str | None = None,
        database: StrPath | None = None,
        artifacts: StrPath | None = None,
        retention: Retention | None = None,
        durability: str | None = None,
        busy_timeout: float | str | None = None,
        scrub: bool | None = None,
        secrets: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        """Decide every setting: argument, else environment, else default. Touches no disk.

        Args:
            directory: the history itself; the owner is not appended to it.
            owner: which component the history belongs to.
            database: the database file, if not in `directory`.
            artifacts: the folder of pictures, if not in `directory`.
            retention: replaces all three limits of the environment, also those it leaves alone.
            durability: ``full`` or ``normal``.
            busy_timeout: seconds, also as text.
            scrub: whether secrets are masked before anything is written.
            secrets: values to be masked; giving some switches `scrub` on.
            environ: where ``OTEL_TASKHISTORY_*`` are looked up; the process's own by default.

        Raises:
            SettingsError: a value makes no sense, or two of them do not go together.
        """
        env = os.environ if environ is None else environ
        owner_name, given_owner = _given("owner", owner, ENV_OWNER, env)
        who = DEFAULT_OWNER if given_owner is None else _owner(owner_name, given_owner)
        home_name, given_home = _given("directory", directory, ENV_DIRECTORY, env)
        home = _default_home() / who if given_home is None else _path(home_name, given_home)
        file_name, given_file = _given("database", database, ENV_DATABASE, env)
        file = home / DATABASE_NAME if given_file is None else _database(file_name, given_file)
        folder_name, given_folder = _given("artifacts", artifacts, ENV_ARTIFACTS, env)
        folder = home / ARTIFACTS_NAME if given_folder is None else _path(folder_name, given_folder)

        if folder == file or folder in file.parents:
            # Files in the artifact folder that no row knows are removed in time.
            name, value = (
                (file_name, given_file) if given_folder is None else (folder_name, given_folder)
            )
            raise bad_value(
                name,
                value,
                "would put the database into the artifact folder",
                "give the artifacts a folder of their own",
            )

        return cls(
            directory=home,
            database=file,
            artifacts=folder,
            owner=who,
            owner_explicit=given_owner is not None,
            directory_explicit=given_home is not None,
            retention=_retention(retention, env),
            durability=_durability(*_given("durability", durability, ENV_DURABILITY, env)),
            busy_timeout=_busy_timeout(
                *_given("busy_timeout", busy_timeout, ENV_BUSY_TIMEOUT, env)
            ),
            scrub=_scrub(scrub, secrets, env),
            secrets=checked_secrets(secrets),
        )


# --- single settings --------------------------------------------------------------------------


def _given(
    argument: str, value: object, variable: str, env: Mapping[str, str]
) -> tuple[str, object]:
    """Name and value of a setting as given by argument or environment; the value may be None."""
    if value is not None:
        return argument, value
    from_env = env.get(variable)
    return variable, from_env if from_env is not None and from_env.strip() else None


def _owner(name: str, value: object) -> str:
    """The owner is a folder name on every system, so it is checked as one."""
    text = value.strip() if isinstance(value, str) else ""
    if not re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?", text):
        raise bad_value(name, value, "is not an owner's name", _OWNER_HINT)
    # Windows keeps these for devices, whatever follows a dot.
    if re.fullmatch(r"con|prn|aux|nul|(?:com|lpt)[0-9]", text.split(".")[0].lower()):
        raise bad_value(name, value, "is a name that Windows keeps for itself", "use another name")
    return text


def _default_home() -> Path:
    """The folder that holds the histories of this user, by owner."""
    import platformdirs

    state = platformdirs.user_state_path("otel-taskhistory")
    try:
        return _absolute(state)
    except (OSError, RuntimeError):
        raise SettingsError(
            f"this user has no home folder to keep a history in; set {ENV_DIRECTORY}"
        ) from None


def _absolute(path: Path) -> Path:
    # Not resolve(): that reads the disk. Not normpath(): `link/..` need not be where it looks.
    return path.expanduser().absolute()


def _path(name: str, value: object) -> Path:
    hint = "give the path of a folder or file"
    if not isinstance(value, (str, os.PathLike)):
        raise bad_value(name, value, "is not a path", hint)
    text = os.fspath(value)
    if not isinstance(text, str):
        raise bad_value(name, value, "is not a path in text", hint)
    if not text.strip():
        raise bad_value(name, value, "is empty", f"{hint}, or leave it out")
    if "\0" in text:
        raise bad_value(name, value, "holds a NUL character", hint)
    try:
        os.fsencode(text)
        return _absolute(Path(text))
    except UnicodeEncodeError:
        raise bad_value(name, value, "cannot be a file name on this system", hint) from None
    except (OSError, RuntimeError) as error:  # no such user in `~user`; working folder is gone
        raise bad_value(name, value, f"cannot be made absolute ({error})", hint) from None


def _database(name: str, value: object) -> Path:
    path = _path(name, value)
    if isinstance(value, str) and (value.strip() == ":memory:" or value.startswith("file:")):
        raise bad_value(name, value, "is not a plain file", "give the path of the database file")
    return path


def _durability(name: str, value: object) -> Durability:
    match value.strip().lower() if isinstance(value, str) else value:
        case None | "full":
            return "full"
        case "normal":
            return "normal"
        case _:
            raise bad_value(name, value, "is not a durability", "use full or normal")


def _busy_timeout(name: str, value: object) -> float:
    if value is None:
        return DEFAULT_BUSY_TIMEOUT
    if isinstance(value, str) and re.fullmatch(rf"\s*{NUMBER}\s*", value):
        seconds = float(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    else:
        raise bad_value(name, value, "is not a number of seconds", _BUSY_HINT)
    if not 0 <= seconds <= _LONGEST_BUSY_TIMEOUT:  # also refuses NaN
        raise bad_value(name, value, "is out of range", _BUSY_HINT)
    return float(seconds)


def _scrub(argument: object, secrets: Sequence[str], env: Mapping[str, str]) -> bool:
    name, value = _given("scrub", argument, ENV_SCRUB, env)
    match value.strip().lower() if isinstance(value, str) else value:
        case None:
            return bool(secrets)
        case True | "true" | "1" | "yes" | "on":
            return True
        case False | "false" | "0" | "no" | "off":
            if secrets:
                raise SettingsError(
                    f"{name}={value} would leave the secrets= unmasked; leave one of them out"
                )
            return False
        case _:
            raise bad_value(name, value, "is neither true nor false", "use true or false")


def checked_secrets(value: object) -> tuple[str, ...]:
    """Secrets to be masked, if they can be. None of them is ever shown, also not in an error.

    Raises:
        SettingsError: it is no list of texts, or one of them is too short.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise SettingsError("secrets= is a list of texts; use secrets=[...]")
    secrets = tuple(value)
    if any(not isinstance(one, str) or len(one.strip()) < SHORTEST_SECRET for one in secrets):
        raise SettingsError(
            f"secrets= holds what cannot be masked; each is a text of at least {SHORTEST_SECRET}"
            " characters"
        )
    return tuple(one.strip() for one in secrets)


# --- retention --------------------------------------------------------------------------------

_Limit = TypeVar("_Limit", timedelta, int)


def _retention(argument: object, env: Mapping[str, str]) -> Retention:
    if argument is not None:
        if not isinstance(argument, Retention):
            raise bad_value("retention", argument, "is not a Retention", "use e.g. Retention()")
        return argument
    default = Retention()
    return Retention(
        max_age=_limit(env, ENV_MAX_AGE, default.max_age, parse_duration, _age_problem, _AGE_HINT),
        max_tasks=_limit(
            env, ENV_MAX_TASKS, default.max_tasks, _whole_number, _count_problem, _TASKS_HINT
        ),
        max_bytes=_limit(
            env, ENV_MAX_BYTES, default.max_bytes, parse_size, _count_problem, _BYTES_HINT
        ),
    )


def _limit(
    env: Mapping[str, str],
    variable: str,
    default: _Limit | None,
    read: Callable[..., _Limit],
    problem_of: Callable[[object], str | None],
    hint: str,
) -> _Limit | None:
    """One limit from the environment; ``none`` and ``unlimited`` lift it."""
    text = env.get(variable, "").strip()
    if not text:
        return default
    if text.lower() in ("none", "unlimited"):
        return None
    value = read(text, name=variable, hint=hint)
    if problem := problem_of(value):
        raise bad_value(variable, text, problem, hint)
    return value


def _whole_number(text: str, *, name: str, hint: str) -> int:
    if not re.fullmatch(r"[0-9]{1,40}", text):
        raise bad_value(name, text, "is not a whole number", hint)
    return int(text)


def _age_problem(value: object) -> str | None:
    if not isinstance(value, timedelta):
        return "is not a timedelta"
    if value <= timedelta():
        return "would keep nothing"
    return "is more than 100 years" if value > _LONGEST_AGE else None


def _count_problem(value: object) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return "is not a whole number"
    if value < 1:
        return "would keep nothing"
    return "is too large" if value > _LARGEST_INTEGER else None
