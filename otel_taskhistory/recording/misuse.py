# SPDX-License-Identifier: Apache-2.0
"""Nothing that goes wrong in recording reaches the agent: it is counted, and told in the log.

Two things can go wrong. A *misuse* is the agent's (a step used after its end): it is told once per
kind in the scope it belongs to, usually a task. A *failure* is ours or the provider's (an exception
inside a recording call): `guarded` contains it. Both are counted without end and logged within
limits, and no log line ever holds what was recorded.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

LOGGER: Final = logging.getLogger("otel_taskhistory")

LINES: Final = 20
"""How many lines about one kind of trouble are logged within `SECONDS`, whatever its scope."""
SECONDS: Final = 60.0

_Self = TypeVar("_Self")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


class Told:
    """The kinds of misuse that were told already, for one task or one tracer."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def is_news(self, kind: str) -> bool:
        """Whether `kind` was not told here before; from now on it was."""
        if kind in self._kinds:
            return False
        self._kinds.add(kind)
        return True


class _Ledger:
    """Counts by kind, and when each kind was logged. A signal handler may come in at any point."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._lines: dict[str, tuple[float, int]] = {}

    def renew_lock(self) -> None:
        """Forget the lock: another thread held it when this process was forked."""
        self._lock = threading.RLock()

    def count(self, kind: str) -> None:
        with self._lock:
            self._counts[kind] += 1

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def may_log(self, kind: str) -> bool:
        """Whether a line about `kind` is within the limit; the line is then taken as written."""
        now = time.monotonic()
        with self._lock:
            since, lines = self._lines.get(kind, (now, 0))
            if now - since >= SECONDS:
                since, lines = now, 0
            self._lines[kind] = (since, lines + 1)
            return lines < LINES

    def clear(self) -> None:
        with self._lock:
            self._counts.clear()
            self._lines.clear()


_ledger: Final = _Ledger()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ledger.renew_lock)


def counters() -> dict[str, int]:
    """How often each kind of trouble was met in this process.

    Keys are ``misuse.KIND`` and ``failure.WHERE``, e.g. ``failure.Step.prompt``.
    """
    return _ledger.counts()


def reset() -> None:
    """Forget all counts and log limits; for tests."""
    _ledger.clear()


def tell(kind: str, told: Told, message: str, *args: object) -> None:
    """Count a misuse, and log it unless `told` knows its kind.

    Args:
        kind: one of a fixed set of words.
        told: the scope in which one line is enough.
        message: for the log, with ``%s`` for `args`; never what was recorded.
    """
    name = f"misuse.{kind}"
    _ledger.count(name)
    if told.is_news(kind) and _ledger.may_log(name):
        _log(logging.WARNING, message, *args)


def failed(where: str, error: Exception) -> None:
    """Count an exception that recording met in `where`, and log its type and place.

    Its message is left out, for it may quote what was being recorded.
    """
    name = f"failure.{where}"
    _ledger.count(name)
    if _ledger.may_log(name):
        _log(
            logging.ERROR,
            "recording failed in %s (%s at %s); the agent goes on, this was not recorded",
            where,
            type(error).__name__,
            _place(error),
        )


def guarded(
    instead: Callable[[Any], _Result],
) -> Callable[
    [Callable[Concatenate[_Self, _Args], _Result]], Callable[Concatenate[_Self, _Args], _Result]
]:
    """Make a method that raises no `Exception`; KeyboardInterrupt and SystemExit go through.

    Args:
        instead: called with the object, gives what the method returns when it failed.
    """

    def decorate(
        method: Callable[Concatenate[_Self, _Args], _Result],
    ) -> Callable[Concatenate[_Self, _Args], _Result]:
        where = method.__qualname__

        @functools.wraps(method)
        def call(self: _Self, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                if _is_bad_call(error):
                    _ledger.count("misuse.bad_call")
                    if _ledger.may_log("misuse.bad_call"):
                        # Names parameters only.
                        _log(logging.WARNING, "ignored: %s", error)
                else:
                    failed(where, error)
                return instead(self)

        return call

    return decorate


def nothing(_: object) -> None:
    """What a method returns instead when it returns nothing anyway."""


def _is_bad_call(error: Exception) -> bool:
    """Whether the arguments did not fit the method: it was not even entered."""
    trace = error.__traceback__
    return isinstance(error, TypeError) and trace is not None and trace.tb_next is None


def _place(error: Exception) -> str:
    trace = error.__traceback__
    if trace is None:
        return "an unknown place"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _log(level: int, message: str, *args: object) -> None:
    try:
        LOGGER.log(level, message, *args)
    except Exception:
        # A handler of the agent's own raised; there is nowhere left to tell it.
        _ledger.count("failure.log")
