"""The NodeResourceTopology is made, is brought up to date only when it is not, and keeps what others wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.observe.node_info import NodeInfo
from koordinator.koordlet.options import Folders, KubeletOptions, Options
from koordinator.koordlet.pods.listing import PodListing
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.node_topology.description import NodeTopology, topology_patch
from koordinator.koordlet.report.node_topology.kubelet_cpus import CPUManagerStateError
from koordinator.koordlet.report.node_topology.reporter import TopologyReporter
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.kubelet import Kubelet, kubelet_configuration
from tests.in_memory_api import InMemoryApi
from tests.koordlet.report.node_topology.test_description import make_pod, reported
from tests.node.machine import FakeMachine

NODE = "node-1"
POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
POOLS = "node.koordinator.sh/cpu-shared-pools"


class Bench:
    """A machine of two CPUs, its kubelet and its API server; ``rounds`` lets the reporter work."""

    def __init__(self, root: Path, *, writes: bool, queries_kubelet: bool, pods: Sequence[str]) -> None:
        self._pods = pods
        self.machine = FakeMachine(root)
        self.machine.write_cpus([(0, 0, 0), (0, 0, 0)])
        self.machine.write_numa_memory(0, 1 << 20)
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.api.put(NODES, {"metadata": {"name": NODE, "uid": f"uid-{NODE}"}})
        client = self.api.client()
        self.states = StatesInformer(client, NODE, clock=self.clock, random=Random(1), metrics=Metrics())
        self.reported: list[NodeTopology] = []
        self.states.on_topology(self.reported.append)
        self.configure(cpuManagerPolicy="none")
        self.info = NodeInfo(self.machine.host, AgentMetrics(Metrics(), NODE), with_huge_pages=False)
        self.kubelet = Kubelet(self._get)
        options = Options(
            NODE,
            self.machine.host,
            NOWHERE,
            Folders.under(root),
            kubelet=KubeletOptions(query_configuration=queries_kubelet),
        )
        options.features.set({features.NODE_TOPOLOGY_REPORT: writes})
        given = SimpleNamespace(client=client, clock=self.clock)
        context = SimpleNamespace(options=options, given=given, states=self.states)
        self.reporter = TopologyReporter(cast("AgentContext", context), self.info)

    def has_allocated(self, entries: dict[str, dict[str, str]]) -> None:
        """As kubelet's static CPU manager notes it."""
        state = {"policyName": "static", "defaultCpuSet": "0-1", "entries": entries}
        self.machine.write("/var/lib/kubelet/cpu_manager_state", json.dumps(state))

    async def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            await self.reporter.report()
            await self.clock.advance(3)

    def configure(self, **fields: Any) -> None:
        """The kubelet says so from now on."""
        self.states.kubelet_configuration = kubelet_configuration(fields)

    @property
    def document(self) -> dict[str, Any]:
        found = self.api.found(NODE_RESOURCE_TOPOLOGIES, NODE)
        assert found is not None
        return found

    def annotation(self, name: str) -> Any:
        return json.loads(self.document["metadata"]["annotations"][name])

    @property
    def writes(self) -> dict[str, int]:
        plural = NODE_RESOURCE_TOPOLOGIES.plural
        return {verb: count for (verb, kind), count in self.api.writes.items() if kind == plural}

    async def _get(self, path: str) -> bytes:
        assert path == "/pods/"
        return json.dumps({"items": [{"metadata": {"name": name, "uid": name}} for name in self._pods]}).encode()


Story = Callable[[Bench], Awaitable[None]]


def play(
    root: Path, story: Story, *, writes: bool = True, queries_kubelet: bool = True, pods: Sequence[str] = ("a",)
) -> Bench:
    async def run() -> Bench:
        bench = Bench(root, writes=writes, queries_kubelet=queries_kubelet, pods=pods)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(bench.states.run())
            try:
                await bench.clock.advance(1)
                bench.info.refresh()
                layout = CgroupLayout("/cgroup", CgroupVersion.V2, CgroupDriver.SYSTEMD)
                await bench.states.sync_pods(bench.kubelet, PodListing(layout, lambda _: []))
                await story(bench)
            finally:
                task.cancel()
        return bench

    return asyncio.run(run())


async def some_rounds(bench: Bench) -> None:
    await bench.rounds(5)


def test_the_object_is_made_once_and_belongs_to_its_node(tmp_path: Path) -> None:
    bench = play(tmp_path, some_rounds)
    assert bench.writes == {"create": 1}
    metadata = bench.document["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": NODE,
            "uid": f"uid-{NODE}",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert bench.document["topologyPolicies"] == ["None"]
    assert [zone["name"] for zone in bench.document["zones"]] == ["node-0"]
    assert bench.annotation(POOLS) == [{"socket": 0, "node": 0, "cpuset": "0-1"}]
    assert len(bench.reported) == 1


def test_the_object_is_made_before_the_first_pod_and_left_alone_until_then(tmp_path: Path) -> None:
    """Pods that need CPUs of their own cannot come before: a scheduler gives none of a node that it does not know. An
    agent that starts later than they knows nothing of them at first."""

    async def story(bench: Bench) -> None:
        await bench.rounds(2)
        assert bench.writes == {"create": 1}
        bench.machine.write_cpus([(0, 0, 0)] * 4)
        bench.info.refresh()
        await bench.rounds(2)

    bench = play(tmp_path, story, pods=())
    assert bench.writes == {"create": 1}
    assert bench.reported == []


def test_an_object_that_says_it_already_is_not_written(tmp_path: Path) -> None:
    made = play(tmp_path / "one", some_rounds).document

    async def story(bench: Bench) -> None:
        bench.api.put(NODE_RESOURCE_TOPOLOGIES, made)
        await bench.clock.advance(1)
        await bench.rounds(5)

    assert play(tmp_path / "two", story).writes == {}


def test_only_what_has_changed_is_written_and_the_rest_is_kept(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.rounds(2)
        mine = bench.document
        mine["metadata"]["annotations"]["theirs"] = "kept"
        mine["zones"][0]["resources"].append(
            {"name": "kubernetes.io/batch-cpu", "capacity": "5", "allocatable": "4", "available": "3"}
        )
        mine["zones"][0]["costs"] = [{"name": "node-0", "value": 10}]
        bench.api.put(NODE_RESOURCE_TOPOLOGIES, mine)
        bench.configure(cpuManagerPolicy="static", reservedSystemCPUs="1")
        bench.has_allocated({})
        await bench.rounds(3)

    bench = play(tmp_path, story)
    assert bench.writes == {"create": 1, "patch": 1}
    assert bench.annotation(POLICY) == {"policy": "static", "reservedCPUs": "1"}
    assert bench.document["metadata"]["annotations"]["theirs"] == "kept"
    assert bench.document["zones"][0]["resources"][-1]["available"] == "3"


def test_nothing_is_reported_before_kubelet_has_said_how_it_is_configured(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.states.kubelet_configuration = None
        await bench.rounds(3)
        assert bench.reported == []
        bench.configure(cpuManagerPolicy="none")
        await bench.rounds(1)

    assert len(play(tmp_path, story).reported) == 1


def test_without_asking_kubelet_its_policy_is_empty(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.states.kubelet_configuration = None
        await bench.rounds(2)

    assert play(tmp_path, story, queries_kubelet=False).annotation(POLICY) == {}


def test_without_the_gate_the_agent_knows_and_nothing_is_written(tmp_path: Path) -> None:
    bench = play(tmp_path, some_rounds, writes=False)
    assert (bench.writes, len(bench.reported)) == ({}, 1)


def test_cpus_that_kubelet_gives_away_leave_the_pools(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.configure(cpuManagerPolicy="static", reservedSystemCPUs="0")
        bench.has_allocated({})
        await bench.rounds(2)
        bench.has_allocated({"a": {"c": "1"}})
        await bench.rounds(3)

    bench = play(tmp_path, story)
    assert bench.annotation(POOLS) == [{"socket": 0, "node": 0, "cpuset": "0"}]
    assert bench.annotation("node.koordinator.sh/pod-cpu-allocs")[0]["cpuset"] == "1"
    assert len(bench.reported) == 2


def test_nothing_is_reported_while_it_is_not_known_which_cpus_kubelet_has_given_away(tmp_path: Path) -> None:
    """Its ``--root-dir`` is another one: no pool may have CPUs of which nobody knows whose they are."""

    async def story(bench: Bench) -> None:
        bench.configure(cpuManagerPolicy="static", reservedSystemCPUs="0")
        with pytest.raises(CPUManagerStateError, match=r"/var/lib/kubelet/cpu_manager_state .*--var-lib-kubelet-dir"):
            await bench.rounds(1)

    bench = play(tmp_path, story)
    assert (bench.reported, bench.writes) == ([], {})


def test_a_deleted_object_is_made_again(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.rounds(2)
        bench.api.remove(NODE_RESOURCE_TOPOLOGIES, NODE)
        await bench.clock.advance(1)
        await bench.rounds(2)

    assert play(tmp_path, story).writes == {"create": 2}


def as_object(zones: list[dict[str, Any]], **metadata: Any) -> NodeResourceTopology:
    metadata = {"name": "n", "resourceVersion": "7", **metadata}
    return convert({"metadata": metadata, "topologyPolicies": ["None"], "zones": zones}, NodeResourceTopology)


def test_zones_are_written_over_one_version_only_and_those_that_are_gone_are_dropped() -> None:
    foreign = {"name": "kubernetes.io/batch-cpu", "capacity": "1", "allocatable": "1", "available": "1"}
    cpu = {"name": "cpu", "capacity": "1", "allocatable": "1", "available": "1"}
    present = as_object(
        [{"name": "node-0", "type": "Node", "resources": [cpu, foreign]}, {"name": "node-9", "type": "Node"}]
    )
    patch = topology_patch(present, reported())
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"
    assert [zone["name"] for zone in patch["zones"]] == ["node-0", "node-1"]
    names = [resource["name"] for resource in patch["zones"][0]["resources"]]
    assert names == ["cpu", "hugepages-1Gi", "hugepages-2Mi", "kubernetes.io/batch-cpu", "memory"]


def test_a_label_that_the_node_has_lost_is_taken_back() -> None:
    label = "node.koordinator.sh/enable-numa-reservation"
    patch = topology_patch(as_object([], labels={label: "true"}), reported(make_pod("a")))
    assert patch is not None
    assert patch["metadata"]["labels"] == {label: None}


@pytest.mark.parametrize("text", ["{", '{"policy":"static"}'])
def test_an_annotation_that_says_something_else_is_written(text: str) -> None:
    patch = topology_patch(as_object([], annotations={POLICY: text}), reported())
    assert patch is not None
    assert patch["metadata"]["annotations"][POLICY] == "{}"


def test_an_annotation_is_compared_by_what_it_means() -> None:
    patch = topology_patch(as_object([], annotations={POLICY: " { } "}), reported())
    assert patch is not None
    assert POLICY not in patch["metadata"]["annotations"]
