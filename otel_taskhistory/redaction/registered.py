# SPDX-License-Identifier: Apache-2.0
"""Secrets that are known by their value: given by the user, or found in the environment.

Variables whose names look secret give theirs; a variable that is a URL with a password in it gives
that. They are read again whenever they have changed, for programs fill their environment late, and
what was a secret once stays one.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, quote_plus, unquote

from otel_taskhistory.redaction.encoded import cores
from otel_taskhistory.redaction.patterns import MASK
from otel_taskhistory.redaction.secret_names import kind_of
from otel_taskhistory.settings import checked_secrets

SHORTEST_OF_ENVIRONMENT: Final = 8
"""Of one that only its variable's name tells."""

_URL_PASSWORD: Final = re.compile(r"://[^\s/?#@:]*:([^\s/?#]+)@")
_ORDINARY: Final = re.compile(r"(?:[a-z]+|[A-Z]+|[0-9.]+|/[\w./-]*|~[\w./-]*|[a-z]+://[^@]*)\Z")
"""A word, a number, a path or an address: no secret, whatever the variable is called."""
_NUMERIC: Final = re.compile(r"[0-9.eE+-]+\Z")


class Registered:
    """Knows secrets by value, and masks them.

    Args:
        secrets: given ones.
        environ: where to look for more; the process's own environment by default.

    Raises:
        SettingsError: one of the given ones is no text, or is too short.
    """

    def __init__(
        self, secrets: Sequence[str] = (), environ: Mapping[str, str] | None = None
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._seen: tuple[tuple[str, str], ...] = ()
        self._known = frozenset(checked_secrets(secrets))
        self._arrange()
        self.look()

    def look(self) -> bool:
        """Look at the environment again; whether there are new secrets."""
        try:
            seen = tuple(self._environ.items())
        except RuntimeError:  # another thread is changing it: the next look will do
            return False
        if seen == self._seen:
            return False
        self._seen = seen
        known = self._known | frozenset(_of_environment(seen))
        if known == self._known:
            return False
        self._known = known
        self._arrange()
        return True

    def _arrange(self) -> None:
        variants = {written for secret in self._known for written in _written(secret)}
        # A secret that begins another one must not leave the rest of it.
        self._variants = tuple(sorted(variants, key=lambda text: (-len(text), text)))
        self._cores = tuple(sorted({core for secret in self._known for core in cores(secret)}))
        self._data = tuple(secret.encode("utf-8", "surrogatepass") for secret in self._known)
        numbers = (secret for secret in self._known if _NUMERIC.match(secret))
        self.numbers: tuple[str, ...] = tuple(sorted(numbers))

    def mask(self, text: str) -> str:
        """`text` with every registered secret masked, as it is or as URLs and JSON write it."""
        for variant in self._variants:
            if variant in text:
                text = text.replace(variant, MASK)
        return text

    def is_in_number(self, number: str) -> bool:
        """Whether a number, as written, holds one."""
        return any(secret in number for secret in self.numbers)

    def is_in_base64(self, run: str) -> bool:
        """Whether the bytes of a run of base64, in the usual alphabet, hold one."""
        return any(core in run for core in self._cores)

    def is_in_bytes(self, data: bytes) -> bool:
        """Whether bytes hold one."""
        return any(secret in data for secret in self._data)


def _of_environment(variables: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, value in variables:
        value = value.strip()
        for password in _URL_PASSWORD.findall(value[:4096]):
            if len(password) >= SHORTEST_OF_ENVIRONMENT:
                yield from (password, unquote(password))
        if (
            len(value) >= SHORTEST_OF_ENVIRONMENT
            and kind_of(name) is not None
            and (_ORDINARY.match(value) is None or kind_of(name) == "secret")
            and not value.startswith(("/", "~"))
        ):
            yield value


def _written(secret: str) -> Iterable[str]:
    """A secret as it is, and as JSON, URLs and HTML write it."""
    plain = secret.encode("utf-8", "replace").decode()
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield html.escape(secret)
    for escaped in (quote(plain, safe=""), quote(plain), quote_plus(plain)):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
