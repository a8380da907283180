# SPDX-License-Identifier: Apache-2.0
"""How a value may look that leaves although contents do not: short, of one kind, checked whole.

A key alone does not make a value harmless: frameworks put whole prompts where the conventions say
"name". So each key that passes has a shape, and a value of another shape stays here. No shape lets
white space pass but `is_name` and `is_label`, and those are short.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Shape = Callable[[Any], bool]

LONGEST_NAME: Final = 64
"""Characters of a name that people gave: an agent, a step."""
MOST_WORDS: Final = 8
"""Words of such a name; a sentence is longer as a rule."""
MOST_LABEL_WORDS: Final = 3
"""Words of a name that any library gave."""
MOST_VALUES: Final = 64
"""Values of a list."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,127}")
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_TYPE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}|[1-5][0-9]{2}")
_HASH: Final = re.compile(r"[0-9a-f]{16,128}")
_MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,64}")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_@-]{0,63}")
_URL: Final = re.compile(r"https?://[A-Za-z0-9.-]{1,100}(?::[0-9]{1,5})?/[A-Za-z0-9./_-]{0,150}")
_LABEL_WORD: Final = re.compile(r"[A-Za-z0-9_.:#+*()<>{}\[\]-]+(?:/[A-Za-z0-9_.:#+*()<>{}-]+)*")
_ROUTE: Final = re.compile(r"/[A-Za-z0-9_.{}:/<>-]{0,63}")
_NAME: Final = re.compile(r"[^\W_](?:[\w .:()&'+#-]*[\w).])?")
_FILE: Final = re.compile(r"(?:^|/)\.{0,2}/|\.\.|/(?:home|root|Users|tmp|var|etc|usr|opt)/")


def is_number(value: Any) -> bool:
    """A number: a count, a limit, a duration, a cost."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_flag(value: Any) -> bool:
    """Yes or no."""
    return isinstance(value, bool)


def is_id(value: Any) -> bool:
    """An identifier, as programs make them: no white space, no ``@``, no ``/``."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_id_or_number(value: Any) -> bool:
    """An identifier that some write as a number."""
    return is_id(value) or (is_number(value) and not isinstance(value, float))


def is_word(value: Any) -> bool:
    """One word of a vocabulary: an operation, a status, a reason."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def is_type(value: Any) -> bool:
    """The name of a class, with its module, or the status code that stands for an error."""
    return isinstance(value, str) and _TYPE.fullmatch(value) is not None


def is_hash(value: Any) -> bool:
    """A digest in hexadecimal digits."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def is_media_type(value: Any) -> bool:
    """A media type without parameters."""
    return isinstance(value, str) and _MEDIA_TYPE.fullmatch(value) is not None


def is_version(value: Any) -> bool:
    """A version of a program."""
    return isinstance(value, str) and _VERSION.fullmatch(value) is not None


def is_schema_url(value: Any) -> bool:
    """The address of a schema: no user, no query."""
    return isinstance(value, str) and _URL.fullmatch(value) is not None


def is_token(value: Any) -> bool:
    """A name that programs know things by (a model, a tool, a library): no white space, no path.

    A model may ask for a tool that it made up. Providers let such names have letters, digits and
    few signs only; whatever else came as a name stays here.
    """
    return (
        isinstance(value, str)
        and _TOKEN.fullmatch(value) is not None
        and _FILE.search(value) is None
        and "://" not in value
    )


def is_name(value: Any) -> bool:
    """A name that people gave (an agent, a step): a line of some words, in any language."""
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_NAME
        and len(value.split()) <= MOST_WORDS
        and value.isprintable()
        and _NAME.fullmatch(value) is not None
    )


def is_label(value: Any) -> bool:
    """A name of a span or event that any library gave: at most three words of few signs.

    The last of them may be the route of a web request, as ``GET /orders/{id}``.
    """
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return False
    first, *words = value.split(" ")
    if len(words) >= MOST_LABEL_WORDS or _LABEL_WORD.fullmatch(first) is None:
        return False
    return all(
        _LABEL_WORD.fullmatch(word)
        or (word is words[-1] and first.isupper() and _ROUTE.fullmatch(word))
        for word in words
    ) and (_FILE.search(value) is None or (first.isupper() and len(words) == 1))


def several(shape: Shape) -> Shape:
    """Values of one shape: one by itself, or a list of them that is not too long."""

    def is_several(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return len(value) <= MOST_VALUES and all(map(shape, value))
        return shape(value)

    return is_several
