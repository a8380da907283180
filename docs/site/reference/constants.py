# SPDX-License-Identifier: Apache-2.0
"""The pages of attributes and settings, from documented constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.site.reference.markdown import of_docstring, table
from otel_taskhistory.settings import (
    DEFAULT_BUSY_TIMEOUT,
    DEFAULT_OWNER,
    Retention,
    format_duration,
    format_size,
)

_OF_ATTRIBUTES: Final = """\
What our spans say, so that any OpenTelemetry backend understands them: the constants of
`otel_taskhistory.semconv`. What other instrumentations write is read too, see
[reading traces](../reading-traces.md); it is not listed here.
"""

_OF_SETTINGS: Final = """\
An argument counts before the environment, that before the default; `None` and an empty variable
mean "not given". A value that makes no sense is a [`SettingsError`](errors.md#settingserror) that
names the setting and what it accepts. Arguments are those of `TaskHistoryExporter()`, most also of
`configure()`: see the [Python API](api.md).
"""

_BELOW_SETTINGS: Final = """\
Durations have the units `w`, `d`, `h`, `m` and `s`, as in `30d` or `1d12h`; sizes `KB` to `TB`
(thousands), `KiB` to `TiB` (1024), or nothing for bytes. `none` lifts a limit.

Commands have further variables for what should not stand on a command line:
`OTEL_TASKHISTORY_SERVE_TOKEN` and `OTEL_TASKHISTORY_RECEIVE_TOKEN` hold the tokens of
[serve](../serve.md) and [receive](../receive.md).

OpenTelemetry's own variables are obeyed as ever: with `OTEL_SDK_DISABLED=true` nothing is recorded,
`OTEL_SERVICE_NAME` says which service this is, `OTEL_TRACES_EXPORTER` and `OTEL_LOGS_EXPORTER` take
`taskhistory`.
"""

_TITLE: Final = re.compile(r"^# --- (.+?) -+$")


@dataclass(frozen=True)
class Constant:
    """A constant of a module, its docstring, and the heading that it stands below."""

    name: str
    value: str
    meaning: str
    section: str


def constants(module: Path) -> Iterator[Constant]:
    """Those of a module that hold a text, in their order; one without docstring has no meaning."""
    text = module.read_text(encoding="utf-8")
    titles = {
        number: match[1]
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _TITLE.match(line))
    }
    body = ast.parse(text).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            continue
        meaning = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            meaning = str(following.value.value)
        above = [number for number in titles if number < statement.lineno]
        section = titles[max(above)] if above else ""
        yield Constant(statement.target.id, statement.value.value, of_docstring(meaning), section)


def attributes_page(semconv: Path) -> str:
    """Every attribute and event that is written or read."""
    found = list(constants(semconv))
    parts = [
        "# Attributes and events",
        _OF_ATTRIBUTES,
    ]
    for section in dict.fromkeys(one.section for one in found):
        title = {"": "The scope", "ours": "taskhistory.*"}.get(section, section)
        rows = [(f"`{one.value}`", one.meaning) for one in found if one.section == section]
        parts += [f"## {title}", table(("name", "meaning"), rows)]
    return "\n\n".join(parts)


def settings_page(package: Path) -> str:
    """Every environment variable of ours, its argument, and what holds without either."""
    limits = Retention()
    assert limits.max_age is not None
    assert limits.max_bytes is not None
    given = {
        "ENV_DIRECTORY": ("directory", "the user's state folder / `otel-taskhistory` / owner"),
        "ENV_OWNER": ("owner", f"`{DEFAULT_OWNER}`"),
        "ENV_DATABASE": ("database", "`history.db` in the directory"),
        "ENV_ARTIFACTS": ("artifacts", "`artifacts` in the directory"),
        "ENV_MAX_AGE": ("retention.max_age", f"`{format_duration(limits.max_age)}`"),
        "ENV_MAX_TASKS": ("retention.max_tasks", f"`{limits.max_tasks}`"),
        "ENV_MAX_BYTES": ("retention.max_bytes", f"`{format_size(limits.max_bytes)}`"),
        "ENV_DURABILITY": ("durability", "`full`"),
        "ENV_BUSY_TIMEOUT": ("busy_timeout", f"`{DEFAULT_BUSY_TIMEOUT:g}`"),
        "ENV_SCRUB": ("scrub", "`false`"),
        "ENV_REMOTE_POLICY": ("", "`ids_only`"),
    }
    found = [one for one in constants(package / "settings.py") if one.name.startswith("ENV_")]
    if [one.name for one in found] != list(given):
        raise ValueError("the settings that are described are not those of settings.py")
    rows = [
        (f"`{one.value}`", f"`{argument}`" if argument else "", default, one.meaning)
        for one, (argument, default) in zip(found, given.values(), strict=True)
    ]
    return "\n\n".join(
        [
            "# Settings",
            _OF_SETTINGS,
            table(("variable", "argument", "default", "meaning"), rows),
            _BELOW_SETTINGS,
        ]
    )
