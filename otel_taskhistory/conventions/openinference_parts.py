# SPDX-License-Identifier: Apache-2.0
"""Parts of GenAI messages, made of what OpenInference and the frameworks under it say.

A part here is a plain dict with a ``type``. What the conventions have no name for stays in the
part under the name it came with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from otel_taskhistory.conventions.content import as_text
from otel_taskhistory.recording.formats import Json, media
from otel_taskhistory.recording.formats.parts import to_part
from otel_taskhistory.recording.plain import is_plain, to_plain

REDACTED: Final = "__REDACTED__"
"""What OpenInference writes in the place of content that is hidden or too large for it."""

_PICTURES: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""How base64 of a picture begins; the dialect allows it without the ``data:`` before it."""


def plain(value: Any) -> Any:
    """`value` as plain JSON values, whatever it is; a plain one comes back as it is."""
    return value if is_plain(value) else to_plain(value)[0]


def keep(part: Json, more: Mapping[str, Any]) -> None:
    """Add to a part or message what it does not have yet."""
    for key, value in more.items():
        part.setdefault(key, value)


def text_parts(content: Any) -> list[Json]:
    """The parts for the content of a message: a text, a list of blocks, or whatever it is."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    if isinstance(content, list | tuple | Mapping):
        found = plain(content)
        return [to_part(block) for block in (found if isinstance(found, list) else [found])]
    text = as_text(content)
    return [] if text is None else [{"type": "text", "content": text}]


def response_part(call_id: str | None, response: Any) -> Json:
    """The result of a tool call as it is given back to the model."""
    part: Json = {"type": "tool_call_response"}
    if call_id is not None:
        part["id"] = call_id
    return {**part, "response": response}


def medium(kind: str, url: str, mime_type: Any = None) -> Json:
    """A ``blob`` for a data URL or bare base64 of a picture, a ``uri`` for any other reference.

    Args:
        kind: ``image``, ``audio`` or ``video``.
        url: as the dialect says it; one that is redacted gives a part of type `kind` that says so.
        mime_type: where it is said beside the URL.
    """
    if url == REDACTED:
        return {"type": kind, "url": url}
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64") and media.is_base64(data):
        said = head[len("data:") : -len(";base64")].partition(";")[0]
        return media.blob(said or _mime_type(mime_type) or f"{kind}/unknown", data)
    if kind == "image" and not comma and media.is_base64(url):
        for beginning, found in _PICTURES.items():
            if url.startswith(beginning):
                return media.blob(found, url)
    part: Json = {"type": "uri", "modality": kind, "uri": url}
    if (said_beside := _mime_type(mime_type)) is not None:
        part["mime_type"] = said_beside
    return part


def _mime_type(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# --- arguments ----------------------------------------------------------------------------------


def arguments_of(given: Any) -> Any:
    """Arguments of a tool call: the JSON value where they are the text of an object.

    A text that is no (whole) object, or holds numbers that JSON has not, stays the text.
    """
    if not isinstance(given, str):
        return given
    if not given.lstrip().startswith("{"):
        return given
    try:
        return _DECODER.decode(given)
    except (ValueError, RecursionError):
        return given


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


# --- what messages say --------------------------------------------------------------------------


def pieces(messages: Iterable[Json]) -> int:
    """How many texts, pictures, calls and results the messages tell; what is redacted is none.

    Parts of types that the conventions do not know are none either: they may hold anything.
    """
    return sum(_tells(part) for message in messages for part in parts_of(message))


def _tells(part: Json) -> bool:
    match part.get("type"):
        case "text" | "reasoning" | "blob":
            return _is_said(part.get("content"))
        case "uri":
            return _is_said(part.get("uri"))
        case "tool_call_response":
            return _is_whole(part.get("response"))
        case "tool_call" | "file":
            return True
    return False


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value != REDACTED


def _is_whole(response: Any) -> bool:
    """Whether a result is there, and nothing in it is redacted; it may be JSON text."""
    waiting = [response]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if REDACTED in value:
                return False
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
    return response is not None and response not in ("", [], {})


def parts_of(message: Any) -> list[Json]:
    """The parts of a message that are parts."""
    parts = message.get("parts") if isinstance(message, dict) else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def call_ids(messages: Iterable[Json]) -> tuple[str, ...]:
    """Ids of the tool calls that the messages ask for."""
    return tuple(_ids(messages))


def _ids(messages: Iterable[Json]) -> Iterator[str]:
    for message in messages:
        for part in parts_of(message):
            call_id = part.get("id")
            if part.get("type") == "tool_call" and isinstance(call_id, str) and call_id:
                yield call_id


def text_in(message: Any) -> str | None:
    """The text parts of a message, in lines; None without any."""
    contents = (part.get("content") for part in parts_of(message) if part.get("type") == "text")
    texts = [text for text in contents if isinstance(text, str) and text]
    return "\n".join(texts) if texts else None


def last_text(messages: Iterable[Json], role: str) -> str | None:
    """The text of the last message of this role; None when there is none, or it has no text."""
    last = None
    for message in messages:
        if message.get("role") == role:
            last = message
    return text_in(last)
