# SPDX-License-Identifier: Apache-2.0
"""The page of the Python API, from its docstrings, and that of its errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import otel_taskhistory
from otel_taskhistory import errors, history

_INTRODUCTION: Final = """\
What is named here is public; other names of the package may change. The package is typed
(`py.typed`). Errors have [a page of their own](errors.md).
"""

_SECTIONS: Final = {
    "Recording": ("configure", "TaskTracer", "Task", "Step", "ToolCall"),
    "Processor and exporters": (
        *("TaskHistoryProcessor", "TaskHistoryExporter", "TaskHistoryLogExporter"),
        *("RedactingExporter", "Policy", "policy_named"),
    ),
    "Limits": ("Retention",),
    "Reading": ("TaskHistory",),
}
"""The names of `otel_taskhistory.__all__`, but errors and version, in the order of use."""

_INHERITED: Final = {"Task", "Step", "ToolCall"}
"""What they do is defined in a class of ours that is not public itself."""


def page() -> str:
    """Every public name."""
    parts = [
        "# Python API",
        _INTRODUCTION,
    ]
    told: set[str] = set()
    for title, names in _SECTIONS.items():
        parts.append(f"## {title}")
        parts += [_directive(f"otel_taskhistory.{name}", name in _INHERITED) for name in names]
        told.update(names)
    rows = [name for name in history.__all__ if inspect.isclass(getattr(history, name))]
    rows.remove("TaskHistory")
    parts.append(
        "## What is read\n\nFrozen dataclasses and sequences of `otel_taskhistory.history`. What"
        " each column means is on the page of [tables](tables.md)."
    )
    parts += [_directive(f"otel_taskhistory.history.{name}") for name in rows]
    parts.append("## For tests and other programs")
    parts.append(_block("automodule:: otel_taskhistory.testing\n   :no-members:"))
    parts.append(_directive("otel_taskhistory.testing.Recorded"))
    parts.append(_directive("otel_taskhistory.completion_hook.TaskHistoryCompletionHook"))
    _all_told(told | set(_error_names()) | {"__version__"})
    return "\n\n".join(parts)


def errors_page() -> str:
    """Every error, and where it can come from."""
    drawn = inspect.getdoc(errors)
    assert drawn is not None
    parts = ["# Errors", _block(drawn.replace("\n::\n", "\n::\n", 1))]
    parts.append(
        "Commands show the message on one line and exit with status 1 (2 for wrong usage)."
    )
    raised = _raised()
    for name in _error_names():
        parts.append(f"## {name}")
        parts.append(_block(f"autoexception:: otel_taskhistory.{name}\n   :show-inheritance:"))
        places = ", ".join(f"`{place}`" for place in raised.get(name, ()))
        if places:
            parts.append(f"Documented at {places}.")
    return "\n\n".join(parts)


def _error_names() -> list[str]:
    return [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]


def _all_told(told: set[str]) -> None:
    missing = set(otel_taskhistory.__all__) ^ told
    if missing:
        raise ValueError(f"the API page and __all__ differ in {', '.join(sorted(missing))}")


def _directive(name: str, inherited: bool = False) -> str:
    module, _, last = name.rpartition(".")
    is_class = inspect.isclass(getattr(import_module(module), last))
    options = "\n   :members:" if is_class else ""
    if inherited:
        options += "\n   :inherited-members:"
    return _block(f"{'autoclass' if is_class else 'autofunction'}:: {name}{options}")


def _block(text: str) -> str:
    directive = text if not text.startswith("auto") else f".. {text}"
    return f"```{{eval-rst}}\n{directive}\n```"


def _raised() -> dict[str, list[str]]:
    """For each error the public callables whose docstrings name it below ``Raises:``."""
    found: dict[str, list[str]] = {}
    names = _error_names()
    for place, doc in _docstrings():
        _, _, raises = doc.partition("Raises:")
        for name in names:
            if any(line.strip().startswith(f"{name}:") for line in raises.splitlines()):
                found.setdefault(name, []).append(place)
    return found


def _docstrings() -> Iterable[tuple[str, str]]:
    for name in otel_taskhistory.__all__:
        value = getattr(otel_taskhistory, name)
        if isinstance(value, str):
            continue
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for member, method in vars(value).items():
                if not member.startswith("_") and callable(method):
                    yield f"{name}.{member}", inspect.getdoc(method) or ""
