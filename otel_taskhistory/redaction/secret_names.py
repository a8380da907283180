# SPDX-License-Identifier: Apache-2.0
"""Names that say that their value is a secret: keys of maps, variables, headers, parameters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from otel_taskhistory.redaction.patterns import MASK

Kind = Literal["secret", "token"]
"""``secret``: whatever the value is, also a number. ``token``: a text that looks like one, for
numbers under such a name are counts, and words are tokens of a model."""

_ENOUGH: Final = 16
"""From so many characters on a token need not have a digit to be one."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_LONGEST: Final = 128  # characters of a name that are looked at

_STEMS: Final = (
    *("password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "motdepasse"),
    *("secret", "credential", "authorization", "cookie", "apikey", "accesskey", "privatekey"),
    *("secretkey", "signingkey", "encryptionkey", "sharedkey", "masterkey", "accountkey"),
    *("authkey", "sshkey", "subscriptionkey", "servicekey", "storagekey", "webhookkey"),
    *("bearertoken", "accesstoken", "refreshtoken", "authtoken", "securitytoken"),
    *("amzsignature", "googsignature", "connectionstring"),
)
_WHOLE: Final = frozenset({"pwd", "pw", "otp", "totp", "cvv", "cvc", "creds", "pat"})
_TOKENS: Final = frozenset({"token", "jwt", "bearer", "auth"})
_SEVERAL: Final = frozenset({"access", "auth", "refresh", "bearer", "api", "secret", "id"})
_NO_SECRETS: Final = frozenset({"secretary", "secretaries", "secretariat", "cookiecutter"})

_OF_MODELS_WORDS: Final = (
    "first last next prev previous page per to of max min end stop eos bos pad unk sep mask cls"
    " special start begin input output prompt completion total new continuation sync cursor"
    " count num image audio text"
)
_OF_MODELS: Final = frozenset(_OF_MODELS_WORDS.split())
"""What a token of a model, or of a list's next page, is called."""
_ABOUT_WORDS: Final = (
    "length len count size min max policy type types name names hint field fields label labels url"
    " uri endpoint path file dir expiry expires expired expiration expire enabled disabled required"
    " valid validity limit usage banner consent strength reset version format algorithm alg header"
    " prefix suffix env ttl age status error errors mode prompt attempts rotation manager managers"
    " provider store scope scopes created updated at in on is has was when"
    " region profile socket sock host id ids index jar arn description title question"
)
_ABOUT: Final = frozenset(_ABOUT_WORDS.split())
"""Last words of a name that is about a secret and holds none."""
_WORKING_FOLDER: Final = frozenset({"PWD", "OLDPWD", "INIT_PWD"})


def kind_of(name: str) -> Kind | None:
    """What a name says of its value; None when nothing."""
    return _kind_of(name[-_LONGEST:])


def hides(kind: Kind | None, value: str) -> bool:
    """Whether a text under a name of this kind is to be masked."""
    if kind == "token":
        value = value.replace(MASK, "")
        return len(value) >= _ENOUGH or (len(value) >= 4 and any(map(str.isdigit, value)))
    return kind == "secret" and bool(value)


def names_a_secret(key: object, value: object) -> bool:
    """Whether an item of a map says that another, its ``value``, is a secret.

    As in ``{"name": "authorization", "value": …}``.
    """
    return (
        key in ("name", "key", "header", "field")
        and isinstance(value, str)
        and len(value) <= _LONGEST
        and kind_of(value) is not None
    )


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> Kind | None:
    if name in _WORKING_FOLDER:
        return None
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or (words[-1] in _ABOUT and len(words) > 1 and words[-2:] != ["secret", "id"]):
        return None
    flat = "".join(word for word in words if word not in _NO_SECRETS)
    if any(stem in flat for stem in _STEMS) or not _WHOLE.isdisjoint(words):
        return "secret"
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last == "pass":
        return "secret" if before else "token"
    if last == "tokens":
        return "token" if before in _SEVERAL else None
    if last in _TOKENS or last.endswith("token"):
        return None if before in _OF_MODELS else "token"
    return None
