# SPDX-License-Identifier: Apache-2.0
"""Messages to and from a model as people read them: roles, parts, and pictures in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.pages.html import Html, Node, Url, el
from otel_taskhistory.pages.json_text import coloured, indented, looks_like_json, unwrapped
from otel_taskhistory.pages.links import Links
from otel_taskhistory.pages.pieces import folded, long_text, opening
from otel_taskhistory.recording import keys
from otel_taskhistory.store.overview.texts import cut_off
from otel_taskhistory.text import count, one_line

_REFERENCE: Final = re.compile(
    r"(?:data:[\w.+/-]+;base64,)?artifact:sha256:(?P<sha256>[0-9a-f]{64})"
)
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the values of a step are shown."""

    links: Links
    all_of_it: Url | None
    """Where all of what is cut here is shown."""


def value_block(value: str, shown: Shown) -> Html:
    """A value of any kind: JSON indented, pictures in place, long ones folded."""
    head, whole = cut_off(value)
    if whole is None and looks_like_json(head):
        head = unwrapped(head)
        if _REFERENCE.search(head) is None:
            block = el("pre", coloured(head), class_="code json")
            return folded(indented(head), block, None, None, "code")
    return el("div", list(_with_pictures(value, shown, "code")), class_="value")


def message_item(text: str, shown: Shown, sign: str = "", position: int | None = None) -> Html:
    """A message of a list as a list item.

    Args:
        text: its JSON, or a plain text prompt.
        sign: ``+`` or ``−`` for one that was new or removed.
        position: its number in the prompt.
    """
    message = _read(text)
    role, content = ("text", [_prose(text, shown)]) if message is None else _content(message, shown)
    label = one_line(role)[:40] or "text"
    kind = role if role in _ROLES else "other"
    head = el(
        "div",
        el("span", sign, class_="sign", aria_label=_SIGNS[sign]) if sign else None,
        el("span", label, class_="role"),
        el("span", f"#{position}", class_="dim") if position is not None else None,
        class_="who",
    )
    mark = {"+": " new", "−": " removed"}.get(sign, "")
    return el("li", head, el("div", content, class_="parts"), class_=f"message {kind}{mark}")


_SIGNS: Final = {"+": "new", "−": "removed"}


def decision_block(messages: tuple[str, ...], shown: Shown, told: frozenset[str]) -> Node:
    """What a model answered.

    Args:
        told: ids of calls that are shown as tool calls below.
    """
    blocks: list[Node] = []
    for text in messages:
        message = _read(text)
        if message is None:
            blocks.append(_prose(text, shown))
            continue
        parts = message.get("parts")
        if isinstance(parts, list):
            rest = [part for part in parts if not _is_told(part, told)]
            message = {**message, "parts": rest}
            if parts and not rest:
                what = count(len(parts), "tool call")
                blocks.append(el("p", f"Only the {what} below.", class_="dim"))
        blocks += _content(message, shown)[1]
    return blocks


def asked_in(text: str) -> Iterator[str]:
    """The names of the tools that a message asks for."""
    message = _read(text)
    for part in (message or {}).get("parts") or []:
        if isinstance(part, dict) and part.get("type") == "tool_call":
            yield str(part.get("name"))


def _is_told(part: Any, told: frozenset[str]) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_call" and part.get("id") in told


def _read(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _content(message: dict[str, Any], shown: Shown) -> tuple[str, list[Node]]:
    """(role, what it says)."""
    parts = message.get("parts")
    known = {"role", "parts", "finish_reason"}
    if not isinstance(parts, list):
        content = message.get("content")
        parts = content if isinstance(content, list) else [] if content is None else [content]
        known.add("content")
    blocks: list[Node] = [_part(part, shown) for part in parts]
    rest = {name: item for name, item in message.items() if name not in known and item is not None}
    ids = [part.get("id") for part in parts if isinstance(part, dict)]
    # Said by the parts already: which call is answered, and where its calls stood.
    if "tool_call_id" in rest and rest["tool_call_id"] in ids:
        del rest["tool_call_id"]
    if isinstance(rest.get("tool_calls"), int):
        del rest["tool_calls"]
    rest.pop(keys.FORMAT, None)
    noted = {name: rest.pop(name) for name in list(rest) if name.startswith(keys.PREFIX)}
    for label, values in (("sent with it", rest), ("noted with it", noted)):
        if values:
            blocks.append(_aside(label, _json(values), shown))
    if not blocks:
        blocks.append(el("p", "(empty)", class_="dim"))
    role = message.get("role")
    return (role if isinstance(role, str) else ""), blocks


def _part(part: Any, shown: Shown) -> Node:
    if not isinstance(part, dict):
        return _prose(part if isinstance(part, str) else _json(part), shown)
    match part.get("type"):
        case "text" if isinstance(part.get("content", part.get("text")), str):
            return _prose(str(part.get("content", part.get("text"))), shown)
        case "reasoning" if isinstance(part.get("content"), str):
            return _aside("thinking", part["content"], shown, open_=True)
        case "tool_call" if isinstance(part.get("name"), str):
            arguments = part.get("arguments")
            return el(
                "div",
                _call_head("calls", part["name"], part.get("id")),
                None if arguments is None else value_block(_text_of(arguments), shown),
                class_="part call",
            )
        case "tool_call_response":
            value = part.get("response", part.get("result"))
            return el(
                "div",
                _call_head("result", "", part.get("id")),
                value_block(_text_of(value), shown),
                class_="part result",
            )
        case "blob" | "uri" | "file":
            return _media(part, shown)
        case _:
            return el("div", value_block(_json(part), shown), class_="part")


def _call_head(what: str, name: str, call_id: Any) -> Html:
    return el(
        "div",
        el("span", what, class_="dim"),
        [" ", el("b", one_line(name))] if name else None,
        [" ", el("span", one_line(call_id), class_="id")] if isinstance(call_id, str) else None,
        class_="call-head",
    )


def _media(part: dict[str, Any], shown: Shown) -> Html:
    where = part.get("content") or part.get("uri") or part.get("file_id") or ""
    what = str(part.get("mime_type") or part.get("modality") or part["type"])
    found = _REFERENCE.search(where) if isinstance(where, str) else None
    if found is not None:
        return _picture(found["sha256"], shown, one_line(what))
    # An address that a model wrote is shown, never followed.
    return el("p", f"[{one_line(what)}] ", el("span", _text_of(where)[:2_000], class_="id"))


def _picture(sha256: str, shown: Shown, label: str) -> Html:
    image = el(
        "img",
        src=shown.links.thumbnail(sha256),
        alt=f"{label} {sha256[:12]} in this message",
        loading="lazy",
        decoding="async",
        data_sha=sha256,
    )
    return opening(image, shown.links.original(sha256), "inline-picture zoom")


def _prose(text: str, shown: Shown) -> Node:
    return list(_with_pictures(text, shown, "text"))


def _with_pictures(text: str, shown: Shown, class_: str) -> Iterator[Node]:
    """A text, each reference to a picture in it as that picture."""
    at = 0
    for found in _REFERENCE.finditer(text):
        if text[at : found.start()].strip():
            yield long_text(text[at : found.start()], shown.all_of_it, class_)
        yield _picture(found["sha256"], shown, "picture")
        at = found.end()
    if text[at:].strip() or not at:
        yield long_text(text[at:], shown.all_of_it, class_)


def _aside(label: str, value: str, shown: Shown, *, open_: bool = False) -> Html:
    content = list(_with_pictures(value, shown, "text")) if open_ else value_block(value, shown)
    return el("details", el("summary", label), content, class_="aside", open=open_)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
