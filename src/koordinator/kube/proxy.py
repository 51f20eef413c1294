"""Which HTTP proxy, if any, stands between us and the API server: decided once, by Go's rules for the environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from koordinator.kube.errors import KubeconfigError


def check_proxy(url: str, where: str) -> str:
    """``url`` if we can use it. Raises KubeconfigError naming ``where``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise KubeconfigError(
            f"{where}: {_without_password(parts)!r} is not usable: write http://HOST:PORT or https://…"
        )
    return url


def environment_proxy(server: str, environment: Mapping[str, str]) -> str:
    """The proxy of HTTPS_PROXY or HTTP_PROXY for ``server``, unless NO_PROXY or a loopback address excludes it."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or _excluded(parts, environment.get("NO_PROXY") or environment.get("no_proxy") or ""):
        return ""
    return check_proxy(proxy if "://" in proxy else f"http://{proxy}", f"environment variable {name.upper()}")


def _excluded(server: SplitResult, exclusions: str) -> bool:
    host = (server.hostname or "").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or (443 if server.scheme == "https" else 80)
    return any(_matches(entry.strip().lower(), host, address, port) for entry in exclusions.split(",") if entry.strip())


def _matches(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    """One entry: ``*``, an address range, or a host or domain with an optional port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, _, wanted_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    if wanted_port and wanted_port != str(port):
        return False
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith("." + domain) or (host == domain and not name.startswith((".", "*.")))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _without_password(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.hostname or ''}"
