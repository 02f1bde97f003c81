"""How an address is spelled where addresses are compared and told: as Java's InetAddress.getHostAddress() does."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)
def plain_address(host: str) -> str:
    """An address in the one spelling that Kafka's entries and lines have: IPv6 is eight groups of hexadecimal digits,
    none left out and none with a zero before it (``0:0:0:0:0:0:0:1``); an IPv4 address that came by IPv6 is the IPv4
    one. A link's zone is left out. What is no address stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    number = int(address)
    return ":".join(f"{number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))
