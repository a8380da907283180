# SPDX-License-Identifier: Apache-2.0
"""The few words that stand for what a function was given or gave back; nothing raises.

Decorators record a function's arguments and result as JSON. A goal is the one text among the
arguments, a result the text that was returned; where there is no one text, the JSON stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_taskhistory.conventions.content import as_text, text_of

_GOALS: Final = (
    *("task", "goal", "input", "question", "query", "prompt", "user_prompt", "user_input"),
    "instruction",
)
"""Arguments by these names say what is to be done."""
_RESULTS: Final = ("output", "answer", "result", "final_result", "response", "text")
"""Members by these names are what a chain or agent gave back."""

_DEEPEST: Final = 5
_MOST_TEXTS: Final = 50

_USERS: Final = frozenset({"user", "human", "HumanMessage", "HumanMessageChunk"})
_MODELS: Final = frozenset({"assistant", "ai", "model", "AIMessage", "AIMessageChunk"})
TOOLS: Final = frozenset({"tool", "function", "ToolMessage"})
"""Whose a tool's message is, in any format."""


def goal_in(arguments: Any) -> str | None:
    """The goal that arguments (plain JSON values) tell; None when there is no text in them."""
    if isinstance(arguments, str):
        return arguments or None
    messages = messages_in(arguments)
    if messages is not None:
        return last_user_text(messages)
    for holder in _holders(arguments):
        for name in _GOALS:
            said = holder.get(name)
            if isinstance(said, str) and said:
                return said
            if (messages := messages_in(said)) is not None:
                return last_user_text(messages)
    texts = dict.fromkeys(_texts(arguments, 0))
    if not texts or len(texts) == 1:
        return next(iter(texts), None)
    return as_text(arguments)


def result_in(value: Any) -> str | None:
    """What a function gave back (a plain JSON value), as text."""
    value = unwrapped(value)
    if isinstance(value, Mapping):
        if (structured := value.get("structured_response")) is not None:
            return as_text(unwrapped(structured))
        messages = messages_in(value)
        if messages is not None:
            return answer_in(messages)
        if _is_message(value):
            return text_of_message(value)
        for name in _RESULTS:
            said = unwrapped(value.get(name))
            if isinstance(said, str) and said:
                return said
            if _is_message(said):
                return text_of_message(said)
    elif isinstance(value, list) and messages_in(value) is not None:
        return answer_in(value)
    return as_text(value)


# --- messages ---------------------------------------------------------------------------------


def unwrapped(value: Any) -> Any:
    """The fields of an object that LangChain wrote as its constructor; anything else as it is.

    Fields that do not say their type get the name of the class for one.
    """
    if not isinstance(value, Mapping) or "lc" not in value:
        return value
    if text_of(value.get("type")) != "constructor":
        return value
    fields, path = value.get("kwargs"), value.get("id")
    if not isinstance(fields, Mapping):
        return value
    if "type" not in fields and isinstance(path, list) and path and isinstance(path[-1], str):
        return {**fields, "type": path[-1]}
    return fields


def messages_in(value: Any) -> list[Any] | None:
    """The list of messages that `value` is, or has as its state's ``messages``."""
    value = unwrapped(value)
    if isinstance(value, Mapping):
        value = value.get("messages")
        if isinstance(value, str):
            return [{"role": "user", "content": value}]
        if isinstance(value, Mapping):
            value = [value]
    if not isinstance(value, list) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], list) and not _is_pair(value[0]):
        value = value[0]  # a batch of one conversation
    return value if value and all(role_of(entry) for entry in value) else None


def role_of(message: Any) -> str | None:
    """Whose a message is, in the words of its format; None when it is no message."""
    if _is_pair(message):
        return str(message[0])
    message = unwrapped(message)
    if not isinstance(message, Mapping) or not ("content" in message or "parts" in message):
        return None
    for name in ("role", "type"):
        if isinstance(message.get(name), str):
            return str(message[name])
    return None


def last_user_text(messages: list[Any]) -> str | None:
    """What the user said last."""
    for message in reversed(messages):
        if role_of(message) in _USERS:
            return text_of_message(message)
    return None


def answer_in(messages: list[Any]) -> str | None:
    """What the model said last, or the tool whose result the agent was to return.

    A model that asked for tools and was not heard again has given no answer but the words, if
    any, that it asked with. Where its message stands in the list is not always its place in time:
    states replace messages by id.
    """
    last = next((m for m in reversed(messages) if role_of(m) in _MODELS), None)
    if last is None:
        return None
    if role_of(messages[-1]) in TOOLS and _asks_for_tools(last):
        return text_of_message(messages[-1])
    return text_of_message(last)


def text_of_message(message: Any) -> str | None:
    """The texts among the content of a message, each a paragraph; None when it has none."""
    if _is_pair(message):
        return str(message[1]) or None
    message = unwrapped(message)
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return content or None
    texts = [_text_of_block(block) for block in content] if isinstance(content, list) else []
    return "\n".join(text for text in texts if text) or None


def _is_message(value: Any) -> bool:
    return role_of(value) in _USERS | _MODELS | TOOLS


def _is_pair(value: Any) -> bool:
    """LangGraph's short form of a message: ``["user", "hello"]``."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(item, str) for item in value)
        and value[0] in _USERS | _MODELS | {"system"}
    )


def _asks_for_tools(message: Any) -> bool:
    return not _is_pair(message) and bool(unwrapped(message).get("tool_calls"))


def _text_of_block(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping) or block.get("type", "text") not in ("text", "output_text"):
        return None
    text = block.get("text", block.get("content"))
    return text if isinstance(text, str) else None


# --- any values -------------------------------------------------------------------------------


def _holders(arguments: Any) -> Iterator[Mapping[str, Any]]:
    """The mappings in which an argument may have its name."""
    if isinstance(arguments, Mapping):
        yield arguments
        for name in ("kwargs", "inputs"):
            if isinstance(inner := arguments.get(name), Mapping):
                yield inner
        arguments = arguments.get("args")
    if isinstance(arguments, list):
        yield from (entry for entry in arguments if isinstance(entry, Mapping))


def _texts(value: Any, depth: int) -> list[str]:
    """The texts within `value`, not too many of them."""
    if isinstance(value, str):
        return [value] if value else []
    inner: Any = ()
    if depth < _DEEPEST:
        inner = value.values() if isinstance(value, Mapping) else value
        inner = inner if isinstance(value, Mapping | list) else ()
    found: list[str] = []
    for item in inner:
        found += _texts(item, depth + 1)
        if len(found) > _MOST_TEXTS:
            break
    return found
