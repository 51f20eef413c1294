"""Addresses to listen on in Go's notation: ``:8080`` is every address, ``0`` serves nothing."""

from __future__ import annotations

import dataclasses
import ipaddress
from dataclasses import dataclass
from typing import Final

from koordinator.base.errors import ConfigurationError

LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """``host`` "" is every address; ``port`` 0 serves nothing."""

    host: str
    port: int
    field: str = dataclasses.field(default="", compare=False)
    """The flag or the field of the configuration that says so, if any."""

    def __str__(self) -> str:
        if not self.port:
            return "0"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


NOWHERE: Final = ListenAddress("", 0)


def parse_listen_address(field: str, text: str) -> ListenAddress:
    """Return the address. Raises ConfigurationError naming ``field``, which is a flag or a configuration field."""
    if text in ("", "0"):
        return NOWHERE
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    bracketed = text.startswith("[") or ":" not in host
    if not colon or not bracketed or not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise ConfigurationError(field, text, "write HOST:PORT, :PORT for every address, or 0 to serve nothing")
    return ListenAddress(host, int(port), field) if int(port) else NOWHERE


def is_loopback(host: str) -> bool:
    """Whether what is sent to this name or address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
