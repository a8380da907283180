# SPDX-License-Identifier: Apache-2.0
"""Scrubber: masks secrets wherever they stand in a value, and leaves the rest as it is.

Masking again changes nothing more. JSON stays JSON, base64 stays base64. Time is in proportion to
the text, and no value makes it raise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from otel_taskhistory.redaction import encoded, json_text
from otel_taskhistory.redaction.assignments import mask_assigned
from otel_taskhistory.redaction.patterns import MASK, mask_known
from otel_taskhistory.redaction.records import (
    change_log,
    change_origin,
    change_span,
    without_contents,
)
from otel_taskhistory.redaction.registered import Registered
from otel_taskhistory.redaction.secret_names import Kind, hides, kind_of, names_a_secret
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import Attributes, LogRecord, OriginRecord, SpanRecord

__all__ = ["MASK", "Scrubber", "scrubber_of"]

_logger = logging.getLogger("otel_taskhistory")

_DEEPEST: Final = 32
"""Levels of JSON within JSON, and of base64 within it; deeper ones are read as plain text."""
_DEEPEST_VALUE: Final = 200
_REMEMBERED: Final = 16 * 2**20  # bytes, about, of all texts that are remembered
_WEIGHT: Final = 200  # bytes, about, that remembering a text takes beside the text
_SHORTEST: Final = 4  # characters of a text that is looked at

_Record = TypeVar("_Record", SpanRecord, LogRecord)


class Scrubber:
    """Masks registered secrets and all that looks like one.

    Attributes:
        failures: records that could not be looked through, and of which only ids, times and
            structure were kept.

    Args:
        secrets: values to be masked wherever they stand, beside those of environment variables
            whose names look secret.
        environ: the process's own environment by default.

    Raises:
        SettingsError: one of `secrets` is no text of at least four characters.
    """

    def __init__(
        self, secrets: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        self._registered = Registered(secrets, environ)
        self.failures = 0
        # A prompt is seen at each checkpoint of its step, and in the prompts after it. Not locked:
        # what two threads do here at once loses memories at worst.
        self._known: dict[str, str] = {}
        self._room = _REMEMBERED

    # --- records ---

    def record(self, record: _Record) -> _Record:
        """A span or log record with the secrets in it masked; ids and times stay.

        What cannot be looked through, as when the agent has left no room on its stack, goes.
        """
        try:
            self.look()
            if isinstance(record, SpanRecord):
                return change_span(record, self._attributes, self._plain)
            return change_log(record, self._attributes, self._plain, self._value)
        except Exception as error:
            self.failures += 1
            if self.failures == 10 ** (len(str(self.failures)) - 1):
                _logger.warning(
                    "otel-taskhistory: a record could not be looked through for secrets, its"
                    " contents are left out (%s; %s so far)",
                    type(error).__qualname__,
                    self.failures,
                )
            return without_contents(record)

    def origin(self, origin: OriginRecord) -> OriginRecord:
        """A resource or scope, likewise."""
        self.look()
        return change_origin(origin, self._attributes, self._plain)

    # --- values ---

    def text(self, text: str) -> str:
        """`text` with the secrets in it masked."""
        self.look()
        return self._text(text, 0)

    def value(self, value: Any) -> Any:
        """A value of any type, likewise; what holds no secret keeps its type."""
        self.look()
        return self._value(value)

    def masked(self, value: Any) -> Any:
        """As `value`, with the secrets that were known at the last look."""
        return self._value(value)

    def look(self) -> None:
        """Look at the environment for new secrets; all but `masked` do."""
        if self._registered.look():
            self._forget()

    # --- inside ---

    def _forget(self) -> None:
        self._known = {}
        self._room = _REMEMBERED

    def _attributes(self, attributes: Attributes) -> Attributes:
        changed = self._mapping(attributes, None, 0)
        return attributes if changed is None else changed

    def _plain(self, text: str) -> str:
        return self._text(text, 0) if isinstance(text, str) else text

    def _value(self, value: Any, kind: Kind | None = None, depth: int = 0) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return MASK if hides(kind, value) else self._text(value, 0)
        if isinstance(value, int | float):
            hidden = kind == "secret" or (
                self._registered.numbers and self._registered.is_in_number(_shown(value))
            )
            return MASK if hidden else value
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value), kind) if value else value
        if depth >= _DEEPEST_VALUE:
            return MASK  # what cannot be looked through does not pass
        if isinstance(value, Mapping):
            changed = self._mapping(value, kind, depth + 1)
            return value if changed is None else changed
        if isinstance(value, list | tuple):
            items = [self._value(item, kind, depth + 1) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return tuple(items) if isinstance(value, tuple) else items
        return self._other(value, kind)

    def _mapping(
        self, value: Mapping[Any, Any], kind: Kind | None, depth: int
    ) -> dict[Any, Any] | None:
        """A mapping with its values and keys masked; None when nothing was."""
        changed: dict[Any, Any] = {}
        same = True
        named = any(names_a_secret(key, item) for key, item in value.items())
        for key, item in value.items():
            name = self._text(key, 0) if isinstance(key, str) else key
            while name is not key and name in changed:  # two keys whose secrets were masked
                name += "_"
            within = kind or (kind_of(key) if isinstance(key, str) else None)
            if named and within is None and key in ("value", "values"):
                within = "secret"
            new = self._value(item, within, depth)
            same = same and new is item and name == key
            changed[name] = new
        return None if same else changed

    def _bytes(self, data: bytes, kind: Kind | None) -> bytes:
        if kind is not None or self._registered.is_in_bytes(data):
            return MASK.encode()
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return data
        changed = self._text(text, 0)
        return data if changed == text else changed.encode("utf-8", "replace")

    def _other(self, value: Any, kind: Kind | None) -> Any:
        """An object that careless code has put there: it is shown as text, and so looked at."""
        try:
            shown = str(value)
        except Exception:  # whatever its code does: it stays what it is, and cannot be shown
            return value
        if not isinstance(shown, str):
            return value
        changed = MASK if kind else self._text(shown, 0)
        return value if changed == shown else changed

    def _text(self, text: str, depth: int) -> str:
        if len(text) < _SHORTEST:
            return text
        if type(text) is not str:
            text = str.__str__(text)
        known = self._known.get(text)
        if known is None:
            known = self._masked(text, depth)
            weight = 2 * len(text) + _WEIGHT
            if weight <= _REMEMBERED:
                if self._room < weight:
                    self._forget()
                self._room -= weight
                self._known[text] = known
        return known

    def _masked(self, text: str, depth: int) -> str:
        if depth < _DEEPEST and json_text.is_json(text):
            numbers = self._registered.is_in_number if self._registered.numbers else None
            return json_text.change_strings(
                text, lambda inner: self._text(inner, depth + 1), numbers
            )
        text = self._registered.mask(text)
        text = mask_assigned(mask_known(text))
        return encoded.RUN.sub(lambda run: self._run(run[0], depth), text)

    def _run(self, run: str, depth: int) -> str:
        if self._registered.is_in_base64(encoded.plain_alphabet(run)):
            rewritten = self._rewritten(run, depth)
            plain = encoded.plain_alphabet(rewritten)
            return MASK if self._registered.is_in_base64(plain) else rewritten
        return self._rewritten(run, depth)

    def _rewritten(self, run: str, depth: int) -> str:
        if depth >= _DEEPEST:
            return run
        return encoded.rewrite(run, lambda inner: self._text(inner, depth + 1))


def scrubber_of(settings: Settings) -> Scrubber | None:
    """What is to be done with records before they are written; None: nothing."""
    return Scrubber(settings.secrets) if settings.scrub else None


def _shown(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # too long a number for Python to show
        return hex(number) if isinstance(number, int) else ""
