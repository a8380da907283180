# SPDX-License-Identifier: Apache-2.0
"""HTML in which no text becomes markup by accident: strings are escaped, addresses are of a type.

An element is made by `el`. Whatever is a string is text: escaped, and with control, bidi and other
invisible characters written out, so that nothing recorded can act on the page or hide on it. An
attribute that a browser would follow takes nothing but a `Url`, which only `Links` makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from otel_taskhistory.text import escaped, printable


class Url(str):
    """An address that we have made ourselves."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Html:
    """Markup; made by this module only, or of files of this package."""

    markup: str

    def __str__(self) -> str:
        return self.markup


Node: TypeAlias = Html | str | int | Iterable["Node"] | None
"""What an element may contain: None is nothing, a list is one after the other."""

Value: TypeAlias = str | int | float | bool | None
"""Of an attribute: True is one without a value, None and False are none."""

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})
_FOLLOWED: Final = frozenset({"href", "src", "action", "formaction", "poster", "data", "srcset"})
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)
_ESCAPED: Final = re.compile("[&<>\"']")


def el(name: str, /, *children: Node, **attributes: Value) -> Html:
    """An element.

    Args:
        name: of the element; one of ours, never recorded.
        children: its content.
        attributes: a trailing ``_`` is dropped, other ones become ``-``: ``class_``, ``data_id``.

    Raises:
        TypeError: an address is no `Url`, or an attribute is a script or style.
    """
    pieces = [start(name, **attributes).markup]
    if name not in _VOID:
        _write(children, pieces)
        pieces.append(f"</{name}>")
    return Html("".join(pieces))


def start(name: str, /, **attributes: Value) -> Html:
    """The beginning of an element, for one whose content is written piece by piece; see `el`."""
    pieces = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = _attribute_name(key)
        if attribute in _FOLLOWED and not isinstance(value, Url):
            raise TypeError(f"{attribute} of <{name}> takes a Url, not {type(value).__name__}")
        pieces.append(f" {attribute}" if value is True else f' {attribute}="{_attribute(value)}"')
    return Html("".join(pieces) + ">")


def join(*children: Node) -> Html:
    """Nodes one after the other."""
    pieces: list[str] = []
    _write(children, pieces)
    return Html("".join(pieces))


def text(value: str) -> Html:
    """A text, what is invisible in it written out and marked as such."""
    if value.isascii() and value.isprintable():  # most texts, found out at once
        return Html(_escaped(value))
    value = value.replace("\r\n", "\n")
    if printable(value) == value:
        return Html(_escaped(value))
    pieces = [
        character.translate(_ESCAPES)
        if character == "\t" or printable(character) == character
        else f'<span class="odd">{escaped(character)}</span>'
        for character in value
    ]
    return Html("".join(pieces))


@cache  # our own names: some dozens
def _attribute_name(key: str) -> str:
    attribute = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(attribute) or attribute == "style" or attribute[:2] == "on":
        raise TypeError(f"{attribute!r} is no attribute that we write")
    return attribute


def _attribute(value: str | float) -> str:
    # Of its characters only those that act within quotation marks matter; the invisible ones are
    # written out, for a title or label is read by people.
    said = str(value)
    return _escaped(said if said.isascii() and said.isprintable() else printable(said))


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES) if _ESCAPED.search(text) else text


def _write(node: Node, pieces: list[str]) -> None:
    if node is None:
        return
    if isinstance(node, Html):
        pieces.append(node.markup)
    elif isinstance(node, str):
        pieces.append(text(node).markup)
    elif isinstance(node, int):
        pieces.append(str(node))
    else:
        for child in node:
            _write(child, pieces)
