# SPDX-License-Identifier: Apache-2.0
"""Pictures, sound and files inside content blocks ↔ ``blob``, ``uri`` and ``file`` parts.

Each API puts them in an inner value of its own shape (`Inner`). `take` splits such a value into
the part's conventional keys and what is left of it (None when that follows from those keys, else
the value with the taken string emptied); `put` joins the two again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.recording.formats import Json
from otel_taskhistory.recording.keys import BYTES, FORMAT

Taken = tuple[Json, Any]
"""The part's keys, and what is left of the inner value."""

_OWN_KEYS: Final = ("mime_type", "modality", "content", "uri", "file_id")
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ENDS: Final = {"": None, "=": frozenset("AEIMQUYcgkosw048"), "==": frozenset("AQgw")}
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)
_TO_STANDARD: Final = str.maketrans("-_", "+/")
_TO_URLSAFE: Final = str.maketrans("+/", "-_")


def is_base64(text: str) -> bool:
    """Whether `text` is what encoding some bytes gives: standard alphabet, padded, unbroken."""
    if len(text) % 4 or not text or not text.isascii():
        return False
    padding = text[len(text.rstrip("=")) :]
    last = _ENDS.get(padding, frozenset())
    if last is not None and text[-len(padding) - 1] not in last:
        return False
    # Deleting the alphabet is three times as fast as decoding, on pictures of megabytes.
    return text.encode("ascii").translate(None, _BASE64) == padding.encode("ascii")


def modality(mime_type: str) -> str:
    """Return the kind of medium, e.g. ``image`` for ``image/png``."""
    kind = mime_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def blob(mime_type: str, content: str) -> Json:
    """Return the keys of a ``blob`` part."""
    return {
        "type": "blob",
        "mime_type": mime_type,
        "modality": modality(mime_type),
        "content": content,
    }


@dataclass(frozen=True, slots=True)
class Inner:
    """How one kind of block holds its medium."""

    key: str
    """The block's key whose value is taken."""
    take: Callable[[Any], Taken | None]
    put: Callable[[Json, Any], Any]


def to_media(block: Json, inner: Inner, mark: str) -> Json | None:
    """Return the part for `block`, or None when its shape is not the known one."""
    if inner.key not in block or any(key in block for key in _OWN_KEYS if key != inner.key):
        return None
    taken = inner.take(block[inner.key])
    if taken is None:
        return None
    fields, left = taken
    part: Json = {} if "type" in block else {"type": fields["type"]}
    for key, value in block.items():
        if key == "type":
            part["type"] = fields["type"]
        elif key == inner.key:
            part.update((name, item) for name, item in fields.items() if name != "type")
            if left is not None:
                part[key] = left
        else:
            part[key] = value
    part[FORMAT] = mark
    return part


def from_media(part: Json, inner: Inner, kind: str | None) -> Json:
    """Return the block that `to_media` was given; `kind` is its type, None for untyped blocks."""
    block: Json = {}
    for key, value in part.items():
        if key == "type":
            if kind is not None:
                block["type"] = kind
        elif key in ("content", "uri", "file_id"):
            left = part.get(inner.key) if inner.key != key else None
            block[inner.key] = inner.put(part, left)
        elif key not in ("mime_type", "modality", inner.key, FORMAT):
            block[key] = value
    return block


def _rest(inner: Json, normal: tuple[str, ...], key: str, note: str = "") -> Json | None:
    """What is left of `inner` without its string at `key`: nothing when it has the normal keys."""
    if not note and tuple(inner) == normal:
        return None
    return {**inner, key: note}


def _from_url(url: str, kind: str) -> Json:
    """A data URL with clean base64 is a blob; any other URL stays one."""
    if head := _DATA_URL.match(url):
        content = url[head.end() :]
        if is_base64(content):
            return blob(head[1], content)
    return {"type": "uri", "modality": kind, "uri": url}


def _to_url(part: Json) -> str:
    if part["type"] == "blob":
        return f"data:{part['mime_type']};base64,{part['content']}"
    return str(part["uri"])


def bare_url(key: str, kind: str) -> Inner:
    """``{key: "https://…"}`` or a data URL; an object around it is unusual, but taken."""
    return _url(key, kind, bare=True)


def wrapped_url(key: str, kind: str) -> Inner:
    """``{key: {"url": "https://…"}}`` or a data URL; the bare string is unusual, but taken."""
    return _url(key, kind, bare=False)


def _url(key: str, kind: str, *, bare: bool) -> Inner:
    def take(inner: Any) -> Taken | None:
        if isinstance(inner, str):
            return _from_url(inner, kind), (None if bare else "")
        if isinstance(inner, dict) and isinstance(url := inner.get("url"), str):
            return _from_url(url, kind), (
                {**inner, "url": ""} if bare else _rest(inner, ("url",), "url")
            )
        return None

    def put(part: Json, left: Any) -> Any:
        url = _to_url(part)
        if isinstance(left, dict):
            return {**left, "url": url}
        return url if bare or left == "" else {"url": url}

    return Inner(key, take, put)


def file_id(kind: str) -> Inner:
    """``{"file_id": "file-1"}``."""

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, str):
            return None
        return {"type": "file", "modality": kind, "file_id": inner}, None

    return Inner("file_id", take, lambda part, _: part["file_id"])


def data_url(key: str) -> Inner:
    """``{key: "data:application/pdf;base64,…"}``, and nothing but such a URL."""

    def take(inner: Any) -> Taken | None:
        fields = _from_url(inner, "") if isinstance(inner, str) else {}
        return (fields, None) if fields.get("type") == "blob" else None

    return Inner(key, take, lambda part, _: _to_url(part))


def chat_file() -> Inner:
    """OpenAI chat: ``{"file": {"file_id": …}}`` or ``{"file": {"file_data": …, "filename": …}}``.

    The data is a data URL.
    """

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, dict):
            return None
        if isinstance(name := inner.get("file_id"), str):
            fields = {"type": "file", "modality": "document", "file_id": name}
            return fields, _rest(inner, ("file_id",), "file_id")
        if isinstance(url := inner.get("file_data"), str):
            fields = _from_url(url, "document")
            if fields["type"] == "blob":
                return fields, _rest(inner, ("file_data",), "file_data")
        return None

    def put(part: Json, left: Any) -> Any:
        if part["type"] == "file":
            return {**(left or {}), "file_id": part["file_id"]}
        return {**(left or {}), "file_data": _to_url(part)}

    return Inner("file", take, put)


def input_audio() -> Inner:
    """OpenAI chat: ``{"input_audio": {"data": base64, "format": "wav"}}``."""

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, dict):
            return None
        data, kind = inner.get("data"), inner.get("format")
        if not isinstance(data, str) or not isinstance(kind, str) or not is_base64(data):
            return None
        return blob(f"audio/{kind}", data), _rest(inner, ("data", "format"), "data")

    def put(part: Json, left: Any) -> Any:
        if left is None:
            return {"data": part["content"], "format": part["mime_type"].removeprefix("audio/")}
        return {**left, "data": part["content"]}

    return Inner("input_audio", take, put)


def source(kind: str) -> Inner:
    """Anthropic: ``{"source": {"type": "base64" | "url" | "file", …}}``."""

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, dict):
            return None
        match inner:
            case {"type": "base64", "media_type": str(mime), "data": str(data)} if is_base64(data):
                return blob(mime, data), _rest(inner, ("type", "media_type", "data"), "data")
            case {"type": "url", "url": str(url)}:
                fields = {"type": "uri", "modality": kind, "uri": url}
                return fields, _rest(inner, ("type", "url"), "url")
            case {"type": "file", "file_id": str(name)}:
                fields = {"type": "file", "modality": kind, "file_id": name}
                return fields, _rest(inner, ("type", "file_id"), "file_id")
        return None

    def put(part: Json, left: Any) -> Any:
        if part["type"] == "blob":
            normal = {"type": "base64", "media_type": part["mime_type"], "data": ""}
            return {**(left or normal), "data": part["content"]}
        if part["type"] == "uri":
            return {**(left or {"type": "url"}), "url": part["uri"]}
        return {**(left or {"type": "file"}), "file_id": part["file_id"]}

    return Inner("source", take, put)


def inline_data(key: str, mime_key: str) -> Inner:
    """Gemini: ``{"inline_data": {"mime_type": …, "data": base64 or bytes}}``.

    Its SDK sends URL-safe base64; the part has the standard alphabet, as everywhere, and what is
    left of the inner value says in the place of the data how that was written.
    """

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, dict) or not isinstance(mime := inner.get(mime_key), str):
            return None
        data, note = inner.get("data"), ""
        if isinstance(data, dict) and tuple(data) == (BYTES,):
            data, note = data[BYTES], "bytes"
        elif isinstance(data, str) and ("-" in data or "_" in data):
            if "+" in data or "/" in data:
                return None
            data, note = data.translate(_TO_STANDARD), "urlsafe"
        if not isinstance(data, str) or not is_base64(data):
            return None
        return blob(mime, data), _rest(inner, (mime_key, "data"), "data", note)

    def put(part: Json, left: Any) -> Any:
        content = part["content"]
        if left is None:
            return {mime_key: part["mime_type"], "data": content}
        if left["data"] == "bytes":
            return {**left, "data": {BYTES: content}}
        return {**left, "data": content.translate(_TO_URLSAFE) if left["data"] else content}

    return Inner(key, take, put)


def file_data(key: str, mime_key: str, uri_key: str) -> Inner:
    """Gemini: ``{"file_data": {"mime_type": …, "file_uri": …}}``."""

    def take(inner: Any) -> Taken | None:
        if not isinstance(inner, dict):
            return None
        mime, uri = inner.get(mime_key), inner.get(uri_key)
        if not isinstance(mime, str) or not isinstance(uri, str):
            return None
        fields = {"type": "uri", "mime_type": mime, "modality": modality(mime), "uri": uri}
        return fields, _rest(inner, (mime_key, uri_key), uri_key)

    def put(part: Json, left: Any) -> Any:
        return {**(left or {mime_key: part["mime_type"]}), uri_key: part["uri"]}

    return Inner(key, take, put)
