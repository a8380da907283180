# SPDX-License-Identifier: Apache-2.0
"""Turn any Python value into plain JSON values; total: no value can make it raise.

Plain means dict with str keys, list, str, int, float, bool and None, nested at most
`MAX_DEPTH` deep, without NaN. Objects of a model SDK become what that SDK would send. What has no
JSON form of its own becomes a dict with a key that says so; those keys are in `keys`.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import io
import json
import math
import pathlib
import re
import types
import uuid
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeGuard

from otel_taskhistory.recording.keys import ARRAY, BYTES, ITEMS, OBJECT, UNREADABLE

MAX_DEPTH: Final = 200
"""Nesting beyond this is cut and marked. SQLite's JSON functions stop at 1000."""
MAX_OBJECTS: Final = 20_000
"""How many objects one value may open up: an agent's browser page, say, leads to the whole
browser."""
MAX_LISTED: Final = 10_000
"""A number array with more elements than this is kept as bytes, not as a list."""
MAX_INT_BITS: Final = 13_000
"""Python refuses to read integers of more than 4300 digits back from text."""

_SCALARS: Final = frozenset({str, int, bool, float, type(None)})
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_FACTS: Final = ("role", "type", "content", "tool_calls", "name", "id")
_SENT_WHEN_SET: Final = ("openai", "anthropic")
_SENT_WHEN_NOT_NONE: Final = ("google",)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether `value` consists of exactly the JSON types, str keys, within `MAX_DEPTH`.

    NaN and integers too long to print are not looked for: `json.dumps` refuses those by itself.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) not in _SCALARS and not is_plain(item, depth + 1):
                return False
        return True
    if kind is list:
        for item in value:
            if type(item) not in _SCALARS and not is_plain(item, depth + 1):
                return False
        return True
    return False


def to_plain(value: Any, depth: int = MAX_DEPTH) -> tuple[Any, bool]:
    """Return `value` as plain JSON values, and whether anything had no exact representation.

    Args:
        value: anything.
        depth: what is nested deeper becomes a marker.
    """
    reader = _Reader(depth)
    try:
        return reader.read(value, 0), reader.reduced
    except Exception:  # not even the markers found room on the agent's stack
        return {UNREADABLE: type_name(value)}, True


def is_text(value: Any) -> TypeGuard[str]:
    """Whether `value` is a str, without asking the value."""
    return issubclass(type(value), str)


def is_read_once(value: Any) -> bool:
    """Whether reading `value` would take it from the agent: an iterator, a stream, an awaitable."""
    kind = type(value)
    return issubclass(kind, Iterator | AsyncIterator) or hasattr(kind, "__await__")


def to_bytes_value(data: bytes) -> dict[str, str]:
    """Return the plain value that stands for `data`."""
    return {BYTES: base64.b64encode(data).decode("ascii")}


def type_name(value: Any) -> str:
    """Return the qualified name of a value's class; the builtins without their module."""
    kind = type(value)
    try:
        module, name = kind.__module__, kind.__qualname__
        return str.__str__(name) if module == "builtins" else f"{module}.{name}"
    except Exception:  # a metaclass that refuses even that
        return "object"


class _Reader:
    """One conversion: how deep, what it is inside of, and whether something was reduced."""

    __slots__ = ("_depth", "_inside", "_objects", "reduced")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._inside: set[int] = set()
        self._objects = 0
        self.reduced = False

    def read(self, value: Any, depth: int) -> Any:
        if value is None or value is True or value is False:
            return value
        identity = id(value)
        try:
            simple = self._simple(value)
            if simple is not None:
                return simple
            if depth >= self._depth:
                return self._unreadable("nested too deep")
            if identity in self._inside:
                return self._unreadable("a cycle")
            self._inside.add(identity)
            try:
                return self._container(value, depth)
            finally:
                self._inside.discard(identity)
        except RecursionError:
            return self._unreadable("nested too deep")
        except Exception:  # the object refuses: what it is called is all that can be kept
            return self._unreadable(type_name(value))

    def _simple(self, value: Any) -> Any:
        """The plain form of a value that holds no others; None when it is not one of those."""
        kind = type(value)
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, int):
            return self._integer(value)
        if issubclass(kind, float):
            number = float.__float__(value)
            if math.isfinite(number):
                return number
            self.reduced = True
            return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        if issubclass(kind, bytes | bytearray | memoryview):
            return to_bytes_value(bytes(value))
        if issubclass(kind, uuid.UUID | decimal.Decimal | pathlib.PurePath | complex):
            return str.__str__(str(value))
        if issubclass(kind, datetime.date | datetime.time):
            return value.isoformat()
        if issubclass(kind, datetime.timedelta):
            return str(value)
        return None

    def _integer(self, value: int) -> Any:
        number = int.__int__(value)
        if number.bit_length() < MAX_INT_BITS:
            return number
        self.reduced = True
        return hex(number)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        pairs = list(value.items())
        plain: dict[str, Any] = {}
        for key, item in pairs:
            plain[self._key(key)] = self.read(item, depth + 1)
        if len(plain) == len(pairs):
            return plain
        return {ITEMS: [[self.read(k, depth + 1), self.read(v, depth + 1)] for k, v in pairs]}

    def _key(self, key: Any) -> str:
        """The key as a JSON object writes it: numbers and constants as `json.dumps` does."""
        if isinstance(key, str):
            return str.__str__(key)
        plain = self.read(key, self._depth - 2)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def _container(self, value: Any, depth: int) -> Any:
        kind = type(value)  # not `isinstance`: a mock's class says whatever its maker wanted
        if issubclass(kind, dict):
            return self._mapping(value, depth)
        if issubclass(kind, list | tuple | deque):
            return self._sequence(value, depth)
        if issubclass(kind, enum.Enum):
            return self.read(value.value, depth + 1)
        if is_read_once(value):
            return self._unreadable(type_name(value))
        if issubclass(kind, _FUNCTIONS):
            return self._function(value)
        if issubclass(kind, KeysView | ItemsView | ValuesView):
            return self._sequence(value, depth)
        if issubclass(kind, AbstractSet):
            members = self._sequence(value, depth)
            return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))
        if issubclass(kind, Mapping):
            return self._mapping(value, depth)
        return self._object(value, depth)

    def _sequence(self, value: Iterable[Any], depth: int) -> list[Any]:
        return [self.read(item, depth + 1) for item in list(value)]

    def _object(self, value: Any, depth: int) -> Any:
        self._objects += 1
        if self._objects <= MAX_OBJECTS:
            for way in (_picture, _array, _model, _fields, _method, _attributes):
                found, plain = way(value)
                if found:
                    return self.read(plain, depth)
        return self._shown(value)

    def _function(self, value: Any) -> Any:
        self.reduced = True
        name = getattr(value, "__qualname__", None)
        shown = {OBJECT: "class" if isinstance(value, type) else "function", "name": str(name)}
        if isinstance(doc := getattr(value, "__doc__", None), str):
            shown["doc"] = doc
        return shown

    def _shown(self, value: Any) -> Any:
        try:
            text = str(value) if isinstance(value, BaseException) else repr(value)
        except Exception:
            return self._unreadable(type_name(value))
        self.reduced = True
        # Without the address: the same object must read the same in the next process.
        return {OBJECT: type_name(value), "text": _ADDRESS.sub("", str.__str__(text))}

    def _unreadable(self, why: str) -> dict[str, str]:
        self.reduced = True
        return {UNREADABLE: why}


def _picture(value: Any) -> tuple[bool, Any]:
    """A Pillow image, which the Gemini SDK takes as it is: the PNG that it would send."""
    if not any(base.__module__ == "PIL.Image" for base in type(value).__mro__):
        return False, None
    png = io.BytesIO()
    value.save(png, "PNG")
    data = base64.b64encode(png.getvalue()).decode("ascii")
    return True, {"inline_data": {"mime_type": "image/png", "data": data}}


def _array(value: Any) -> tuple[bool, Any]:
    """NumPy-like: an array as nested lists, or as bytes when it is long; a scalar as a number."""
    kind = type(value)
    if not (hasattr(kind, "dtype") and callable(getattr(kind, "tolist", None))):
        return False, None
    size = getattr(value, "size", 0)
    if isinstance(size, int) and size > MAX_LISTED and callable(getattr(kind, "tobytes", None)):
        facts = {"dtype": str(value.dtype), "shape": [int(n) for n in value.shape]}
        return True, {ARRAY: facts, **to_bytes_value(value.tobytes())}
    return True, value.tolist()


def _model(value: Any) -> tuple[bool, Any]:
    """A pydantic model: as its SDK sends it, any other model with all its fields."""
    kind = type(value)
    dump: Callable[..., Any] | None = getattr(kind, "model_dump", None)
    if not callable(dump):
        return False, None
    packages = {str(base.__module__).partition(".")[0] for base in kind.__mro__}
    options: dict[str, Any] = {"by_alias": True, "warnings": False}
    if packages.intersection(_SENT_WHEN_SET):
        # Both SDKs serialise a request body with exactly these options.
        options |= {"exclude_unset": True, "exclude": getattr(value, "__api_exclude__", None)}
    elif packages.intersection(_SENT_WHEN_NOT_NONE):
        options["exclude_none"] = True
    attempts: tuple[dict[str, Any], ...] = ({"mode": "json", **options}, options, {})
    for attempt in attempts:
        plain = _result(dump, value, attempt)  # it may fail in that mode, or be one of its own
        if isinstance(plain, Mapping | list | str):
            return True, plain
    return False, None


def _fields(value: Any) -> tuple[bool, Any]:
    """A dataclass or attrs object: its fields."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    else:
        return False, None
    return True, {name: getattr(value, name) for name in names if hasattr(value, name)}


def _method(value: Any) -> tuple[bool, Any]:
    """An object that can turn itself into a dict."""
    for name in ("to_dict", "dict", "as_dict"):
        method = getattr(type(value), name, None)
        plain = _result(method, value, {}) if callable(method) else None
        if isinstance(plain, Mapping):
            return True, plain
    return False, None


def _result(method: Callable[..., Any], value: Any, options: Mapping[str, Any]) -> Any:
    """What the method of an object gives; None when it raises: there are other ways to read it."""
    try:
        return method(value, **options)
    except Exception:
        return None


def _attributes(value: Any) -> tuple[bool, Any]:
    """Public instance attributes, and the class's facts that make a message a message."""
    kind = type(value)
    if isinstance(value, BaseException | types.ModuleType):
        return False, None
    own = getattr(value, "__dict__", None)
    found = dict(own) if isinstance(own, dict) else {}
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    found = {name: item for name, item in found.items() if not str(name).startswith("_")}
    if not found:
        return False, None
    for name in _FACTS:
        if name not in found and not callable(getattr(kind, name, len)):
            found[name] = getattr(value, name)
    return True, found
