# Copyright (c) 2026 azops.maintenance contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the metadata service is: its well-known address, a URL that the user gave, or DHCP option 245."""

import glob
import ipaddress
import os
import re
from typing import List, NamedTuple, Optional, Sequence
from urllib.parse import urlsplit

from ._errors import InputError

AUTO = "auto"
AZURE_HOST = "169.254.169.254"

LEASE_FILES = (
    "/run/systemd/netif/leases/*",
    "/var/lib/dhcp/dhclient*.lease*",
    "/var/lib/dhclient/dhclient*.lease*",
    "/var/lib/NetworkManager/*.lease",
)

DHCLIENT_OPTION = r"option\s+(?:unknown-|option-|private-)245\s+(?P<dhclient>[0-9A-Fa-f:.]+)\s*;"
NETWORKD_OPTION = r"OPTION_245=(?P<networkd>[0-9A-Fa-f:.]+)"
OPTION_245 = re.compile(r"^\s*(?:{0}|{1})\s*$".format(DHCLIENT_OPTION, NETWORKD_OPTION), re.MULTILINE)


class Endpoint(NamedTuple):
    """The address of one VM's metadata service."""

    host: str
    port: int = 80
    prefix: str = ""
    from_dhcp: bool = False

    @property
    def url(self) -> str:
        host = "[{0}]".format(self.host) if ":" in self.host else self.host
        port = "" if self.port == 80 else ":{0}".format(self.port)
        return "http://{0}{1}{2}".format(host, port, self.prefix)

    @property
    def is_azure(self) -> bool:
        """Whether this is Azure's own service rather than a simulator."""
        return self.from_dhcp or self == Endpoint(AZURE_HOST)


def parse_endpoint(text: str) -> Endpoint:
    """Understand the URL that a user gave."""
    remedy = "Give it as http://HOST[:PORT][/PREFIX], or 'auto'."
    if not re.match(r"^[\x21-\x7e]*$", text.strip()):
        raise InputError("The endpoint {0!r} has a space or a special character in it.".format(text), remedy)
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise InputError("The endpoint {0!r} is not a URL: {1}.".format(text, error), remedy) from None
    if parts.scheme != "http" or not parts.hostname or port == 0:
        raise InputError("The endpoint {0!r} is not an http URL with a host and a port.".format(text), remedy)
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError("The endpoint {0!r} has a user, a query or a fragment.".format(text), remedy)
    return Endpoint(parts.hostname, 80 if port is None else port, parts.path.rstrip("/"))


def candidate_endpoints(text: str, lease_files: Sequence[str] = LEASE_FILES) -> List[Endpoint]:
    """The endpoints to try, in order."""
    if text.strip().lower() != AUTO:
        return [parse_endpoint(text)]
    candidates = [Endpoint(AZURE_HOST)]
    leased = address_in_leases(lease_files)
    if leased is not None:
        candidates.append(Endpoint(leased, from_dhcp=True))
    return candidates


def address_in_leases(lease_files: Sequence[str] = LEASE_FILES) -> Optional[str]:
    """The address in DHCP option 245, from the newest lease that has one."""
    paths = [path for pattern in lease_files for path in glob.glob(pattern)]
    for path in sorted(paths, key=_modified, reverse=True):
        address = _option_245(_text(path))
        if address is not None:
            return address
    return None


def _option_245(lease: str) -> Optional[str]:
    for match in reversed(list(OPTION_245.finditer(lease))):
        address = _address(match.group("dhclient") or match.group("networkd"))
        if address is not None:
            return address
    return None


def _address(value: str) -> Optional[str]:
    """An IPv4 address written as a8:3f:81:10, a83f8110 or 168.63.129.16."""
    if "." not in value:
        octets = value.split(":") if ":" in value else re.findall("..", value)
        value = ".".join(str(int(octet, 16)) for octet in octets if octet)
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        return None


def _modified(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as lease:
            return lease.read()
    except OSError:
        return ""
