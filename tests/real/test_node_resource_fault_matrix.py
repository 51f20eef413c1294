"""The controller of batch capacity on a real API server, where each of its writes fails in each way that people have
seen: what does not fail is written meanwhile, and once nothing fails any more, everything is written once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import pytest

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.timestamps import format_time
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import PatchType
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options
from tests.manager.node_resource.node_example import BATCH_CPU, BATCH_MEMORY, CONFIGURATION, usage
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, prepare
from tests.real.programs import RealPrograms
from tests.real_world.faulty_api_server import FAULTS, Faults, Rule, relay

# The relay in this process breaks TLS connections, some of which Python leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_WRITES: Final = {"zones": ("noderesourcetopologies", ""), "amounts": ("nodes", "status"), "metadata": ("nodes", "")}
_CELLS: Final = {
    f"{write}-{number}": (write, fault) for write in _WRITES for number, fault in enumerate(FAULTS.values())
}
_GOOD: Final = "good"
_RATIO: Final = "node.koordinator.sh/resource-amplification-ratio"
_AMPLIFICATION: Final = '{"enable": true, "resourceAmplificationRatio": {"cpu": 2}}'
_FIELDS: Final = ("capacity", "allocatable", "available")
_REQUEST_SECONDS: Final = 4.0
_LONGEST_DELAY: Final = 2.0
"""In place of half a minute; nobody waits for longer than a request may take."""
_SECONDS: Final = 120.0


@pytest.fixture(scope="module")
def plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("node-resource-faults")) as made:
        prepare(made)
        yield made


class Cluster:
    """Nodes of 100 CPUs in two zones, as an administrator and their agents see them."""

    def __init__(self, client: KubeClient, informers: InformerSet) -> None:
        self._client = client
        self._nodes = informers.informer(NODES)
        self._topologies = informers.informer(NODE_RESOURCE_TOPOLOGIES)

    async def add(self, name: str) -> None:
        amounts = {"cpu": "100", "memory": "120G", "example.com/x": "3"}
        await self._client.create(NODES, {"metadata": {"name": name}})
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await self._client.patch(NODES, name, status, PatchType.MERGE, subresource="status")
        resources = [{"name": each, **dict.fromkeys(_FIELDS, "50")} for each in ("cpu", "example.com/x")]
        zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(2)]
        topology = {"metadata": {"name": name}, "topologyPolicies": ["None"], "zones": zones}
        await self._client.create(NODE_RESOURCE_TOPOLOGIES, topology)
        await self._client.create(NODE_METRICS, {"metadata": {"name": name}, "spec": {}})
        await self.report(name, 7)

    async def report(self, name: str, cores: int) -> None:
        """``cores`` are used beside the pods."""
        status = {
            "updateTime": format_time(datetime.now(UTC)),
            "nodeMetric": {"nodeUsage": usage("40", "45G"), "systemUsage": usage(str(cores), "12G")},
        }
        await self._client.patch(NODE_METRICS, name, {"status": status}, PatchType.MERGE, subresource="status")

    async def configure(self, **more: str) -> None:
        name = Options().slo_config_name
        body = {"data": {"colocation-config": CONFIGURATION, **more}}
        await self._client.patch(CONFIG_MAPS, name, body, PatchType.MERGE, NAMESPACE)

    def node(self, name: str) -> Node:
        found = self._nodes.get(name)
        assert found is not None
        return found

    def offers(self, name: str, cpu: int) -> bool:
        allocatable = self.node(name).status.allocatable
        return BATCH_CPU in allocatable and allocatable[BATCH_CPU].value == cpu

    def has_ratio(self, name: str) -> bool:
        return self.node(name).metadata.annotations.get(_RATIO) == '{"cpu":2.00}'

    def has_zones(self, name: str, cpu: int) -> bool:
        """Each zone has what it had, and batch amounts once."""
        found = self._topologies.get(name)
        assert found is not None
        return all(_is_whole(zone, cpu) for zone in _entries(found))

    def versions(self) -> list[str]:
        return [each.metadata.resource_version for each in (*self._nodes.list(), *self._topologies.list())]


def _entries(topology: NodeResourceTopology) -> list[list[tuple[str, int]]]:
    return [[(info.name, info.allocatable.value) for info in zone.resources] for zone in topology.zones]


def _is_whole(zone: list[tuple[str, int]], cpu: int) -> bool:
    names = sorted(name for name, _ in zone)
    return names == sorted(("cpu", "example.com/x", BATCH_CPU, BATCH_MEMORY)) and dict(zone)[BATCH_CPU] == cpu


@asynccontextmanager
async def _controlled(kubeconfig: Path) -> AsyncIterator[None]:
    """The controller, behind the relay."""
    clock, random, metrics = SystemClock(), Random(1), Metrics()
    async with connected(ClientOptions(kubeconfig=str(kubeconfig), timeout_seconds=_REQUEST_SECONDS)) as client:
        informers = InformerSet(client, clock=clock, random=random)
        events = EventBroadcaster(client, instance="test", clock=clock, random=random)
        context = ControllerContext(client, informers, events, Options(), metrics, clock, random)
        controller = NodeResourceController(context)
        async with informers.started(_SECONDS), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(controller.run())
            yield
            running.cancel()


def test_each_write_fails_in_each_way(plane: ControlPlane, tmp_path: Path) -> None:
    async def scenario() -> None:
        rules = [
            Rule(replace(fault, delay=min(fault.delay, _LONGEST_DELAY)), "patch", *_WRITES[write], name=name)
            for name, (write, fault) in _CELLS.items()
        ]
        faults, certificates = Faults(), plane.kubeconfig.parent / "certificates"
        async with (
            connected(ClientOptions(kubeconfig=str(plane.kubeconfig))) as client,
            relay(faults, plane.kubeconfig, certificates, tmp_path) as kubeconfig,
        ):
            informers = InformerSet(client)
            cluster = Cluster(client, informers)
            data = {"metadata": {"name": Options().slo_config_name}, "data": {"colocation-config": CONFIGURATION}}
            await client.create(CONFIG_MAPS, data, NAMESPACE)
            names = (*_CELLS, _GOOD)
            await asyncio.gather(*map(cluster.add, names))
            async with informers.started(_SECONDS), _controlled(kubeconfig):
                await _hold(lambda: [name for name in names if not cluster.offers(name, 58_000)])
                faults.rules = list(rules)
                await asyncio.gather(*(cluster.report(name, 17) for name in names))
                await _hold(lambda: [each for each in _CELLS if _lacks_amounts(cluster, each)])
                await cluster.configure(**{"resource-amplification-config": _AMPLIFICATION})
                await _hold(lambda: [rule.name for rule in rules if not rule.hits])
                faults.rules = []
                await _hold(lambda: [name for name in names if not _is_done(cluster, name)])
                settled = cluster.versions()
                await asyncio.sleep(_REQUEST_SECONDS)
                assert cluster.versions() == settled, "nothing is written again"

    asyncio.run(scenario())


def _lacks_amounts(cluster: Cluster, name: str) -> bool:
    """Of what does not fail."""
    write, _ = _CELLS[name]
    has_amounts = write == "amounts" or cluster.offers(name, 48_000)
    return not (has_amounts and (write == "zones" or cluster.has_zones(name, 24_000)))


def _is_done(cluster: Cluster, name: str) -> bool:
    return cluster.offers(name, 48_000) and cluster.has_zones(name, 24_000) and cluster.has_ratio(name)


async def _hold(lacking: Callable[[], list[str]]) -> None:
    """Wait until nothing is lacking any more."""
    try:
        async with asyncio.timeout(_SECONDS):
            while lacking():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"after {_SECONDS:g} s: {lacking()}") from None
