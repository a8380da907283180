# SPDX-License-Identifier: Apache-2.0
"""What no span tells of: that it ended because its work was given up.

The SDK writes an exception event and an error status for `Exception` alone. A span that ends by a
cancellation or by Ctrl-C looks like one that went well; but its end is called while that exception
goes through its block, and then it can be seen.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.spans.record import SpanRecord

GIVEN_UP: Final = (asyncio.CancelledError, KeyboardInterrupt)
"""Exceptions by which work is given up. Not GeneratorExit: a framework closes generators whose
consumer has all it wants."""


def given_up(record: SpanRecord, error: BaseException) -> SpanRecord:
    """A span with the exception of `GIVEN_UP` that ended it, in attributes.

    A span that says itself what became of it, by an error status or as one of ours, stays as it is;
    so does every attribute it has.
    """
    if record.status_code == "ERROR" or semconv.TASKHISTORY_STATUS in record.attributes:
        return record
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    said = {
        semconv.TASKHISTORY_STATUS: "cancelled",
        semconv.ERROR_TYPE: f"{module}{kind.__qualname__}",
    }
    if reason := str(error):
        said[semconv.TASKHISTORY_STATUS_REASON] = reason
    return replace(record, attributes={**said, **record.attributes})
