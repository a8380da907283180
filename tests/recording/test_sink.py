# SPDX-License-Identifier: Apache-2.0
"""Which exporter the tracers of a process talk to."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from otel_taskhistory.recording import sink as module
from otel_taskhistory.recording.sink import live_sink, register_sink, unregister_sink


def test_the_newest_is_live_until_it_goes() -> None:
    """Then the one before it is again; going twice, or never having come, is no error."""
    before = live_sink()
    first, second = object(), object()
    register_sink(first)  # type: ignore[arg-type]
    register_sink(second)  # type: ignore[arg-type]
    assert live_sink() is second
    register_sink(first)  # type: ignore[arg-type]
    assert live_sink() is first
    for _ in range(2):
        unregister_sink(first)  # type: ignore[arg-type]
        assert live_sink() is second
    unregister_sink(second)  # type: ignore[arg-type]
    unregister_sink(object())  # type: ignore[arg-type]
    assert live_sink() is before


def test_whatever_interrupts_a_change_may_make_another() -> None:
    """A signal handler or `__del__` comes at each line of it; nothing hangs, nothing is mixed up.

    With a lock this would hang, and so would a child that was forked while another thread had it.
    """
    before = live_sink()
    outer, inner = object(), object()
    places: set[int] = set()

    def interrupt(frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_globals is not vars(module):
            return None
        sys.settrace(None)
        places.add(frame.f_lineno)
        register_sink(inner)  # type: ignore[arg-type]
        assert live_sink() is inner
        unregister_sink(inner)  # type: ignore[arg-type]
        sys.settrace(interrupt)
        return interrupt

    def change() -> None:
        sys.settrace(interrupt)
        try:
            register_sink(outer)  # type: ignore[arg-type]
            unregister_sink(outer)  # type: ignore[arg-type]
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert len(places) >= 5
    assert live_sink() is before
