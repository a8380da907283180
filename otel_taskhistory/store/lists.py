# SPDX-License-Identifier: Apache-2.0
"""Lists of messages, cut at their boundaries; what was cut before is recognised by comparing.

A conversation is sent again and again, each time a little longer. A message that the list before
had is found at its place by comparing strings, so that only new ones are scanned.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NoReturn

from otel_taskhistory.spans.encode import encode, escape_surrogates_in_json

REMEMBERED_CHARACTERS: Final = 32 * 2**20
"""How much prompt text is remembered for comparison, over all traces; the oldest go first."""

_LISTS_PER_KEY: Final = 8
"""Conversations remembered per trace and attribute: nested agents take turns in one trace."""

_LOOKAHEAD: Final = 64
"""How many remembered messages are tried when a prompt leaves out some (trimming)."""

_SPACE: Final = " \t\n\r"

Memo = tuple[int, str]
"""Under what a list is remembered: trace row id and the name of the attribute."""

Variant = int | None
"""A way to store a list: `EXACT`, or as it is shown: None, or the row of the instructions that
come first."""

EXACT: Final = 0


@dataclass(slots=True)
class Chain:
    """The rows of a list, message by message: contents, and the nodes that end there."""

    contents: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Cut:
    """A list cut at its message boundaries."""

    raw: str
    opening: str
    separator: str
    closing: str
    messages: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The messages as strict JSON that SQLite can read; mostly the very same strings."""
    seen: list[int] = field(default_factory=list)
    """For each message its position in the list before, or -1."""
    shared: int = 0
    """How many messages at the beginning are those of the list before."""
    plain: bool = True
    """Whether it is shown as it came."""
    before: dict[Variant, Chain] = field(default_factory=dict)
    """The rows of the list before."""
    chains: dict[Variant, Chain] = field(default_factory=dict)


class Lists:
    """The lists that came last, by trace and attribute."""

    def __init__(self) -> None:
        self._remembered: OrderedDict[Memo, list[Cut]] = OrderedDict()
        self._characters = 0

    def forget(self) -> None:
        """Forget everything: the transaction in which it was stored was rolled back."""
        self._remembered.clear()
        self._characters = 0

    def cut(self, raw: str, memo: Memo) -> Cut | None:
        """`raw` at its boundaries, or None when it is no array of objects with one separator."""
        known = self._recall(raw, memo)
        if known is not None and known.raw == raw:
            return known
        cut = _cut(raw, known)
        if cut is not None:
            self._remember(memo, cut, known)
        return cut

    def _recall(self, raw: str, memo: Memo) -> Cut | None:
        """The remembered list that `raw` most likely continues."""
        best, most = None, -1
        for known in self._remembered.get(memo, ()):
            if known.raw is raw or known.raw == raw:
                return known
            common = _common(raw, known.raw)
            if common > most:
                best, most = known, common
        return best

    def _remember(self, memo: Memo, cut: Cut, known: Cut | None) -> None:
        lists = self._remembered.setdefault(memo, [])
        self._remembered.move_to_end(memo)
        # It takes the place of the list that it continues; a new conversation is added.
        kept = len(cut.seen) - cut.seen.count(-1)
        if known is not None and 2 * kept >= len(known.messages):
            lists[:] = [other for other in lists if other is not known]
            self._characters -= 2 * len(known.raw)
        lists.append(cut)
        self._characters += 2 * len(cut.raw)
        if len(lists) > _LISTS_PER_KEY:
            self._characters -= 2 * len(lists.pop(0).raw)
        while self._characters > REMEMBERED_CHARACTERS and self._remembered:
            _, dropped = self._remembered.popitem(last=False)
            self._characters -= sum(2 * len(other.raw) for other in dropped)


def shown(message: str) -> str:
    """`message` as strict JSON without lone surrogates; mostly the very same string.

    Raises:
        ValueError, RecursionError: it is no JSON even to a lenient reader.
    """
    try:
        _strict_scan(message, 0)
    except ValueError:
        return _made_strict(message)
    return escape_surrogates_in_json(message)


def _made_strict(message: str) -> str:
    """JSON with what only Python reads (NaN, control characters) in the form of the ledger."""
    return encode(json.loads(message, strict=False)).text


def _cut(raw: str, known: Cut | None) -> Cut | None:
    cut = _continued(raw, known)
    if cut is not None:
        offset = raw.find("{", len(raw) - len(cut.closing))
    else:
        offset = raw.find("{")
        if offset < 0 or raw[:offset].strip(_SPACE) != "[":
            return None
        cut = Cut(raw, raw[:offset], "", "", before=known.chains if known else {})
    next_known = len(cut.messages)
    end = len(raw) - len(cut.closing)
    while offset >= 0:
        if cut.messages:
            separator = raw[end:offset]
            if len(cut.messages) == 1:
                cut.separator = separator
            if separator != cut.separator or separator.strip(_SPACE) != ",":
                return None
        seen = _known_at(raw, offset, known, next_known)
        if known is not None and seen >= 0:
            message, presented = known.messages[seen], known.shown[seen]
            next_known = seen + 1
            cut.shared += seen == cut.shared == len(cut.messages)
        else:
            try:
                message, presented = _scanned(raw, offset)
            except (ValueError, RecursionError):
                return None  # cut or no JSON: the caller keeps it as a text
        cut.messages.append(message)
        cut.shown.append(presented)
        cut.seen.append(seen)
        cut.plain = cut.plain and message is presented
        end = offset + len(message)
        offset = raw.find("{", end)
    cut.closing = raw[end:]
    return cut if cut.closing.strip(_SPACE) == "]" else None


def _continued(raw: str, known: Cut | None) -> Cut | None:
    """The known list as the beginning of one that only grew; `closing` is the rest of `raw`."""
    if known is None:
        return None
    end = len(known.raw) - len(known.closing)
    if not raw.startswith(known.raw[:end]):
        return None
    return Cut(
        raw,
        known.opening,
        known.separator,
        raw[end:],
        known.messages.copy(),
        known.shown.copy(),
        list(range(len(known.messages))),
        len(known.messages),
        known.plain,
        known.chains,
    )


def _scanned(raw: str, offset: int) -> tuple[str, str]:
    """(the JSON value at `offset`, the same as it is shown)."""
    try:
        message = raw[offset : _strict_scan(raw, offset)[1]]
    except ValueError:
        message = raw[offset : _scan(raw, offset)[1]]
        return message, _made_strict(message)
    presented = escape_surrogates_in_json(message)
    return message, message if presented == message else presented


def _known_at(raw: str, offset: int, known: Cut | None, first: int) -> int:
    """Which of the known messages stands at `offset`, or -1."""
    if known is not None:
        # A known message ends with the brace that closes it, so what begins with it is it.
        for position in range(first, min(first + _LOOKAHEAD, len(known.messages))):
            if raw.startswith(known.messages[position], offset):
                return position
    return -1


def _common(one: str, other: str) -> int:
    """About how many characters two texts have in common at their beginning (a power of 2)."""
    length = 64
    while length <= min(len(one), len(other)) and one.startswith(other[:length]):
        length *= 2
    return length


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_scan: Final = json.JSONDecoder(strict=False).raw_decode
_strict_scan: Final = json.JSONDecoder(parse_constant=_refuse).raw_decode
