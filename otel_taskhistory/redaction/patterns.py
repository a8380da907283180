# SPDX-License-Identifier: Apache-2.0
"""Secrets that can be told by how they look: keys of providers, tokens, private keys.

Every pattern takes time in proportion to the text, whatever the text is: a pattern begins with
fixed characters, its runs are possessive, and where something must follow a run of unbounded
length the run cannot begin within another one.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

MASK: Final = "***REDACTED***"
"""What stands for a secret. It may stand in JSON, in a URL and in a command line as it is."""

# Where a key may begin: not within a word; but after an escape of a URL or of JSON, whose last
# letter is none of a word.
_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf]))"
_ALONE: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf]))"

_KEYS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    # OpenAI, Anthropic (sk-ant-), OpenRouter (sk-or-), Langfuse (sk-lf-), DeepSeek, LiteLLM, …
    (("sk-",), _START + r"sk-[A-Za-z0-9_-]{16,}+"),
    (("sess-",), _START + r"sess-[A-Za-z0-9]{40}"),
    # Google: API key, OAuth access token, client secret, refresh token.
    (("AIza",), _START + r"AIza[A-Za-z0-9_-]{35}"),
    (("ya29.",), _START + r"ya29\.[A-Za-z0-9_-]{20,}+"),
    (("GOCSPX-",), _START + r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    (("1//0",), _START + r"1//0[A-Za-z0-9_-]{30,}+"),
    # Amazon: access key ids, keys of Bedrock.
    (
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        _START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    (("ABSK",), _START + r"ABSK[A-Za-z0-9+/]{80,}+={0,2}"),
    (("bedrock-api-key-",), _START + r"bedrock-api-key-[A-Za-z0-9+/=_-]{20,}+"),
    # GitHub, GitLab.
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _START + r"gh[pousr]_[A-Za-z0-9]{30,}+"),
    (("github_pat_",), _START + r"github_pat_[A-Za-z0-9_]{22,}+"),
    (("gl",), _START + r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[A-Za-z0-9_.-]{16,}+"),
    # Models and what agents use.
    (("hf_", "api_org_"), _START + r"(?:hf|api_org)_[A-Za-z0-9]{30,}+"),
    (("gsk_",), _START + r"gsk_[A-Za-z0-9]{32,}+"),
    (("xai-",), _START + r"xai-[A-Za-z0-9]{40,}+"),
    (("pplx-",), _START + r"pplx-[A-Za-z0-9]{32,}+"),
    (("r8_",), _START + r"r8_[A-Za-z0-9]{32,}+"),
    (("fw_",), _START + r"fw_[A-Za-z0-9]{20,}+"),
    (("csk-",), _START + r"csk-[A-Za-z0-9]{32,}+"),
    (("nvapi-",), _START + r"nvapi-[A-Za-z0-9_-]{32,}+"),
    (("tvly-",), _START + r"tvly-[A-Za-z0-9_-]{20,}+"),
    (("lsv2_",), _START + r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{32,}+"),
    (("pylf_v",), _START + r"pylf_v[0-9]_[A-Za-z0-9_]{20,}+"),
    (("bb_live_",), _START + r"bb_live_[A-Za-z0-9_-]{20,}+"),
    (("fc-",), _START + r"fc-[0-9a-f]{32}(?![A-Za-z0-9])"),
    (("e2b_",), _START + r"e2b_[0-9a-f]{32,}+"),
    (("pcsk_",), _START + r"pcsk_[A-Za-z0-9_]{32,}+"),
    (("dapi",), _START + r"dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    (("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{20,}+"),
    # Slack, Discord, Telegram, mail and telephony.
    (("xox",), _START + r"xox[abdeoprs]-[A-Za-z0-9-]{10,}+"),
    (("xapp-",), _START + r"xapp-[A-Za-z0-9-]{20,}+"),
    (("hooks.slack.com/",), r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}+"),
    (("/api/webhooks/",), r"(?<=/api/webhooks/)[0-9]{10,25}+/[A-Za-z0-9_-]{30,}+"),
    ((":AA",), _START + r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}+"),
    (("SG.",), _START + r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{30,}+"),
    (("SK",), _START + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    (("key-",), _START + r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    # Payment and shops.
    (("k_live_", "k_test_"), _START + r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    (("whsec_",), _START + r"whsec_[A-Za-z0-9+/=]{16,}+"),
    (("sq0",), _START + r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}+"),
    (("shp",), _START + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    # Packages, clouds, work.
    (("npm_",), _START + r"npm_[A-Za-z0-9]{36}"),
    (("pypi-",), _START + r"pypi-[A-Za-z0-9_-]{50,}+"),
    (("do",), _START + r"do[opr]_v1_[0-9a-f]{64}"),
    (("hv",), _START + r"hv[sbr]\.[A-Za-z0-9_-]{24,}+"),
    (("ATATT3", "ATCTT3"), _START + r"AT[AC]TT3[A-Za-z0-9_=-]{50,}+"),
    (("lin_",), _START + r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}+"),
    (("ntn_",), _START + r"ntn_[A-Za-z0-9]{40,}+"),
    (("figd_",), _START + r"figd_[A-Za-z0-9_-]{30,}+"),
    (("glsa_", "glc_"), _START + r"gl(?:sa|c)_[A-Za-z0-9+/=_]{30,}+"),
    (("NRAK-",), _START + r"NRAK-[A-Z0-9]{20,}+"),
    (("sntry",), _START + r"sntry[su]_[A-Za-z0-9+/=_-]{30,}+"),
    (("PMAK-",), _START + r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    (("sbp_",), _START + r"sbp_[0-9a-f]{40}"),
    (("pscale_",), _START + r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}+"),
    (("dop_",), _START + r"dop_v1_[0-9a-f]{64}"),
    (("dp.",), _START + r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_-]{30,}+"),
    # JSON Web Tokens: header, and whatever parts there are after it.
    (
        ("eyJ",),
        _ALONE + r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+){0,3}",
    ),
    # A signed address: Azure's shared access, Amazon's and Google's presigned ones.
    (("sig=",), r"(?<=[?&]sig=)[A-Za-z0-9%+/=_-]{16,}+"),
)
_COMPILED: Final = tuple((hints, re.compile(pattern)) for hints, pattern in _KEYS)

_SCHEMES: Final = ("bearer", "basic", "token", "digest", "negotiate", "apikey")
_SCHEME: Final = re.compile(
    rf"(?i:\b({'|'.join(_SCHEMES)}))((?:[ +]|%20|:){{1,4}})"
    r"([A-Za-z0-9._~+/=%-]{8,}+)"
)
_ENOUGH: Final = 20
"""From so many characters on a token need not have a digit to be one."""

_URL_USER: Final = re.compile(
    r"(:(?:\\?/){2}[^\s/?#\"'<>@\\:]{0,256}+:)([^\s/?#\"'<>\\]{1,256})(?=@)"
)
_CURL_USER: Final = re.compile(
    r"((?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,4}\\{0,8}+[\"']?[^\s:\"']{1,64}+:)"
    r"([^\s\"'\\]{1,256}+)"
)
_URL_TOKEN: Final = re.compile(r"(?<=://)[A-Za-z0-9_.~%-]{20,256}+(?=@)")

_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = "-----END "
_PEM_BODY: Final = re.compile(
    r"(?:[A-Za-z0-9+/=]{12,}+|[A-Za-z-]{3,20}+: [A-Za-z0-9,._ -]{1,80}|\s|\\{1,8}+[nr])*+"
    r"(?:[A-Za-z0-9+/=]{1,11}+(?=\s*+\Z|\\|-))?"
)
_LONGEST_KEY: Final = 20_000
"""Characters of a private key at most; an end that is farther off belongs to something else."""


def mask_known(text: str) -> str:
    """`text` with all that looks like a secret masked."""
    if "PRIVATE KEY" in text:
        text = _mask_private_keys(text)
    for hints, pattern in _COMPILED:
        if any(hint in text for hint in hints):
            text = pattern.sub(MASK, text)
    if "curl" in text:
        text = _CURL_USER.sub(_mask_password, text)
    if "://" in text or ":\\/\\/" in text:
        text = _URL_USER.sub(_mask_password, text)
        text = _URL_TOKEN.sub(MASK, text)
    lower = text.lower()
    if any(scheme in lower for scheme in _SCHEMES):
        text = _SCHEME.sub(_mask_scheme, text)
    return text


def _mask_password(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}"


def _mask_scheme(found: re.Match[str]) -> str:
    scheme, space, value = found.groups()
    kind = scheme.lower()
    if kind == "basic":
        is_secret = _holds_a_colon(value)
    elif kind in ("bearer", "negotiate") or len(value) >= _ENOUGH:
        is_secret = len(value) >= _ENOUGH or any(map(str.isdigit, value))
        is_secret = is_secret and (kind in ("bearer", "negotiate") or _is_mixed(value))
    else:
        is_secret = False
    return f"{scheme}{space}{MASK}" if is_secret else found[0]


def _is_mixed(value: str) -> bool:
    """Whether a text has letters and digits, as tokens have and words have not."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _holds_a_colon(value: str) -> bool:
    """Whether it is base64 of ``user:password``."""
    value = value.rstrip("=")
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):  # words: "basic understanding"
        return False


def _mask_private_keys(text: str) -> str:
    """Without a regular expression over the body: the end of one may be missing."""
    pieces: list[str] = []
    copied = 0
    ends_at = 0  # the first end at or after the last beginning; -1: there is no more
    for begins in _PEM.finditer(text):
        if begins.start() < copied:
            continue
        if 0 <= ends_at < begins.end():
            ends_at = text.find(_PEM_END, begins.end())
        body = _PEM_BODY.match(text, begins.end())
        end = body.end() if body else begins.end()
        if 0 <= ends_at <= begins.end() + _LONGEST_KEY:
            close = text.find("-----", ends_at + len(_PEM_END), ends_at + 80)
            end = ends_at if close < 0 else close + 5
        pieces += (text[copied : begins.start()], MASK)
        copied = end
    pieces.append(text[copied:])
    return "".join(pieces)
