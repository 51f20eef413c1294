"""Tunnels to an API server through a proxy: CONNECT of HTTP, or SOCKS5 (RFC 1928, with the password of RFC 1929).

What is to be spoken with the server begins once the tunnel is there, over TLS if need be. As Go's clients do, the name
of the server is left to the proxy to resolve.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from koordinator.kube.errors import TransportError

P = TypeVar("P", bound=asyncio.Protocol)

SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_NO_PASSWORD, _PASSWORD, _NO_METHOD = 0, 2, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_LENGTHS: Final = {_IPV4: 4, _IPV6: 16}
_REFUSALS: Final = {
    1: "general failure",
    2: "not allowed",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "timed out",
    7: "command not supported",
    8: "kind of address not supported",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """``user`` is empty where the proxy wants none."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Of a URL with one of SCHEMES and a host."""
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme], user, password)

    @property
    def speaks_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def authorization(self) -> str:
        """The header with the password, with its line break; empty without one."""
        if not self.user:
            return ""
        return f"Proxy-Authorization: Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}\r\n"

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Transport:
        """A connection through the proxy to the server, to which nothing has been said. ``tls`` is for a proxy with
        https. Raises TransportError and OSError."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader),
            self.host,
            self.port,
            ssl=(tls or ssl.create_default_context()) if self.scheme == "https" else None,
        )
        try:
            await (self._connect if self.speaks_http else self._negotiate)(reader, transport, host, port)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            transport.abort()
            raise self._refused("it closed the connection, or is no such proxy") from error
        except BaseException:
            transport.abort()
            raise
        return transport

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.Transport, host: str, port: int) -> None:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{self.authorization}\r\n".encode())
        line = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0].decode("latin-1")
        if line.split(" ")[1:2] != ["200"]:
            raise self._refused(line)

    async def _negotiate(self, reader: asyncio.StreamReader, writer: asyncio.Transport, host: str, port: int) -> None:
        methods = [_NO_PASSWORD, _PASSWORD] if self.user else [_NO_PASSWORD]
        writer.write(bytes([5, len(methods), *methods]))
        _, method = await reader.readexactly(2)
        if method == _NO_METHOD:
            raise self._refused("it wants another way to sign in")
        if method == _PASSWORD:
            user, password = self.user.encode(), self.password.encode()
            writer.write(bytes([1, len(user)]) + user + bytes([len(password)]) + password)
            _, failed = await reader.readexactly(2)
            if failed:
                raise self._refused("user and password are wrong")
        writer.write(bytes([5, 1, 0]) + _address(host) + port.to_bytes(2, "big"))
        _, code, _, kind = await reader.readexactly(4)
        if code:
            raise self._refused(_REFUSALS.get(code, f"code {code}"))
        length = _LENGTHS.get(kind) or (await reader.readexactly(1))[0]
        await reader.readexactly(length + 2)

    def _refused(self, why: str) -> TransportError:
        return TransportError(f"the proxy {self.scheme}://{self.host}:{self.port}: {why}", maybe_applied=False)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna")
        return bytes([_NAME, len(name)]) + name
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed
