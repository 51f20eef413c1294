"""A cluster for ``koord explain``: the embedded API with a Lease, and a scheduler whose responses a test chooses."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koordinator.api.kinds import LEASES, NAMESPACES, SERVICE_ACCOUNTS, Kind
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.services import ServiceError
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.delegated_access import DelegatedAccess
from koordinator.kube.interface import PatchType
from koordinator.kube.pages import Request, Response, json_response
from koordinator.kube.secure_options import AccessOptions
from koordinator.kube.self_signed import self_signed_files
from koordinator.kube.services import Services
from koordinator.kube.serving import HealthServer
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.scheduler.services.routes import NODE_PATH, POD_PATH

NAMESPACE, LEASE = "koordinator-system", "koord-scheduler"


@dataclass
class ExplainedCluster:
    """``documents`` are what the scheduler says, by ``namespace/name`` of a pod or the name of a node; ``port`` is
    where, for whom the API server admits, and ``plain_port`` for everybody."""

    kubeconfig: Path
    port: int
    plain_port: int
    client: KubeClient
    loop: asyncio.AbstractEventLoop
    documents: dict[str, Any] = field(default_factory=dict)

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it in the thread of the cluster."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def create(self, kind: Kind[Any], body: Mapping[str, Any], namespace: str = "") -> Any:
        return self.do(self.client.create(kind, body, namespace))

    def set_status(self, kind: Kind[Any], name: str, status: Mapping[str, Any], namespace: str = "") -> None:
        patch = {"status": status}
        self.do(self.client.patch(kind, name, patch, PatchType.MERGE, namespace, subresource="status"))

    @property
    def arguments(self) -> list[str]:
        return [f"--kubeconfig={self.kubeconfig}", f"--port={self.port}"]


@contextmanager
def explained_cluster(folder: Path, options: ServerOptions | None = None) -> Iterator[ExplainedCluster]:
    """It serves in a thread, so that the command can run as it does for a person."""
    loop = asyncio.new_event_loop()
    started, stop = threading.Event(), asyncio.Event()
    found: list[ExplainedCluster] = []

    async def serve() -> None:
        async with EmbeddedApi(options) as api:
            api.write_kubeconfig(folder / "kubeconfig")
            client = await connect(ClientOptions(kubeconfig=str(folder / "kubeconfig")))
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            lease = {"metadata": {"name": LEASE}, "spec": {"holderIdentity": f"{socket.gethostname()}_1"}}
            await client.create(LEASES, lease, NAMESPACE)
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "koord-explain"}}, NAMESPACE)
            documents: dict[str, Any] = {}
            plain, secure = HealthServer(Metrics()), secure_server(client)
            for server in (plain, secure):
                _add_pages(server, documents)
                await server.start()
            ports = secure.bound_port, plain.bound_port
            found.append(ExplainedCluster(folder / "kubeconfig", *ports, client, loop, documents))
            started.set()
            await stop.wait()
            await plain.stop()
            await secure.stop()
            await client.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(20), "the cluster did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def secure_server(client: KubeClient) -> HealthServer:
    """One that lets in whom the API server of ``client`` admits."""
    clock = SystemClock()
    with self_signed_files(clock.now()) as files:
        certificate = ServingCertificate(*files)
        certificate.reload()
    access = DelegatedAccess(client, client, clock, AccessOptions())
    return HealthServer(Metrics(), tls=certificate.context, access=access)


def _add_pages(server: HealthServer, documents: Mapping[str, Any]) -> None:
    """It responds as koord-scheduler does, and 404 about everything that ``documents`` does not have."""
    services = Services(lambda: True)

    def respond(parameters: Mapping[str, str]) -> Any:
        key = "/".join(parameters[name] for name in ("namespace", "name") if name in parameters)
        if key not in documents:
            raise ServiceError(404, f"{key} is not known")
        return documents[key]

    services.add(POD_PATH, respond)
    services.add(NODE_PATH, respond)
    services.mount(server)
    server.add_route("/configz", _configuration)


async def _configuration(request: Request) -> Response:
    profiles = [{"schedulerName": "koord-scheduler"}, {"schedulerName": "default-scheduler"}]
    return json_response({"componentconfig": {"profiles": profiles}})
