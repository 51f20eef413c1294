"""The port for a cluster: its certificate, and the authority of clients, as they change while it is open."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest

from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.program import Process
from koordinator.kube.connect import ClientOptions
from koordinator.kube.health import HealthChecks
from koordinator.kube.pages import Request, Response
from koordinator.kube.secure_options import SecureOptions
from koordinator.kube.secure_serving import SecureServing
from koordinator.kube.servers import Routes, Servers
from koordinator.kube.serving import HealthServer
from koordinator.kube.serving_certificate import ServingCertificate, ServingCertificateError, server_context
from tests.free_ports import free_ports
from tests.kube.certificates import Authority

NOBODY = "http://127.0.0.1:1"
"""An API server that does not answer."""


def secure(options: SecureOptions, clock: ManualClock | None = None, *routes: Routes) -> tuple[Servers, ListenAddress]:
    process = Process(clock=clock or ManualClock(), random=Random(1))
    servers = Servers(process.metrics, process.clock)
    (port,) = free_ports(1)
    options = replace(options, port=port)
    reaching = ClientOptions(master=NOBODY, environment={}, max_connection_retries=0)
    servers.add(options.listen_address(), *routes, secure=SecureServing(options, reaching, process))
    return servers, options.listen_address()


def write_pair(folder: Path, pair: tuple[bytes, bytes]) -> None:
    (folder / "tls.crt").write_bytes(pair[0])
    (folder / "tls.key").write_bytes(pair[1])


async def status(address: ListenAddress, path: str, trusted: ssl.SSLContext | bool) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"https://{address}{path}", ssl=trusted) as response:
        return response.status


def test_the_certificate_of_the_files_is_served_and_only_probes_are_open(tmp_path: Path) -> None:
    authority = Authority()
    write_pair(tmp_path, authority.issue("server", "127.0.0.1"))
    trusted = ssl.create_default_context(cadata=authority.pem.decode())

    async def scenario() -> list[int]:
        servers, address = secure(SecureOptions(folder=str(tmp_path)))
        async with servers:
            return [await status(address, path, trusted) for path in ("/healthz", "/metrics")]

    # Nobody can say who may see the metrics.
    assert asyncio.run(scenario()) == [200, 503]


def test_without_files_the_program_makes_a_certificate_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose root is read-only."""
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    monkeypatch.setattr("socket.gethostname", lambda: "knoten-ü")

    async def scenario() -> int:
        servers, address = secure(SecureOptions())
        async with servers:
            return await status(address, "/healthz", trusted=False)

    assert asyncio.run(scenario()) == 200


def test_a_client_is_known_by_a_certificate_of_the_authority_that_is_there_now(tmp_path: Path) -> None:
    serving, first, second = Authority(), Authority("first"), Authority("second")
    write_pair(tmp_path, serving.issue("server", "127.0.0.1"))
    clients = tmp_path / "clients.crt"
    clients.write_bytes(first.pem)
    options = SecureOptions(folder=str(tmp_path), client_authority=str(clients), open_paths=("/who",))

    async def who(address: ListenAddress, authority: Authority) -> str:
        """As the program knows the client; empty for one whose handshake is refused."""
        trusted = ssl.create_default_context(cadata=serving.pem.decode())
        pair = authority.issue("alice")
        for name, content in zip(("own.crt", "own.key"), pair, strict=True):
            (tmp_path / name).write_bytes(content)
        trusted.load_cert_chain(tmp_path / "own.crt", tmp_path / "own.key")
        with suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://{address}/who", ssl=trusted) as response,
            ):
                return await response.text()
        return ""

    async def until_known(address: ListenAddress, authority: Authority) -> None:
        async with asyncio.timeout(30):
            while await who(address, authority) != "alice":
                await asyncio.sleep(0)

    async def scenario() -> None:
        clock = ManualClock()
        servers, address = secure(options, clock, add_who)
        async with servers:
            await until_known(address, first)
            assert await who(address, second) == ""
            clients.write_bytes(second.pem)
            await clock.advance(61)
            await until_known(address, second)
            assert await who(address, first) == ""

    asyncio.run(scenario())


def test_a_resumed_session_brings_no_certificate_of_an_authority_that_is_gone(tmp_path: Path) -> None:
    serving, first, second = Authority(), Authority("first"), Authority("second")
    write_pair(tmp_path, serving.issue("server", "127.0.0.1"))
    certificate = ServingCertificate.in_folder(tmp_path)
    certificate.trust(first.pem.decode())
    client = ssl.create_default_context(cadata=serving.pem.decode())
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for name, content in zip(("own.crt", "own.key"), first.issue("alice"), strict=True):
        (tmp_path / name).write_bytes(content)
    client.load_cert_chain(tmp_path / "own.crt", tmp_path / "own.key")
    session, peer = shaken(certificate.context, client, None)
    assert peer
    certificate.trust(second.pem.decode())
    with pytest.raises(ssl.SSLError):
        shaken(certificate.context, client, session)


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, object]:
    """The session of the client after a handshake, and the certificate that the server has seen."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return near.session, far.getpeercert()


def add_who(server: HealthServer) -> None:
    async def handle(request: Request) -> Response:
        return Response(text=request.client.user if request.client is not None else "nobody")

    server.add_route("/who", handle)


def test_files_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        servers, _ = secure(SecureOptions(folder=str(tmp_path)))
        with pytest.raises(ServingCertificateError, match=r"tls\.crt"):
            await servers.__aenter__()

    asyncio.run(scenario())


@pytest.mark.parametrize("options", [SecureOptions(port=1, certificate="a.crt"), SecureOptions(port=1, key="a.key")])
def test_a_certificate_and_its_key_come_together(options: SecureOptions) -> None:
    with pytest.raises(ConfigurationError, match="--tls-cert-file and --tls-private-key-file come together"):
        options.listen_address()


def test_without_a_port_nothing_is_served() -> None:
    assert SecureOptions().listen_address() == NOWHERE


def test_a_program_that_asks_nothing_else_reaches_the_api_server_of_the_flags(tmp_path: Path) -> None:
    """koord-device-daemon and koord-runtime-proxy, whose other work is on the node alone."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{contexts: [{name: c, context: {cluster: c}}], current-context: c, "
        f"clusters: [{{name: c, cluster: {{server: '{NOBODY}'}}}}]}}"
    )
    (port,) = free_ports(1)
    process = Process(clock=ManualClock(), random=Random(1))

    async def scenario() -> list[int]:
        options = SecureOptions(
            port=port, skip_lookup=True, authentication_kubeconfig=str(file), authorization_kubeconfig=str(file)
        )
        servers = Servers(process.metrics, process.clock)
        servers.add_secure(options, "program", process, HealthChecks())
        async with servers:
            return [await status(options.listen_address(), path, trusted=False) for path in ("/readyz", "/nothing")]

    assert asyncio.run(scenario()) == [200, 503]


def test_no_session_is_resumed_and_none_is_negotiated_anew() -> None:
    """Clients written in Go resume none, and tickets cost a good part of a handshake."""
    context = server_context()
    assert context.num_tickets == 0
    assert ssl.OP_NO_RENEGOTIATION in context.options
