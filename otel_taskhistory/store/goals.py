# SPDX-License-Identifier: Apache-2.0
"""Goal and result of a task as its model calls tell them, where nothing else does.

The goal is what the user said in the earliest prompt: the first message of the user after the last
answer in it, as a later turn of a conversation repeats those before; where there is none (the
prompt was sent amidst a run), the first message of the user at all. The result is the text of the
last decision, if that asks for no tool.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

from otel_taskhistory.conventions import genai_cut
from otel_taskhistory.store.rebuild import Texts

_REMEMBERED: Final = 500
"""Texts; a trace is looked at again with each of its spans, its first prompt need not be."""

_FROM_THE_START: Final = 200
"""Messages that are looked at in search of a goal, from the end of a prompt and from its start."""

_Said = tuple[int | None, int | None]
"""Node or content row of a prompt or decision."""


class Sayings:
    """What prompts and decisions say, over one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: OrderedDict[tuple[str, _Said], str | None] = OrderedDict()

    def forget(self) -> None:
        """The transaction was rolled back: its rows may become others."""
        self._known.clear()

    def goal(self, prompt: _Said) -> str | None:
        """What the user asked for."""
        return self._text("goal", prompt, _goal)

    def result(self, decision: _Said) -> str | None:
        """What the model answered, if that is an answer and not a request for a tool."""
        return self._text("result", decision, _answer)

    def _text(
        self, what: str, said: _Said, of_messages: Callable[[list[Any]], str | None]
    ) -> str | None:
        key = (what, said)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        texts = Texts(self._connection)
        node, content = said
        found: str | None = None
        if content is not None:
            found = _of_text(texts.content(content), of_messages)
        elif node is not None:
            found = of_messages([_parsed(text) for text in _ends(texts.messages(node))])
        self._known[key] = found
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found


def _of_text(text: str, of_messages: Callable[[list[Any]], str | None]) -> str | None:
    """Of a prompt or decision that is a text; messages that a limit has cut are one, too."""
    if text.lstrip().startswith("["):
        messages = genai_cut.parse(text)
        if isinstance(messages, list) and messages and isinstance(messages[0], dict):
            return of_messages(messages)
    return text.strip() or None


def _ends(messages: list[str]) -> list[str]:
    if len(messages) <= 2 * _FROM_THE_START:
        return messages
    return messages[:_FROM_THE_START] + messages[-_FROM_THE_START:]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _goal(messages: list[Any]) -> str | None:
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    answers = [at for at, role in enumerate(roles) if role in ("assistant", "model", "ai")]
    turn = answers[-1] + 1 if answers else 0
    for begin in (turn, 0):
        for role, message in zip(roles[begin:], messages[begin:], strict=True):
            text = _text_of(message) if role in ("user", "human") else None
            if text:
                return text
    return None


def _answer(messages: list[Any]) -> str | None:
    parts = [part for message in messages for part in _parts(message)]
    if any(isinstance(part, dict) and part.get("type") == "tool_call" for part in parts):
        return None
    texts = [text for text in map(_text_of, messages) if text]
    return texts[0] if texts else None


def _text_of(message: Any) -> str | None:
    """The texts of a message, one a line; not what the model only thought."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if isinstance(content, str):
        return content.strip() or None
    texts = (
        part.get("content")
        for part in _parts(message)
        if isinstance(part, dict) and part.get("type") == "text"
    )
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip()) or None


def _parts(message: Any) -> Iterable[Any]:
    parts = message.get("parts") if isinstance(message, dict) else None
    return parts if isinstance(parts, list) else ()
