"""Take addresses of the web apart, and say which machines may be asked.

Both are written for hostile input: an address is taken apart once, and the connection is made from these parts, so that
no second parser can see another host in it. Reads nothing.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

LONGEST = 8192
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_KEPT = "/%:@!$&'()*+,;=~-._"
_PORTS = {"http": 80, "https": 443}
_UNICAST = ipaddress.ip_network("2000::/3")
_SPECIAL = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "3fff::/20")]
"""Special by the registries of IANA, though ``is_global`` of some Python releases holds them for ordinary: protocol
assignments, relays of 6to4 (which may lead to any IPv4 address), documentation."""


class RefusedAddressError(Exception):
    """Say that an address is not one that may be fetched: a constant ``reason``, and the particulars."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Address:
    """Be an http or https address in its parts, all of them ASCII."""

    scheme: str
    host: str
    """A name, or an IP address without brackets."""
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def authority(self) -> str:
        """Return what the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """Return the address for people: the query is left out, since it may hold a key."""
        path, query, _ = self.target.partition("?")
        return f"{self.scheme}://{self.authority}{path}"[:300] + ("?..." if query else "")

    @property
    def url(self) -> str:
        """Return the whole address."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def join(self, location: str) -> "Address":
        """Return where a redirect leads.

        Raises:
            RefusedAddressError: it leads to no address that may be fetched.
        """
        try:
            return parse_address(urljoin(self.url, location))
        except ValueError as error:
            raise RefusedAddressError("damaged address", "of a redirect") from error


def parse_address(text: str) -> Address:
    """Return the parts of an address.

    Raises:
        RefusedAddressError: it is not http or https, holds credentials, or is damaged; no message repeats it.
    """
    if len(text) > LONGEST:
        raise RefusedAddressError("damaged address", f"{len(text)} characters")
    try:
        parts = urlsplit(text.strip())
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError as error:
        raise RefusedAddressError("damaged address") from error
    if scheme not in _PORTS:
        raise RefusedAddressError("not an http address", scheme[:20])
    if "@" in parts.netloc:
        raise RefusedAddressError("credentials in the address")
    target = quote(parts.path or "/", safe=_KEPT, errors="replace")
    if parts.query:
        target += "?" + quote(parts.query, safe=_KEPT + "?", errors="replace")
    return Address(scheme, _ascii_host(host), port or _PORTS[scheme], target)


def is_public(address: str) -> bool:
    """Say whether an IP address belongs to the public internet: not this machine, nor one beside it, nor a group."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return is_public(str(ip.ipv4_mapped))
        if ip not in _UNICAST or ip.scope_id:
            return False
    if ip.is_multicast or ip.is_reserved or ip.is_private:
        return False
    return ip.is_global and not any(ip in network for network in _SPECIAL)


def _ascii_host(host: str) -> str:
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host.replace("%", "no zones")))
        except ValueError as error:
            raise RefusedAddressError("damaged address", "the host") from error
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise RefusedAddressError("damaged address", "the host") from error
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.removesuffix(".").split(".")):
        raise RefusedAddressError("damaged address", "the host")
    return name
