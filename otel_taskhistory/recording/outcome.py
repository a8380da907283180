# SPDX-License-Identifier: Apache-2.0
"""How a task, step or tool call ended, and what an exception says of it; never raises."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from dataclasses import dataclass
from typing import Final

from otel_taskhistory import semconv

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"

_CANCELLING: Final = (
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    KeyboardInterrupt,
    GeneratorExit,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How something ended."""

    status: str
    """``succeeded``, ``failed`` or ``cancelled``."""
    reason: str | None = None
    """Why it was cancelled, or by what exit it succeeded."""
    error: str | None = None
    """What failed, as one text."""
    error_type: str | None = None
    """Qualified type of the exception."""


def outcome_of(exception: BaseException) -> Outcome:
    """What it means that `exception` left a handle.

    ``CancelledError``, ``KeyboardInterrupt`` and ``GeneratorExit`` cancel, ``SystemExit`` with no
    code or code 0 succeeds, anything else fails.
    """
    if isinstance(exception, _CANCELLING):
        return Outcome(CANCELLED, reason=_describe(exception))
    if isinstance(exception, SystemExit) and _is_success(exception.code):
        return Outcome(SUCCEEDED, reason="SystemExit(0)")
    return failure(exception)


def failure(error: object) -> Outcome:
    """The outcome of a failure that was told with `error`: an exception, a text, or None."""
    if isinstance(error, BaseException):
        return Outcome(FAILED, error=_describe(error), error_type=type_name(error))
    return Outcome(FAILED, error=None if error is None else text_of(error))


def exception_attributes(exception: BaseException) -> dict[str, str]:
    """The attributes of OpenTelemetry's ``exception`` event."""
    try:
        stacktrace = "".join(traceback.format_exception(exception))
    except Exception:
        # Too deep a group, or an exception that lies about its parts.
        stacktrace = _describe(exception)
    return {
        semconv.EXCEPTION_TYPE: type_name(exception),
        semconv.EXCEPTION_MESSAGE: text_of(exception),
        semconv.EXCEPTION_STACKTRACE: stacktrace,
    }


def type_name(exception: BaseException) -> str:
    """The exception's class with its module, without ``builtins.``; as OpenTelemetry says it."""
    kind = type(exception)
    module = kind.__module__
    if not isinstance(module, str) or module in ("", "builtins"):
        return kind.__qualname__
    return f"{module}.{kind.__qualname__}"


def text_of(value: object) -> str:
    """`value` as text, whatever its ``__str__`` does."""
    try:
        return str.__str__(str(value))
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _describe(exception: BaseException) -> str:
    message = text_of(exception)
    return f"{type_name(exception)}: {message}" if message else type_name(exception)


def _is_success(code: object) -> bool:
    return code is None or (isinstance(code, int) and int(code) == 0)
