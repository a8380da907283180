# SPDX-License-Identifier: Apache-2.0
"""Secrets within base64: a run of it is read, and written anew when its text had to be masked.

Also ``data:`` URLs, of which such a run is a part. What is no text (a picture) is only looked
through for registered secrets.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

RUN: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}+={0,2}+")
"""What may be base64, of either alphabet."""

_PROBE: Final = 512  # characters of a run that tell whether it is text
_URL_SAFE: Final = str.maketrans("-_", "+/")
_NO_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")


def rewrite(run: str, change: Callable[[str], str]) -> str:
    """A run of base64 with the text in it changed; the very same run when nothing is."""
    text = decoded(run)
    if text is None:
        return run
    changed = change(text)
    if changed == text:
        return run
    written = base64.b64encode(changed.encode("utf-8", "replace")).decode("ascii")
    if "-" in run or "_" in run:
        written = written.replace("+", "-").replace("/", "_")
    return written if run.endswith("=") or len(run) % 4 == 0 else written.rstrip("=")


def decoded(run: str) -> str | None:
    """The text that a run of base64 holds; None when it holds none."""
    plain = run.rstrip("=").translate(_URL_SAFE)
    if len(plain) % 4 == 1 or not _is_text(plain[:_PROBE], whole=len(plain) <= _PROBE):
        return None
    try:
        text = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return None if _NO_TEXT.search(text) else text


def _is_text(head: str, *, whole: bool) -> bool:
    try:
        data = base64.b64decode(head + "=" * (-len(head) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    # A character may be cut at the end of the head.
    text = data.decode("utf-8", "strict" if whole else "ignore") if _is_utf8(data, whole) else ""
    return bool(text) and _NO_TEXT.search(text) is None


def _is_utf8(data: bytes, whole: bool) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return not whole and error.end >= len(data) - 3 and error.reason == "unexpected end of data"
    return True


def cores(secret: str) -> frozenset[str]:
    """What base64 of any bytes with `secret` in them has in it, wherever the secret stands there.

    Empty for a secret that is too short to be told by it.
    """
    data = secret.encode("utf-8", "surrogatepass")
    found = set()
    for shift in range(3):
        run = base64.b64encode(b"\0" * shift + data).decode("ascii").rstrip("=")
        # Characters at both ends also depend on the bytes beside the secret.
        core = run[(0, 2, 3)[shift] : (shift + len(data)) // 3 * 4]
        if len(core) >= 8:
            found.add(core)
    return frozenset(found)


def plain_alphabet(run: str) -> str:
    """A run of either alphabet in the usual one."""
    return run.translate(_URL_SAFE)
