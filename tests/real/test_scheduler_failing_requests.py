"""koord-scheduler and the original where an API server fails for some pods: the others are bound all the same.

A relay in front of the real API server answers the Bindings of a hundred pods as nobody wants to be answered. Two
hundred others come after them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.kinds import EVENTS, NAMESPACES, PODS
from koordinator.kube.client import KubeClient
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.programs import RealPrograms
from tests.real.quota_runs import our_scheduler
from tests.real.scheduler_configuration import write_configuration
from tests.real.side_by_side import BOTH, Who
from tests.real.test_scheduler import SLOTS, connected, pod, populate, together
from tests.real_world.faulty_api_server import FAULTS, Faults, Rule, bindings, relay

# The relay in this process breaks TLS connections, some of which Python leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NODES, POISONED, GOOD = 40, 100, 200
FULL_NODE: Final = "node-000"
VICTIMS: Final = 8
_PATIENCE: Final = 120.0
"""Seconds, on a machine that has much else to do."""
ENOUGH: Final = 32
"""So many of the poisoned pods have been tried when the others come."""
BESIDE = (
    "etcd or a webhook fails",
    "the server is overloaded",
    "the server asks for an hour",
    "there is never an answer",
    "the connection breaks before",
)


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("failing") / "cluster") as plane:
        yield plane


@pytest.fixture(scope="module", autouse=True)
def populated(cluster: ControlPlane) -> None:
    async def story() -> None:
        async with connected(cluster) as client:
            await populate(client, NODES, 0)

    asyncio.run(story())


@contextmanager
def scheduler(who: Who, programs: RealPrograms, plane: ControlPlane, kubeconfig: Path, folder: Path) -> Iterator[None]:
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=kubeconfig)
    if who == "ours":
        with our_scheduler(plane, configuration, folder / "ours.log"):
            yield
    else:
        with original_scheduler(programs, plane, configuration, folder / "original.log"):
            yield


class Cluster:
    """The pods of one namespace, which is gone in the end."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, name: str, count: int) -> None:
        await together(lambda n: self.client.create(PODS, pod(f"{name}-{n:03}"), self.namespace), count)

    async def bound(self, name: str) -> dict[str, str]:
        """Pod -> node."""
        found = (await self.client.list(PODS, self.namespace)).items
        return {each.metadata.name: each.spec.node_name for each in found
                if each.metadata.name.startswith(name) and each.spec.node_name}  # fmt: skip

    async def until_bound(self, name: str, count: int, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while len(await self.bound(name)) < count:
                await asyncio.sleep(0.3)

    async def reasons(self, name: str) -> list[str]:
        """Why pods are pending, according to their conditions."""
        found = (await self.client.list(PODS, self.namespace)).items
        conditions = [scheduled_condition(each) for each in found if each.metadata.name.startswith(name)]
        return [each.message for each in conditions if each is not None and each.status == "False"]


@asynccontextmanager
async def pods_of(plane: ControlPlane, namespace: str) -> AsyncIterator[Cluster]:
    async with connected(plane) as client:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        cluster = Cluster(client, namespace)
        try:
            yield cluster
            for nodes in Counter((await cluster.bound("")).values()).values():
                assert nodes <= SLOTS
        finally:
            for each in (await client.list(PODS, namespace)).items:
                await client.delete(PODS, each.metadata.name, namespace, grace_period_seconds=0)


async def until_tried(rule: Rule, count: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while len(set(rule.hits)) < count:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("who", BOTH)
@pytest.mark.parametrize("name", BESIDE)
def test_two_hundred_pods_are_bound_beside_a_hundred_whose_bindings_fail(
    who: Who, name: str, cluster: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    async def story() -> None:
        rule = bindings(FAULTS[name], "poisoned-*")
        faults = Faults(rule)
        certificates = cluster.kubeconfig.parent / "certificates"
        async with (
            pods_of(cluster, f"{who}-{uuid.uuid4().hex[:8]}") as pods,
            relay(faults, cluster.kubeconfig, certificates, tmp_path) as kubeconfig,
        ):
            await pods.create("poisoned", POISONED)
            with scheduler(who, real_programs, cluster, kubeconfig, tmp_path):
                await until_tried(rule, ENOUGH)
                await pods.create("good", GOOD)
                await pods.until_bound("good", GOOD, _PATIENCE)
                assert await pods.bound("poisoned") == {}, "it ends before it is over"
                if who == "ours" and FAULTS[name].status:
                    async with asyncio.timeout(_PATIENCE):
                        while not any(FAULTS[name].message in text for text in await pods.reasons("poisoned")):
                            await asyncio.sleep(0.3)
                    faults.rules.clear()
                    await pods.until_bound("poisoned", POISONED, 90)

    asyncio.run(story())


def important() -> dict[str, Any]:
    """A pod for one node alone, on which others have to make room."""
    document = pod("important", cpu=f"{(SLOTS - VICTIMS // 2) * 100}m")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [FULL_NODE]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    document["spec"] |= {"priorityClassName": "system-cluster-critical", "affinity": affinity}
    return document


@pytest.mark.parametrize("who", BOTH)
def test_others_leave_for_a_pod_only_if_it_may_be_bound(
    who: Who, cluster: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    """The original evicts them for a pod that an admission webhook keeps from its node."""

    async def story() -> None:
        faults = Faults(bindings(FAULTS["a webhook refuses"], "important"))
        certificates = cluster.kubeconfig.parent / "certificates"
        async with (
            pods_of(cluster, f"{who}-{uuid.uuid4().hex[:8]}") as pods,
            relay(faults, cluster.kubeconfig, certificates, tmp_path) as kubeconfig,
        ):

            async def leaving() -> set[str]:
                found = (await pods.client.list(PODS, pods.namespace)).items
                return {each.metadata.name for each in found if each.metadata.deletion_timestamp is not None}

            async def until_some_leave() -> None:
                async with asyncio.timeout(_PATIENCE):
                    while not await leaving():
                        await asyncio.sleep(0.3)

            for number in range(VICTIMS):
                document = pod(f"victim-{number}")
                document["spec"]["nodeName"] = FULL_NODE
                await pods.client.create(PODS, document, pods.namespace)
            await pods.client.create(PODS, important(), pods.namespace)
            with scheduler(who, real_programs, cluster, kubeconfig, tmp_path):
                if who == "original":
                    await until_some_leave()
                    return
                async with asyncio.timeout(_PATIENCE):
                    while not any(each.reason == "FailedScheduling" and "nobody is evicted" in each.message
                                  for each in (await pods.client.list(EVENTS, pods.namespace)).items):  # fmt: skip
                        await asyncio.sleep(0.3)
                await asyncio.sleep(3)
                assert await leaving() == set()
                faults.rules.clear()
                # Something that may help the pod.
                await pods.client.delete(PODS, "victim-0", pods.namespace, grace_period_seconds=0)
                await until_some_leave()

    asyncio.run(story())
