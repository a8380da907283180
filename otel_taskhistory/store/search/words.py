# SPDX-License-Identifier: Apache-2.0
"""Words of a text, and a query of what somebody typed: pure functions.

The same rule makes the words of what is stored and of what is asked for, so it matters little
where exactly it draws the line. Case and accents do not count. Scripts without spaces between words
(Chinese, Japanese, Korean, Thai…) are indexed by pairs of characters, so that any part of a
sentence is found. An emoji is a word.

What is typed is never a language: no character has a meaning of its own, but quotation marks in
pairs hold words together, and an asterisk after a word stands for any ending.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 64
"""Characters of a word that count; a longer one is hardly a word."""

VERSION: Final = 1
"""Rises when the words of a text change: an index that was made by other rules is made anew."""

# Kana, Han, Hangul; Thai, Lao, Burmese, Khmer: written without spaces between words.
_DENSE: Final = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_SYMBOLS: Final = "\u2190-\u2bff\U0001f000-\U0001faff"
_PIECE: Final = re.compile(f"([{_DENSE}]+)|[^\\W_{_DENSE}]+|[{_SYMBOLS}]")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_CHUNK: Final = re.compile(r'"([^"]+)"|(\S+)')
_SPACES: Final = re.compile(r"\s+")


def fold(text: str) -> str:
    """`text` without what does not count: case, accents, widths."""
    if text.isascii():
        return text.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFC", plain)


def words(text: str) -> Iterator[str]:
    """The words under which a text is found, in order; one that comes twice comes twice."""
    for piece in _PIECE.finditer(fold(text)):
        word = piece[0]
        if piece[1] is None:
            yield word[:LONGEST]
            continue
        for start in range(len(word) - 1):
            yield word[start : start + 2]
        yield word[-1]  # so that a single character is found as the beginning of a pair


@dataclass(frozen=True, slots=True)
class Chunk:
    """What belongs together in a query: a word, a phrase, ``browser-use``, ``"``.

    Attributes:
        typed: as it was typed, for marking it in a text.
        folded: how it looks in a folded text.
        words: the words that a text with it has; none for punctuation alone.
        open: whether the last word may go on.
        exact: whether a text that has the words has the chunk, so that it need not be looked at.
    """

    typed: str
    folded: str
    words: tuple[str, ...]
    open: bool
    exact: bool

    def is_in(self, folded: str) -> bool:
        """Whether a folded text has it."""
        return self.folded in folded and (not self.exact or _has_word(folded, self))


@dataclass(frozen=True, slots=True)
class Query:
    """All chunks must be in a text, in any order."""

    chunks: tuple[Chunk, ...]

    @property
    def match(self) -> str | None:
        """An FTS5 query for the texts that may match; None when it has no words to look up."""
        asked = [
            f'"{word}"' + ("*" if chunk.open and word is chunk.words[-1] else "")
            for chunk in self.chunks
            for word in chunk.words
        ]
        return " AND ".join(dict.fromkeys(asked)) or None

    @property
    def exact(self) -> bool:
        """Whether what FTS5 finds need not be looked at."""
        return all(chunk.exact for chunk in self.chunks)

    def is_in(self, text: str) -> bool:
        """Whether a text matches; the truth, where the index only says which may."""
        folded = _in_a_line(fold(text))
        return all(chunk.is_in(folded) for chunk in self.chunks)

    def chunks_in(self, text: str) -> frozenset[Chunk]:
        """What of it is in a text."""
        folded = _in_a_line(fold(text))
        return frozenset(chunk for chunk in self.chunks if chunk.is_in(folded))

    def first_in(self, text: str) -> tuple[int, int] | None:
        """Where the first chunk that can be found in a text begins and ends."""
        spots = (_spot(chunk, text) for chunk in self.chunks)
        return min((spot for spot in spots if spot is not None), default=None)


def parse(typed: str) -> Query:
    """What somebody typed, as a query; nothing that can be typed is an error."""
    typed = typed.encode("utf-8", "replace").decode()  # half characters cannot be asked for
    chunks = (_chunk(found[1] or found[2]) for found in _CHUNK.finditer(typed))
    return Query(tuple(dict.fromkeys(chunks)))


def _chunk(typed: str) -> Chunk:
    typed = _in_a_line(typed)
    stem = typed[:-1] if len(typed) > 1 and typed.endswith("*") else typed
    asked = _asked(stem)
    if not asked:
        return Chunk(typed, _in_a_line(fold(typed)), (), False, False)
    folded = _in_a_line(fold(stem))
    single = len(asked) == 1 and is_dense(asked[0][0]) and len(asked[0]) == 1
    exact = len(asked) == 1 and asked[0] == folded and not single
    return Chunk(stem, folded, asked, stem != typed or single, exact)


def _asked(text: str) -> tuple[str, ...]:
    """The words to look up: of a run without spaces its pairs, which hold its last character."""
    asked: list[str] = []
    for piece in _PIECE.finditer(fold(text)):
        word = piece[0]
        if piece[1] is None or len(word) == 1:
            asked.append(word[:LONGEST])
        else:
            asked += [word[start : start + 2] for start in range(len(word) - 1)]
    return tuple(asked)


def _in_a_line(text: str) -> str:
    """A phrase may go on in the next line."""
    return _SPACES.sub(" ", text)


def is_dense(character: str) -> bool:
    """Whether a character is of a script without spaces between words."""
    return re.match(f"[{_DENSE}]", character) is not None


def _has_word(folded: str, chunk: Chunk) -> bool:
    start = folded.find(chunk.folded)
    while start >= 0:
        end = start + len(chunk.folded)
        if not _joins(folded[start - 1 : start]) and (
            chunk.open or not _joins(folded[end : end + 1])
        ):
            return True
        start = folded.find(chunk.folded, start + 1)
    return False


def _joins(character: str) -> bool:
    """Whether a character beside a word would be part of it."""
    return bool(character) and re.match(f"[^\\W_{_DENSE}]", character) is not None


def _spot(chunk: Chunk, text: str) -> tuple[int, int] | None:
    typed = r"\s+".join(re.escape(part) for part in chunk.typed.split(" "))
    if chunk.exact:
        typed = rf"(?<![^\W_]){typed}" + ("" if chunk.open else r"(?![^\W_])")
    found = re.search(typed, text, re.IGNORECASE)
    if found is not None:
        return found.span()
    # The long way: fold character by character, remembering where each came from.
    folded: list[str] = []
    origin: list[int] = []
    for position, character in enumerate(text):
        plain = fold(character)
        folded.append(plain)
        origin += [position] * len(plain)
    start = "".join(folded).find(chunk.folded)
    if start < 0 or not chunk.folded:
        return None
    return (origin[start], origin[start + len(chunk.folded) - 1] + 1)
