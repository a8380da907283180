# SPDX-License-Identifier: Apache-2.0
"""The lines to paste of ``docs/frameworks.md``, by framework."""

from __future__ import annotations

import re
from typing import Final

from tests.frameworks.environments import ROOT

GUIDE: Final = ROOT / "docs" / "frameworks.md"

_TITLES: Final = {
    "pydantic-ai": "pydantic-ai",
    "OpenAI Agents SDK": "openai-agents",
    "LangChain and LangGraph": "langgraph",
    "smolagents": "smolagents",
    "Strands Agents": "strands",
    "Google ADK": "google-adk",
    "Microsoft Agent Framework": "agent-framework",
    "Haystack": "haystack",
    "AutoGen": "autogen",
}
"""Headings of the page, and which framework each is of."""


def guides() -> dict[str, str]:
    """The code of each framework's section."""
    _, *sections = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for section in sections:
        title, _, text = section.partition("\n")
        if title in _TITLES:
            code = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            (found[_TITLES[title]],) = code
    return found
