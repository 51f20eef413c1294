"""``koord explain --kubeconfig``: the leader is found by its Lease and asked through the API server's proxy to its pod.

The pod exists in the API alone, with this machine's address: the API server goes where the pod's IP says, though never
to a loopback address. The scheduler listens on that address only, so that nothing else can lead to it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.kinds import LEASES, NAMESPACES, NODES, PODS
from koordinator.cli.explain_failure import ExplainError
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.main import main
from koordinator.cli.session import open_session
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.real.control_plane import ControlPlane
from tests.real.koord_command import on_one_line, run_koord
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration

NAMESPACE, LEASE = "koordinator-system", "koord-scheduler"
READER, EXPLAINER = "readertoken", "explainertoken"
_ROLES = Path(__file__).resolve().parents[2] / "config/rbac/koord-explain.yaml"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ROLE_PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{NAMESPACE}/roles",
}


def own_address() -> str | None:
    """An address of this machine that others could reach; None without any. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


def container() -> dict[str, Any]:
    return {"name": "main", "image": "x", "resources": {"requests": {"cpu": "9"}}}


async def build(client: KubeClient, address: str) -> None:
    """A node, a pod that it is too small for, and the pod of a scheduler at ``address``."""
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await client.create(NODES, {"metadata": {"name": "small"}})
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"status": {"capacity": allocatable, "allocatable": allocatable}}
    await client.patch(NODES, "small", status, PatchType.MERGE, subresource="status")
    spec = {"schedulerName": "koord-scheduler", "containers": [container()]}
    await client.create(PODS, {"metadata": {"name": "large"}, "spec": spec}, "default")
    name = socket.gethostname()
    await client.create(PODS, {"metadata": {"name": name}, "spec": {**spec, "nodeName": "elsewhere"}}, NAMESPACE)
    found = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    await client.patch(PODS, name, found, PatchType.MERGE, NAMESPACE, subresource="status")


@asynccontextmanager
async def leading(client: KubeClient, command: list[str], log: Path) -> AsyncIterator[None]:
    """A scheduler that holds the Lease and has tried the pod."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)
    try:
        async with asyncio.timeout(60):
            while not await has_decided(client):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        yield
    finally:
        process.terminate()
        await process.wait()


async def has_decided(client: KubeClient) -> bool:
    try:
        await client.get(LEASES, LEASE, NAMESPACE)
    except ApiStatusError:
        return False
    return bool((await client.get(PODS, "large", "default")).status.conditions)


class Cluster:
    """A control plane with a leading scheduler beside it, while ``run`` runs."""

    def __init__(self, plane: ControlPlane, folder: Path, address: str) -> None:
        self.plane, self.folder, self.address = plane, folder, address
        self.port = free_port(address)

    def endpoint(self, kubeconfig: Path | None = None, port: int | None = None) -> ProgramEndpoint:
        client = ClientOptions(kubeconfig=str(kubeconfig or self.plane.kubeconfig))
        return ProgramEndpoint(None, client, (NAMESPACE, LEASE), port or self.port, self.folder)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[None]:
        election = {"leaderElect": True, "resourceNamespace": NAMESPACE, "resourceName": LEASE}
        configuration = write_configuration(
            self.folder / "scheduler.yaml", kubeconfig=self.plane.kubeconfig, leader_election=election
        )
        where = ("--port=0", f"--bind-address={self.address}", f"--secure-port={self.port}")
        command = [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", *where]
        client = await connect(ClientOptions(kubeconfig=str(self.plane.kubeconfig), qps=0))
        try:
            await build(client, self.address)
            async with leading(client, command, self.folder / "scheduler.log"):
                yield
        finally:
            await client.close()


@pytest.fixture(scope="module")
def responses(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What is answered to each question, or what is said instead."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but its loopback one, to which an API server forwards nothing")
    folder = tmp_path_factory.mktemp("explain")
    with ControlPlane(
        real_programs.kubernetes,
        folder / "cluster",
        authorization_mode="RBAC",
        tokens={READER: ("reader", ()), EXPLAINER: ("explainer", ())},
    ) as plane:
        cluster = Cluster(plane, folder, address)
        yield asyncio.run(interview(cluster))


def bind_roles(plane: ControlPlane) -> None:
    """Both people may read pods of the namespace default; one has what docs/explain.md says besides."""
    for document in yaml.safe_load_all(_ROLES.read_text()):
        assert plane.request("POST", _ROLE_PATHS[document["kind"]], document)[0] == 201
    pods = {"metadata": {"name": "pods"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    assert plane.request("POST", f"{_RBAC}/namespaces/default/roles", pods)[0] == 201
    for user, kind, role, where in (
        ("reader", "Role", "pods", "namespaces/default/rolebindings"),
        ("explainer", "Role", "pods", "namespaces/default/rolebindings"),
        ("explainer", "ClusterRole", "koord-explain", "clusterrolebindings"),
        ("explainer", "Role", "koord-explain", f"namespaces/{NAMESPACE}/rolebindings"),
    ):
        body = {
            "metadata": {"name": f"{user}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        assert plane.request("POST", f"{_RBAC}/{where}", body)[0] == 201


async def interview(cluster: Cluster) -> dict[str, Any]:
    async with cluster.scheduler():
        await asyncio.to_thread(bind_roles, cluster.plane)
        explainer = cluster.endpoint(cluster.plane.kubeconfig_for(EXPLAINER))
        return {
            "explainer": await said(explainer, "/debug/explain/default/large"),
            "printed for the reader": await asyncio.to_thread(printed, cluster, READER),
            "printed for the explainer": await asyncio.to_thread(printed, cluster, EXPLAINER),
            "pod": await said(cluster.endpoint(), "/debug/explain/default/large"),
            "node": await said(cluster.endpoint(), "/debug/explain-node/small"),
            "unknown pod": await said(cluster.endpoint(), "/debug/explain/default/nobody"),
            "other port": await said(cluster.endpoint(port=free_port(cluster.address)), "/debug/explain/default/large"),
            "other user": await said(
                cluster.endpoint(cluster.plane.kubeconfig_for(READER)), "/debug/explain/default/large"
            ),
            "command": await asyncio.to_thread(command_line, cluster),
            "without a token": await asyncio.to_thread(knocked, cluster),
        }


async def said(endpoint: ProgramEndpoint, path: str) -> Any:
    try:
        async with open_session() as session:
            return await fetch(session, endpoint, path)
    except ExplainError as error:
        return str(error)


def printed(cluster: Cluster, token: str) -> tuple[int, str]:
    """The status and the output of the command for somebody."""
    kubeconfig = cluster.plane.kubeconfig_for(token)
    done = run_koord("explain", "pod", "large", f"--kubeconfig={kubeconfig}", f"--port={cluster.port}")
    return done.returncode, on_one_line(done.stdout)


def command_line(cluster: Cluster) -> int:
    return main(["explain", "pod", "large", f"--kubeconfig={cluster.plane.kubeconfig}", f"--port={cluster.port}"])


def knocked(cluster: Cluster) -> int:
    """What the API server says that forwards the request of an administrator, without the token for the programs."""
    where = f"/api/v1/namespaces/{NAMESPACE}/pods/https:{socket.gethostname()}:{cluster.port}/proxy"
    return cluster.plane.request("GET", f"{where}/debug/explain/default/large")[0]


def test_a_request_without_the_token_for_programs_is_nobodys(responses: dict[str, Any]) -> None:
    assert responses["without a token"] == 403


def test_a_pod_is_explained_through_the_api_server(responses: dict[str, Any]) -> None:
    (node,) = responses["pod"]["closestNodes"]
    assert (node["node"], node["lacks"][0]["plugin"]) == ("small", "NodeResourcesFit")


def test_a_node_is_explained_through_the_api_server(responses: dict[str, Any]) -> None:
    assert responses["node"]["node"] == "small"


def test_the_command_prints_it(responses: dict[str, Any]) -> None:
    assert responses["command"] == 0


def test_what_the_scheduler_does_not_know_is_said_in_its_words(responses: dict[str, Any]) -> None:
    assert responses["unknown pod"].startswith("pod default/nobody is not in the queue")


def test_a_port_on_which_nobody_listens_is_said(responses: dict[str, Any]) -> None:
    assert responses["other port"].startswith("the scheduler at https://127.0.0.1"), responses["other port"]


def test_who_may_not_see_the_lease_is_told_so(responses: dict[str, Any]) -> None:
    assert 'cannot get resource "leases"' in responses["other user"]


def test_who_has_the_roles_of_the_manifests_hears_the_scheduler(responses: dict[str, Any]) -> None:
    assert responses["explainer"]["closestNodes"][0]["node"] == "small"
    status, text = responses["printed for the explainer"]
    assert status == 0
    assert "The nodes that come closest" in text
    assert "What koord-scheduler knows" not in text


def test_who_has_not_is_told_what_the_api_says_and_what_is_missing(responses: dict[str, Any]) -> None:
    status, text = responses["printed for the reader"]
    assert status == 0
    assert "pod default/large is pending" in text
    assert (
        "What koord-scheduler knows is left out: you lack the permission to get leases.coordination.k8s.io in the "
        "namespace koordinator-system."
    ) in text
