"""An API server behind a proxy: HTTP and SOCKS5, with and without TLS and passwords."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.base.clock import SystemClock
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.errors import TransportError
from koordinator.kube.proxy import Proxy
from tests.kube.certificates import Authority

REQUEST_HEAD = b"\r\n\r\n"
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\nfrom here"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            await _close(writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(handle(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def api_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(REQUEST_HEAD):
        writer.write(_RESPONSE)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Bytes, between a client and a server on this machine, whatever the server is called."""
    there, thither = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
        target.close()

    try:
        await asyncio.gather(copy(reader, thither), copy(there, writer))
    finally:
        await _close(thither)


class HttpProxy:
    """Notes the heads of what it is sent."""

    def __init__(self, port: int, status: str = "200 Connection established") -> None:
        self.heads: list[str] = []
        self._port, self._status = port, status

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(REQUEST_HEAD)).decode()
        self.heads.append(head)
        if head.startswith("CONNECT"):
            writer.write(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
            await pass_on(reader, writer, self._port)
        else:
            writer.write(_RESPONSE)


class SocksProxy:
    """Wants a password if it has one, and notes where clients want to go."""

    def __init__(self, port: int, password: bytes = b"", code: int = 0) -> None:
        self.targets: list[tuple[bytes, int]] = []
        self._port, self._password, self._code = port, password, code

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        assert version == 5
        wanted = 2 if self._password else 0
        writer.write(bytes([5, wanted if wanted in methods else 0xFF]))
        if wanted and wanted in methods:
            user = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(bytes([1, (user, password) != (b"me", self._password)]))
        _, _, _, kind = await reader.readexactly(4)
        host = await reader.readexactly({1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0])
        self.targets.append((host, int.from_bytes(await reader.readexactly(2), "big")))
        writer.write(bytes([5, self._code, 0, 3, 1]) + b"x" + bytes(2))
        if not self._code:
            await pass_on(reader, writer, self._port)


async def fetched(folder: Path, server: str, proxy: str, **cluster: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "proxy-url": proxy, **cluster}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    options = ClientOptions(kubeconfig=str(path), max_connection_retries=0, clock=SystemClock())
    async with connected(options) as client:
        return (await client.raw("GET", "/version")).decode()


PROXIES: dict[str, Callable[[int], Any]] = {
    "http": HttpProxy,
    "https": HttpProxy,
    "socks5": SocksProxy,
    "socks5h": SocksProxy,
}


@pytest.mark.parametrize("scheme", PROXIES)
@pytest.mark.parametrize("with_tls", [True, False])
def test_requests_go_through_each_kind_of_proxy(scheme: str, with_tls: bool, tmp_path: Path) -> None:
    """The name of the server is one that the proxy alone can resolve."""
    if scheme == "https" and not with_tls:
        pytest.skip("the certificate of the proxy is not one that the machine trusts")
    authority = Authority()
    tls = authority.server_context(tmp_path, "api.invalid", "127.0.0.1")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    trusted = {"certificate-authority": str(tmp_path / "ca.crt")} if with_tls else {}

    async def scenario() -> None:
        async with serving(api_server, tls if with_tls else None) as port:
            proxy = PROXIES[scheme](port)
            async with serving(proxy, tls if scheme == "https" else None) as proxy_port:
                server = f"{'https' if with_tls else 'http'}://api.invalid:6443"
                assert await fetched(tmp_path, server, f"{scheme}://127.0.0.1:{proxy_port}", **trusted) == "from here"
        if isinstance(proxy, SocksProxy):
            assert proxy.targets == [(b"api.invalid", 6443)]
        else:
            first = "CONNECT api.invalid:6443 " if with_tls else "GET http://api.invalid:6443/version "
            assert [head.startswith(first) for head in proxy.heads] == [True]

    asyncio.run(scenario())


@pytest.mark.parametrize("server", ["https://api.invalid", "http://api.invalid"])
def test_an_http_proxy_is_given_the_password(server: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        proxy = HttpProxy(0, "407 Proxy Authentication Required")
        async with serving(proxy) as port:
            with suppress(TransportError):
                await fetched(tmp_path, server, f"http://me:p%40ss@127.0.0.1:{port}")
        assert "Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in proxy.heads[0]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("password", "code", "url", "said"),
    [
        (b"secret", 0, "socks5://me:secret@127.0.0.1:{port}", ""),
        (b"secret", 0, "socks5://me:wrong@127.0.0.1:{port}", "user and password are wrong"),
        (b"secret", 0, "socks5://127.0.0.1:{port}", "it wants another way to sign in"),
        (b"", 4, "socks5://127.0.0.1:{port}", "host unreachable"),
    ],
)
def test_what_a_socks_proxy_refuses_is_said(password: bytes, code: int, url: str, said: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(api_server) as port, serving(SocksProxy(port, password, code)) as proxy_port:
            where = url.format(port=proxy_port)
            if not said:
                assert await fetched(tmp_path, "http://10.0.0.1", where) == "from here"
                return
            with pytest.raises(TransportError, match=f"the proxy socks5://127.0.0.1:{proxy_port}: {said}") as refused:
                await fetched(tmp_path, "http://10.0.0.1", where)
            assert not refused.value.maybe_applied

    asyncio.run(scenario())


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_what_is_no_proxy_is_said(scheme: str, tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def scenario() -> None:
        async with serving(hang_up) as port:
            with pytest.raises(TransportError, match="it closed the connection, or is no such proxy"):
                await fetched(tmp_path, "https://api.invalid", f"{scheme}://127.0.0.1:{port}")

    asyncio.run(scenario())


def test_a_proxy_that_refuses_is_quoted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(HttpProxy(0, "403 Forbidden")) as port:
            with pytest.raises(TransportError, match=r"HTTP/1\.1 403 Forbidden"):
                await fetched(tmp_path, "https://api.invalid", f"http://127.0.0.1:{port}")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("socks5://p", Proxy("socks5", "p", 1080)),
        ("http://u:p%3A@[::1]:3128", Proxy("http", "::1", 3128, "u", "p:")),
        ("https://p", Proxy("https", "p", 443)),
    ],
)
def test_urls(url: str, expected: Proxy) -> None:
    assert Proxy.parse(url) == expected
