# SPDX-License-Identifier: Apache-2.0
"""``no_images``: pictures go, in whatever form they are; everything else stays."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.redaction.pictures import without_pictures
from tests.processes import SOUND_PNG
from tests.recorded import PICTURES

B64 = base64.b64encode(SOUND_PNG).decode()
TOLD = f"[image/png, {len(SOUND_PNG)} bytes, sha256 {hashlib.sha256(SOUND_PNG).hexdigest()}]"


def without(value: Any) -> Any:
    """A value without its pictures."""
    return without_pictures({"a": value})["a"]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (B64, TOLD),
        (SOUND_PNG, TOLD.encode()),
        (f"data:image/png;base64,{B64}", TOLD),
        (f"see data:image/png;base64,{B64} there", f"see {TOLD} there"),
        (json.dumps({"url": f"data:image/png;base64,{B64}"}), json.dumps({"url": TOLD})),
        (json.dumps(json.dumps([B64])), json.dumps(json.dumps([TOLD]))),
        (B64.replace("/", "\\/"), TOLD),
        (base64.urlsafe_b64encode(SOUND_PNG).decode(), TOLD),
        (base64.encodebytes(SOUND_PNG).decode(), TOLD + "\n"),
        (f"word/{B64}", f"word/{TOLD}"),
        ([B64, "x"], [TOLD, "x"]),
        ({"image": {"bytes": SOUND_PNG}}, {"image": {"bytes": TOLD.encode()}}),
    ],
)
def test_a_picture_is_told_and_not_shown(value: Any, left: Any) -> None:
    """By its type, its size and the digest that the local history knows it by."""
    assert without(value) == left


def test_a_picture_in_an_address_that_is_no_base64_goes_too() -> None:
    """As drawings are written."""
    left = without("data:image/svg+xml;utf8,%3Csvg%20onload=1%3E%3C/svg%3E end")
    assert left.startswith("[image/svg+xml, ")
    assert left.endswith("] end")
    assert "%3C" not in left


@pytest.mark.parametrize("name", ["png_ok.png"])
@pytest.mark.parametrize("start", [b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\0\0\0\0WEBP", None])
def test_each_kind_of_picture_is_known(name: str, start: bytes | None) -> None:
    """By its first bytes, not by what somebody calls it."""
    data = (PICTURES / name).read_bytes()
    data = data if start is None else start + data[len(start) :]
    assert without(base64.b64encode(data).decode()).startswith("[image/")
    assert without(data).startswith(b"[image/")


@pytest.mark.parametrize(
    "value",
    [
        "a text",
        "data:text/plain;base64,aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=",
        base64.b64encode(b"some text that is long enough to be looked at").decode(),
        b"bytes",
        7,
        None,
        True,
        [1, "two"],
        "ab" * 4000,
    ],
)
def test_all_else_stays(value: Any) -> None:
    """The very same attributes come back."""
    attributes = {"a": value}
    assert without_pictures(attributes) is attributes


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists))
def test_it_is_total(value: Any) -> None:
    """Whatever comes."""
    without(value)


@pytest.mark.parametrize(
    "piece",
    ["a", "\\", "\\/", "\\n", "\n", "data:image/", "data:image/png,", "iVBORw0KGgo", "/9j/4"],
)
def test_a_hostile_megabyte_is_done(piece: str) -> None:
    """In time that is in proportion to it; anything worse would not end within the test's limit."""
    without(piece * (2**20 // len(piece)))
