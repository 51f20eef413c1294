"""The webhook server over real TLS on loopback."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.base.server_limits import ServerLimits
from koordinator.kube.serving_certificate import ServingCertificate, ServingCertificateError
from koordinator.kube.tls import KeyPair, TLSSettings, build_context
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest, AdmissionResponse
from koordinator.manager.webhook.admission_queue import AdmissionQueue, OverloadedError
from koordinator.manager.webhook.certificate_files import write_files
from koordinator.manager.webhook.certificates import Certificates
from koordinator.manager.webhook.server import LARGEST_REQUEST, WebhookServer, has_certificate, listening_address
from tests.kube.certificates import Authority
from tests.manager.webhook.making import NOW, certificates
from tests.manager.webhook.reviews import POD, Handler, answered, review
from tests.manager.webhook.serving import HOST, requesting, served_certificate, serving
from tests.waiting import wait_for

FIRST, SECOND = certificates(HOST), certificates(HOST, which=1)


def label(request: AdmissionRequest) -> AdmissionResponse:
    return AdmissionResponse(changed={**(request.object or {}), "labelled": True})


HANDLERS = (Handler("/mutate-pod", label), Handler("/validate-pod", lambda _: ALLOWED))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, FIRST, NOW)
    return tmp_path


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(timed())


def test_each_path_is_answered_by_its_handler(folder: Path) -> None:
    async def scenario() -> None:
        async with serving(folder, HANDLERS) as server, requesting(server, FIRST) as session:
            async with session.post("/mutate-pod", data=review()) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                patch = answered(await response.read())["patch"]
            assert patch == [{"op": "add", "path": "/labelled", "value": True}]
            async with session.post("/validate-pod?timeout=10s", data=review()) as response:
                assert answered(await response.read())["allowed"]

    run(scenario)


def test_health_is_answered(folder: Path) -> None:
    async def scenario() -> None:
        async with serving(folder) as server, requesting(server, FIRST) as session, session.get("/healthz") as response:
            assert response.status == 200

    run(scenario)


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/mutate-node", 404), ("GET", "/mutate-pod", 405)])
def test_what_nothing_is_registered_for_is_refused(folder: Path, method: str, path: str, status: int) -> None:
    async def scenario() -> None:
        async with (
            serving(folder, HANDLERS) as server,
            requesting(server, FIRST) as session,
            session.request(method, path) as response,
        ):
            assert response.status == status

    run(scenario)


def test_a_request_has_a_largest_size(folder: Path) -> None:
    async def scenario() -> None:
        async with serving(folder, HANDLERS) as server, requesting(server, FIRST) as session:
            fits = review(object={**POD, "filler": "x" * (LARGEST_REQUEST // 2)})
            async with session.post("/validate-pod", data=io.BytesIO(fits)) as response:
                assert answered(await response.read())["allowed"]
            async with session.post("/validate-pod", data=io.BytesIO(b" " * (LARGEST_REQUEST + 1))) as response:
                assert response.status == 413

    run(scenario)


def test_what_is_no_review_is_a_denial_and_not_an_error(folder: Path) -> None:
    async def scenario() -> None:
        async with (
            serving(folder, HANDLERS) as server,
            requesting(server, FIRST) as session,
            session.post("/mutate-pod", data=b"{}") as response,
        ):
            document = answered(await response.read())
            assert (response.status, document["allowed"], document["status"]["code"]) == (200, False, 400)

    run(scenario)


def der(of: Certificates) -> bytes:
    return x509.load_pem_x509_certificate(of.certificate).public_bytes(Encoding.DER)


def client_certificate(authority: Authority) -> KeyPair:
    certificate, key = authority.issue("kube-apiserver")
    return KeyPair(certificate=certificate, key=key)


def test_with_an_authority_of_clients_only_those_with_a_certificate_of_it_are_answered(folder: Path) -> None:
    authority, file = Authority("clients"), folder / "clients.crt"
    file.write_bytes(authority.pem)

    async def status(server: WebhookServer, path: str, shown: KeyPair | None = None) -> int:
        async with requesting(server, FIRST, shown) as session:
            method = "GET" if path in ("/healthz", "/page") else "POST"
            async with session.request(method, path, data=review()) as response:
                return response.status

    async def scenario() -> None:
        async with serving(folder, HANDLERS, client_authority=file) as server:
            assert await status(server, "/validate-pod", client_certificate(authority)) == 200
            assert await status(server, "/validate-pod") == 401
            # This program's own check has none.
            assert await status(server, "/healthz") == 200
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await status(server, "/validate-pod", client_certificate(Authority("others")))

    run(scenario)


def test_who_has_gone_has_shown_no_certificate() -> None:
    shown, gone = (make_mocked_request("POST", "/validate-pod", sslcontext=None) for _ in range(2))
    assert shown.transport is not None
    cast("Mock", shown.transport).get_extra_info.side_effect = {"peercert": {"subject": ()}}.get
    gone.protocol.transport = None
    assert (has_certificate(shown), has_certificate(gone)) == (True, False)


def test_the_connection_of_a_known_client_stays_when_others_crowd_in(folder: Path) -> None:
    authority, file = Authority("clients"), folder / "clients.crt"
    file.write_bytes(authority.pem)
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

    async def scenario() -> None:
        limits = ServerLimits(connections=2)
        async with serving(folder, client_authority=file, limits=limits) as server, AsyncExitStack() as others:
            tls = build_context(TLSSettings(authority=FIRST.authority), client_certificate(authority))
            reader, writer = await asyncio.open_connection(HOST, server.bound_port, ssl=tls)
            writer.write(health)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            for _ in range(3):
                session = await others.enter_async_context(requesting(server, FIRST))
                async with session.get("/healthz") as response:
                    assert response.status == 200
            writer.write(health)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.close()

    run(scenario)


def test_changed_authorities_of_clients_are_taken(folder: Path) -> None:
    old, new, file = Authority("old"), Authority("new"), folder / "clients.crt"
    file.write_bytes(old.pem)
    certificate = ServingCertificate.in_folder(folder, file)
    assert certificate.reload()
    assert not certificate.reload()
    file.with_suffix(".new").write_bytes(new.pem)
    file.with_suffix(".new").replace(file)
    assert certificate.reload()
    file.write_bytes(b"nonsense")
    with pytest.raises(ServingCertificateError, match=str(file)):
        certificate.reload()


REQUESTS = "controller_runtime_webhook_requests_total"


def test_who_is_refused_for_overload_is_told_when_to_come_back(folder: Path) -> None:
    class Full(AdmissionQueue):
        async def turn(self, priority: Callable[[], int]) -> None:
            raise OverloadedError

    async def scenario() -> None:
        metrics = Metrics()
        async with (
            serving(folder, HANDLERS, metrics, queue=Full(ManualClock())) as server,
            requesting(server, FIRST) as session,
            session.post("/validate-pod", data=review()) as response,
        ):
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert metrics.registry.get_sample_value(REQUESTS, {"webhook": "/validate-pod", "code": "429"}) == 1

    run(scenario)


def test_nothing_is_worked_out_for_who_has_hung_up(folder: Path) -> None:
    class Waiting(AdmissionQueue):
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def turn(self, priority: Callable[[], int]) -> None:
            self.arrived.set()
            await self.go_on.wait()

    async def scenario() -> None:
        handled, metrics, queue = list[AdmissionRequest](), Metrics(), Waiting(ManualClock())
        handler = Handler("/validate-pod", lambda request: handled.append(request) or ALLOWED)  # type: ignore[func-returns-value]

        def counted(name: str, labels: dict[str, str]) -> float | None:
            return metrics.registry.get_sample_value(name, labels)

        async with serving(folder, (handler,), metrics, queue=queue) as server:
            async with requesting(server, FIRST) as session:
                asking = asyncio.create_task(session.post("/validate-pod", data=review()).__aenter__())
                await queue.arrived.wait()
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            port = {"port": str(server.bound_port)}
            await wait_for(lambda: counted("koordinator_server_connections", port) == 0)
            queue.go_on.set()
            await wait_for(lambda: counted(REQUESTS, {"webhook": "/validate-pod", "code": "503"}) == 1)
        assert handled == []

    run(scenario)


@pytest.mark.parametrize("name", [None, "localhost", "koordinator-webhook-service.koordinator-system.svc"])
def test_new_connections_are_shown_the_new_certificate(folder: Path, name: str | None) -> None:
    async def scenario() -> None:
        async with serving(folder) as server:
            assert await asyncio.to_thread(served_certificate, server, name) == der(FIRST)
            write_files(folder, SECOND, NOW)
            await server.start()
            assert await asyncio.to_thread(served_certificate, server, name) == der(SECOND)

    run(scenario)


def test_no_request_is_dropped_while_certificates_change(folder: Path) -> None:
    async def scenario() -> None:
        answered_ = 0
        changing = True

        async def send(session: aiohttp.ClientSession) -> None:
            nonlocal answered_
            while changing:
                async with session.post("/mutate-pod", data=review()) as response:
                    assert answered(await response.read())["allowed"]
                answered_ += 1

        both = Certificates(authority=FIRST.authority + SECOND.authority)
        async with (
            serving(folder, HANDLERS) as server,
            requesting(server, both) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(4):
                tasks.create_task(send(session))
            for number in range(10):
                write_files(folder, (SECOND, FIRST)[number % 2], NOW)
                await server.start()
                before = answered_
                async with requesting(server, both) as fresh, fresh.get("/healthz") as response:
                    assert response.status == 200
                while answered_ < before + 8:
                    await asyncio.sleep(0)
            changing = False
        assert answered_ >= 80

    run(scenario)


HEAD = "POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
IN_FLIGHT = ("controller_runtime_webhook_requests_in_flight", {"webhook": "/mutate-pod"})


@asynccontextmanager
async def half_a_request(
    server: WebhookServer, metrics: Metrics
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which the head of a request has come, and 100 bytes of its body."""
    tls = build_context(TLSSettings(authority=FIRST.authority))
    reader, writer = await asyncio.open_connection(HOST, server.bound_port, ssl=tls)
    try:
        writer.write(HEAD.format(len(review())).encode() + review()[:100])
        await writer.drain()
        await wait_for(lambda: bool(metrics.registry.get_sample_value(*IN_FLIGHT)))
        yield reader, writer
    finally:
        writer.close()


def test_a_request_in_hand_is_answered_when_the_server_stops(folder: Path) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        async with serving(folder, HANDLERS, metrics) as server, half_a_request(server, metrics) as (reader, writer):
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            writer.write(review()[100:])
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await stopping

    run(scenario)


def test_a_body_that_does_not_come_is_waited_for_no_longer_than_half_a_minute(folder: Path) -> None:
    async def scenario() -> None:
        metrics, clock = Metrics(), ManualClock()
        async with (
            serving(folder, HANDLERS, metrics, clock=clock) as server,
            half_a_request(server, metrics) as (reader, _),
        ):
            await clock.advance(29)
            assert metrics.registry.get_sample_value(*IN_FLIGHT) == 1
            await clock.advance(1)
            assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
            assert metrics.registry.get_sample_value(*IN_FLIGHT) == 0

    run(scenario)


def test_a_server_that_is_about_to_stop_responds_to_everybody_and_keeps_nobody(folder: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with serving(folder, HANDLERS, clock=clock) as server, requesting(server, FIRST) as session:
            async with session.post("/mutate-pod", data=review()) as response:
                assert "Connection" not in response.headers
            stopping = asyncio.create_task(server.stop(linger=3))
            await clock.advance(2)
            for _ in range(2):
                async with session.post("/mutate-pod", data=review()) as response:
                    assert answered(await response.read())["allowed"]
                    assert response.headers["Connection"] == "close"
            await clock.advance(1)
            await stopping
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.post("/mutate-pod", data=review())

    run(scenario)


def test_a_pair_that_does_not_fit_is_not_taken(folder: Path) -> None:
    certificate = ServingCertificate.in_folder(folder)
    assert certificate.reload()
    write_files(folder, Certificates(FIRST.authority_key, FIRST.authority, SECOND.key, FIRST.certificate), NOW)
    with pytest.raises(ServingCertificateError, match=r"tls\.crt"):
        certificate.reload()
    write_files(folder, FIRST, NOW)
    assert certificate.reload()
    assert not certificate.reload()


def test_what_somebody_else_writes_is_followed(folder: Path) -> None:
    async def scenario() -> None:
        certificate = ServingCertificate.in_folder(folder)
        certificate.reload()
        write_files(folder, SECOND, NOW)
        await certificate.reload_if_changed()
        assert not certificate.reload()

    run(scenario)


def test_a_server_without_certificates_does_not_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path):
            raise AssertionError("it started")

    with pytest.raises(ServingCertificateError, match="cannot be served"):
        run(scenario)


def test_a_client_that_trusts_another_authority_is_not_answered(folder: Path) -> None:
    async def scenario() -> None:
        async with serving(folder) as server, requesting(server, SECOND) as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get("/healthz")

    run(scenario)


def test_old_versions_of_tls_are_refused(folder: Path) -> None:
    certificate = ServingCertificate.in_folder(folder)
    assert certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", ""),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("localhost", "127.0.0.1"),
        ("10.0.0.1", ""),
        ("hooks.example", ""),
    ],
)
def test_a_host_that_only_this_machine_reaches_is_all_that_is_listened_on(host: str, address: str) -> None:
    assert listening_address(host) == address
