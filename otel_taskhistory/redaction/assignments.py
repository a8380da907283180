# SPDX-License-Identifier: Apache-2.0
r"""Secrets that are told by the name before them, in text of any kind.

``password=…``, ``"api_key": "…"`` also within JSON within JSON, ``--token …``, ``?access_token=…``,
``Authorization: …``, ``Cookie: a=…; b=…``. Where text is code (``token = read()``) and not a value,
it stays. Time is in proportion to the text.
"""

from __future__ import annotations

import re
from typing import Final

from otel_taskhistory.redaction.patterns import MASK
from otel_taskhistory.redaction.secret_names import Kind, hides, kind_of

# Of which each name that `kind_of` knows has one; found first, since most texts have none.
_STEMS: Final = (
    *("pass", "kennwort", "motdepasse", "pwd", "secret", "credential"),
    *("creds", "auth", "cookie", "token", "jwt", "bearer", "otp", "cvv", "cvc", "key"),
    *("signature", "connection"),
)
_ANY_STEM: Final = re.compile("|".join(_STEMS), re.IGNORECASE)
_NAME_LEFT: Final = 48
_NOT_NAME: Final = re.compile(r"[^\w.-]")

# What may stand between name and value: the rest of the name, its quotation mark, and a sign.
_SIGN: Final = re.compile(
    r"([\w.-]{0,48}+)\\{0,32}+[\"'`]?[\])]?"
    r"(?:[ \t]{0,8}(?:=>|:=|=|:|%3[AaDd])[ \t]{0,8}(?:\\{0,8}+[rnt])?|[ \t]{1,4}(?=[^\s-]))"
)
_OPTION: Final = re.compile(r"--?[\w.-]*\Z")
_QUOTE: Final = re.compile(r"(\\{0,32}+)([\"'`])")
_BARE: Final = re.compile(r"[^\s\"'`\\,;&<>(){}\[\]|]{1,4096}+")
_LINE: Final = re.compile(r"[^\r\n\"'\\]{1,8192}+")
_LONGEST_QUOTED: Final = 8192
_ELEMENT: Final = re.compile(r"<([\w:.-]{1,64}+)>([^<>]{1,4096}+)(?=</\1>)")

_NO_VALUE_WORDS: Final = (
    "none null nil true false undefined string str int integer number bool boolean object array any"
    " bytes text required optional yes no and or is the a an of for field input value default"
    " secretstr"
)
_NO_VALUE: Final = frozenset(_NO_VALUE_WORDS.split())
_HEADERS: Final = re.compile(r"(?:^|[-_])(?:authorization|cookie2?)\Z", re.IGNORECASE)


def mask_assigned(text: str) -> str:
    """`text` with the values of names that look secret masked."""
    if "</" in text:
        text = _ELEMENT.sub(_masked_element, text)
    pieces: list[str] = []
    copied = 0
    for start, after in _stems(text):
        if start < copied:
            continue
        sign = _SIGN.match(text, after)
        if sign is None:
            continue
        name = _left_of(text, start) + text[start:after] + sign[1]
        said = sign[0][len(sign[1]) :]
        if not said.strip(" \t\\\"'`])") and not _OPTION.match(name):
            continue  # no sign, and no option of a command either
        kind = kind_of(name.lstrip("-"))
        if kind is None:
            continue
        begin, end = _value(text, sign.end(), name, kind)
        if begin < end:
            pieces += (text[copied:begin], MASK)
            copied = end
    if not pieces:
        return text
    pieces.append(text[copied:])
    return "".join(pieces)


def _masked_element(found: re.Match[str]) -> str:
    return f"<{found[1]}>{MASK}" if hides(kind_of(found[1]), found[2].strip()) else found[0]


def _stems(text: str) -> list[tuple[int, int]]:
    """Where names of secrets may be: (start, end) of each stem, in order."""
    lower = text.lower()
    if len(lower) != len(text):  # some letters have no lower case of one letter
        return [found.span() for found in _ANY_STEM.finditer(text)]
    found = []
    for stem in _STEMS:
        at = lower.find(stem)
        while at >= 0:
            found.append((at, at + len(stem)))
            at = lower.find(stem, at + len(stem))
    found.sort()
    return found


def _left_of(text: str, position: int) -> str:
    """The part of a name that is before `position`."""
    before = text[max(0, position - _NAME_LEFT) : position][::-1]
    stop = _NOT_NAME.search(before)
    if stop is None:
        return before[::-1]
    if stop.start() == 0 and before[:1] == " ":  # "API key: …"
        two = _NOT_NAME.search(before, 1)
        return before[: two.start() if two else len(before)][::-1].replace(" ", "_")
    return before[: stop.start()][::-1]


def _value(text: str, start: int, name: str, kind: Kind) -> tuple[int, int]:
    """Where the value that begins at `start` stands; an empty range when it stays."""
    quote = _QUOTE.match(text, start)
    if quote is not None:
        begin = quote.end()
        end = _closing(text, begin, quote[1], quote[2])
        return (begin, end) if _is_secret(text[begin:end], kind, quoted=True) else (0, 0)
    if _HEADERS.search(name):
        line = _LINE.match(text, start)
        return (start, line.end()) if line and len(line[0].strip()) > 2 else (0, 0)
    bare = _BARE.match(text, start)
    if bare is None:
        return 0, 0
    if text[bare.end() : bare.end() + 1] in ("(", "["):
        return 0, 0  # a call, or a look-up
    return (start, bare.end()) if _is_secret(bare[0], kind, quoted=False) else (0, 0)


def _closing(text: str, begin: int, escapes: str, mark: str) -> int:
    """Where a quoted value ends: before the mark with just as many backslashes before it."""
    limit = min(len(text), begin + _LONGEST_QUOTED)
    at = begin
    while (at := text.find(mark, at, limit)) >= 0:
        slashes = at
        while slashes > begin and text[slashes - 1] == "\\" and at - slashes <= len(escapes):
            slashes -= 1
        if at - slashes == len(escapes):
            return slashes
        at += 1
    line = _LINE.match(text, begin)
    return begin if line is None else line.end()


def _is_secret(value: str, kind: Kind, *, quoted: bool) -> bool:
    shown = value.strip().rstrip(".:!?")
    if not shown or shown == MASK:
        return False
    if quoted or kind == "token":
        return hides(kind, shown)
    if shown.lower() in _NO_VALUE:
        return False
    # A placeholder ($PASSWORD, %s) names a secret and is none; code has a dot in a name.
    return len(shown) >= 3 and not shown.startswith(("$", "%")) and not _is_attribute(shown)


_ATTRIBUTE: Final = re.compile(
    r"(?:self|cls|this|os|env|process|config|settings|args|request)\.\w.*"
)


def _is_attribute(value: str) -> bool:
    return _ATTRIBUTE.fullmatch(value) is not None
