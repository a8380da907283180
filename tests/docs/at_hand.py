# SPDX-License-Identifier: Apache-2.0
"""What the pages take for granted: a conversation, a model, a browser, an exporter, a password."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_PICTURE = Path(__file__).parents[1] / "data" / "pictures" / "png_ok.png"

messages = [
    {"role": "system", "content": "You are a Host Agent."},
    {"role": "user", "content": "Book a table for two."},
]


def llm(messages):
    """A model that always says the same."""
    return {"role": "assistant", "content": f"I open the site. ({len(messages)} messages)"}


browser = SimpleNamespace(screenshot=_PICTURE.read_bytes, click=lambda selector: "table closed")
your_exporter = InMemorySpanExporter()
site_password = "correct horse battery"
