# SPDX-License-Identifier: Apache-2.0
"""Whether an HTTP request is meant for this machine, and shows the token.

A page from elsewhere that a browser shows can make it send requests to this machine too. When the
page has made its own name point here (DNS rebinding), the Host header names that other site.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable
from typing import Final

Header = tuple[bytes, bytes]

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@/\\\s]+)(?::[0-9]{1,5})?")


class Names:
    """By which names one may call this machine.

    Args:
        names: host names that mean this machine.
        any_address: any IP address will do as well, else those of the loopback device. (Others can
            make a name point here, but not an address.)
    """

    def __init__(self, names: Iterable[str], *, any_address: bool) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._any_address = any_address

    def meant_by(self, headers: Iterable[Header]) -> bool:
        """Whether the one Host header of a request names this machine."""
        hosts = [value for name, value in headers if name == b"host"]
        found = _HOST.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        if name in self._names:
            return True
        address = _address(name)
        return address is not None and (self._any_address or address.is_loopback)


def bearers(headers: Iterable[Header]) -> list[str]:
    """The tokens that a request shows as ``Authorization: Bearer``."""
    return [
        value.decode("latin-1")[7:].strip()
        for name, value in headers
        if name == b"authorization" and value[:7].lower() == b"bearer "
    ]


def same(given: str, wanted: str) -> bool:
    """Whether two secrets are equal; how long it takes tells nothing of either."""
    return hmac.compare_digest(
        given.encode("utf-8", "backslashreplace"), wanted.encode("utf-8", "backslashreplace")
    )


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None
