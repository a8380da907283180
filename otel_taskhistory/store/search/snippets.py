# SPDX-License-Identifier: Apache-2.0
"""What is shown of a text around a match: whole words, unless one is longer than all that is shown.

Pure functions.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from otel_taskhistory.store.search.words import Query, is_dense

AROUND: Final = 80
"""Characters shown on each side of a match, about."""
LONGEST: Final = 64
"""More characters on a side so that a word is not cut; a longer one is."""


def snippet(query: Query, text: str) -> tuple[str, tuple[int, int]]:
    """(what stands around the first match, where in it that begins and ends)."""
    start, end = query.first_in(text) or (0, 0)
    end = min(end, start + 2 * AROUND)
    while end < len(text) and _joins_what_is_before(text[end]):
        end += 1
    left, right = _left(text, start), _right(text, end)
    before = text[left:start].lstrip() if left else text[:start]
    after = text[end:right].rstrip() if right < len(text) else text[end:]
    before = f"…{before}" if left else before
    after = f"{after}…" if right < len(text) else after
    return f"{before}{text[start:end]}{after}", (len(before), len(before) + end - start)


def _left(text: str, start: int) -> int:
    """Where to begin: at a word near `AROUND` characters before `start`."""
    wanted = start - AROUND
    if wanted <= 0:
        return 0
    places = (*range(wanted, start), *range(wanted - 1, max(wanted - LONGEST, 0) - 1, -1))
    # The word with the match in it may begin further before: then nothing between is a beginning.
    found = next((place for place in places if not _is_within_word(text, place)), wanted)
    while found < start and _joins_what_is_before(text[found]):
        found += 1
    return found


def _right(text: str, end: int) -> int:
    """Where to end: behind a word near `AROUND` characters after `end`."""
    wanted = end + AROUND
    if wanted >= len(text):
        return len(text)
    places = (*range(wanted, end, -1), *range(wanted + 1, min(wanted + LONGEST, len(text)) + 1))
    found = next((place for place in places if not _is_within_word(text, place)), wanted)
    while found < len(text) and _joins_what_is_before(text[found]):
        found += 1
    return found


def _is_within_word(text: str, place: int) -> bool:
    """Whether a cut before this character would go through a word."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if before.isspace() or after.isspace():
        return False
    # Scripts without spaces may be cut between any two characters.
    return not (is_dense(before) and is_dense(after))


def _joins_what_is_before(character: str) -> bool:
    """Whether it is an accent, a variation or a joiner, or what follows one would be seen alone."""
    return unicodedata.combining(character) > 0 or character in "\u200d\ufe0e\ufe0f"
