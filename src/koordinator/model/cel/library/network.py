"""Addresses, networks and URLs (k8s.io/apiserver, ``library/ip.go``, ``cidr.go``, ``urls.go``)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import parse_qs, quote, unquote

from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LONGEST: Final = 100
_URL: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IP:
    address: Address
    cel_type: ClassVar[str] = "net.IP"
    cel_opaque: ClassVar[bool] = True

    @property
    def cel_size(self) -> int:
        return len(self.address.packed)


@dataclass(frozen=True, slots=True)
class Network:
    address: Address
    bits: int
    cel_type: ClassVar[str] = "net.CIDR"
    cel_opaque: ClassVar[bool] = True

    @property
    def cel_size(self) -> int:
        return -(-self.bits // 8)

    @property
    def masked(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address.packed, self.bits), strict=False)


def ip_of(text: str) -> IP:
    """Raises EvaluationError."""
    shown = '"' + text + '"'
    address = _address(text)
    if address is None:
        why = f"IP Address {shown} parse error during conversion from string: ParseAddr({shown}): unable to parse IP"
        raise EvaluationError(why)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f"IP address {shown} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return IP(address)


def network_of(text: str) -> Network:
    """Raises EvaluationError."""
    prefix = "network address parse error during conversion from string: "
    head, slash, bits = text.rpartition("/")
    address = _address(head)
    if why := _wrong_network(head, slash, bits, address):
        raise EvaluationError(f'{prefix}{prefix}netip.ParsePrefix("{text}"): {why}')
    assert address is not None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f'{prefix}IPv4-mapped IPv6 address "{text}" is not allowed')
    return Network(address, int(bits))


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text if len(text) <= _LONGEST else "")
    except ValueError:
        return None


def _wrong_network(head: str, slash: str, bits: str, address: Address | None) -> str:
    if not slash:
        return "no '/'"
    if address is None:
        return f'ParseAddr("{head}"): unable to parse IP'
    if "%" in head:
        return "IPv6 zones cannot be present in a prefix"
    if not bits.isdecimal() or (len(bits) > 1 and bits[0] == "0"):
        return f'bad bits after slash: "{bits}"'
    return "prefix length out of range" if int(bits[:4]) > address.max_prefixlen else ""


def _holds(of: Network, ip: IP) -> bool:
    return of.address.version == ip.address.version and ip.address in of.masked


def _holds_network(of: Network, other: Network) -> bool:
    if of.address.version != other.address.version or of.bits > other.bits:
        return False
    return other.address in of.masked


def _is_global(ip: IP) -> bool:
    address = ip.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"


def _link_local_multicast(ip: IP) -> bool:
    if isinstance(ip.address, ipaddress.IPv4Address):
        return ip.address in ipaddress.ip_network("224.0.0.0/24")
    return ip.address.packed[0] == 0xFF and ip.address.packed[1] & 0x0F == 0x02


def _fits(parse: type[IP] | type[Network], text: str) -> bool:
    try:
        (ip_of if parse is IP else network_of)(text)
    except EvaluationError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class URL:
    scheme: str
    host: str
    path: str
    query: str
    cel_type: ClassVar[str] = "kubernetes.URL"
    cel_opaque: ClassVar[bool] = True

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.rpartition(":")[0] if self.port or self.host.endswith(":") else self.host

    @property
    def port(self) -> str:
        _, colon, port = self.host.rpartition(":")
        return port if colon and port.isdecimal() else ""


class URLError(Exception):
    """A text that is no URL; the text is Go's."""


def parse_request_uri(text: str) -> URL:
    """An absolute URL or an absolute path, as Go's ``url.ParseRequestURI``. Raises URLError."""
    if not text:
        raise URLError('parse "": empty url')
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise URLError(f'parse "{text}": net/url: invalid control character in URL')
    found = _URL.fullmatch(text)
    assert found is not None
    scheme, authority, path, query, _ = (part or "" for part in found.groups())
    if text.startswith(":"):
        raise URLError(f'parse "{text}": missing protocol scheme')
    if not scheme and not text.startswith("/"):
        raise URLError(f'parse "{text}": invalid URI for request')
    if not scheme and authority:
        # Without a scheme, what two slashes begin is a path.
        authority, path = "", f"//{authority}{path}"
    host = authority.rpartition("@")[2]
    _check_host(text, host)
    if re.search("%(?![0-9A-Fa-f]{2})", path):
        bad = re.search("%.{0,2}", path)
        raise URLError(f'parse "{text}": invalid URL escape "{bad[0] if bad else ""}"')
    return URL(scheme.lower(), host, path, query)


def _check_host(text: str, host: str) -> None:
    rest = host.partition("]")[2] if host.startswith("[") else host
    if host.startswith("[") and "]" not in host:
        raise URLError(f"parse \"{text}\": missing ']' in host")
    _, colon, port = rest.rpartition(":")
    if colon and port and not port.isdecimal():
        raise URLError(f'parse "{text}": invalid port ":{port}" after host')
    if " " in host:
        raise URLError(f'parse "{text}": invalid character " " in host name')


def url_of(text: str) -> URL:
    """Raises EvaluationError."""
    try:
        return parse_request_uri(text)
    except URLError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request_uri(text)
    except URLError:
        return False
    return True


def _escaped_path(url: URL) -> str:
    return quote(unquote(url.path), safe="/!$&'()*+,;=:@-._~%") if "%" not in url.path else url.path


NETWORK: Final[list[Overload]] = overloads((
    ("string_to_ip", "ip(string): net.IP", ip_of),
    ("ip_family", "net.IP->family(): int", lambda ip: ip.address.version),
    ("ip_is_canonical", "ip.isCanonical(string): bool", lambda text: str(ip_of(text).address) == text),
    ("ip_is_unspecified", "net.IP->isUnspecified(): bool", lambda ip: ip.address.is_unspecified),
    ("ip_is_loopback", "net.IP->isLoopback(): bool", lambda ip: ip.address.is_loopback),
    ("ip_is_link_local_multicast", "net.IP->isLinkLocalMulticast(): bool", _link_local_multicast),
    ("ip_is_link_local_unicast", "net.IP->isLinkLocalUnicast(): bool", lambda ip: ip.address.is_link_local),
    ("ip_is_global_unicast", "net.IP->isGlobalUnicast(): bool", _is_global),
    ("is_ip", "isIP(string): bool", lambda text: _fits(IP, text)),
    ("ip_to_string", "string(net.IP): string", lambda ip: str(ip.address)),
    ("string_to_cidr", "cidr(string): net.CIDR", network_of),
    ("cidr_contains_ip_string", "net.CIDR->containsIP(string): bool", lambda of, text: _holds(of, ip_of(text))),
    ("cidr_contains_ip_ip", "net.CIDR->containsIP(net.IP): bool", _holds),
    ("cidr_contains_cidr_string", "net.CIDR->containsCIDR(string): bool",
     lambda of, text: _holds_network(of, network_of(text))),
    ("cidr_contains_cidr", "net.CIDR->containsCIDR(net.CIDR): bool", _holds_network),
    ("cidr_ip", "net.CIDR->ip(): net.IP", lambda of: IP(of.address)),
    ("cidr_prefix_length", "net.CIDR->prefixLength(): int", lambda of: of.bits),
    ("cidr_masked", "net.CIDR->masked(): net.CIDR", lambda of: Network(of.masked.network_address, of.bits)),
    ("is_cidr", "isCIDR(string): bool", lambda text: _fits(Network, text)),
    ("cidr_to_string", "string(net.CIDR): string", lambda of: f"{of.address}/{of.bits}"),
    ("string_to_url", "url(string): kubernetes.URL", url_of),
    ("url_get_scheme", "kubernetes.URL->getScheme(): string", lambda url: url.scheme),
    ("url_get_host", "kubernetes.URL->getHost(): string", lambda url: url.host),
    ("url_get_hostname", "kubernetes.URL->getHostname(): string", lambda url: url.hostname),
    ("url_get_port", "kubernetes.URL->getPort(): string", lambda url: url.port),
    ("url_get_escaped_path", "kubernetes.URL->getEscapedPath(): string", _escaped_path),
    ("url_get_query", "kubernetes.URL->getQuery(): map(string, list(string))",
     lambda url: parse_qs(url.query, keep_blank_values=True)),
    ("is_url_string", "isURL(string): bool", _is_url),
))  # fmt: skip
