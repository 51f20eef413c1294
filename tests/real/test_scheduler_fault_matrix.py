"""koord-scheduler with the chart's profile, where each write in the life of a pod fails in each way that people have
seen.

All cells of the matrix are there at once: a cell is a kind of write and a fault, in a namespace of its own, and a relay
in front of a real API server has a rule for each. Other pods come meanwhile. Then nothing fails any more, with the same
process or with another that takes over, and everything that fits is bound. In the end every slot of every node can be
taken, and not one more: what a binding left behind would show.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
import yaml

from koordinator.api.kinds import ELASTIC_QUOTAS, NAMESPACES, NODES, POD_GROUPS, PODS, RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from koordinator.model.pod_requests import pod_requests
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real import quota_runs, reservation_runs
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_runs import our_scheduler
from tests.real.scheduler_configuration import write_configuration
from tests.real.test_scheduler import SLOTS, connected, pod, populate, together
from tests.real.watched import Watched, watching
from tests.real_world.faulty_api_server import FAULTS, Fault, Faults, Rule, bindings, relay

# The relay in this process breaks TLS connections, some of which Python leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NODE_COUNT: Final = 60
GOOD: Final = 100
GOOD_BATCH: Final = 300
_BATCHES: Final = 5
PODS_OF_A_CELL: Final = 2
_TOO_MUCH: Final = "1000"
_RESERVED: Final = 100_000_000
"""The nano-CPUs of a slot."""
_BOUND_SECONDS: Final = 240.0
"""After the last fault: requests that were never answered are given up after a minute, and a pod is read then."""
_MET_SECONDS: Final = 60.0
_LEAVE: Final = {"terminationGracePeriodSeconds": 0}
DELETED: Final = "deleted"
RESIZED: Final = "resized"
WITHOUT_NODE: Final = "without-node"
"""What becomes of a pod, or its node, while its Binding fails."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of write, and one way in which it fails, in ``namespace``."""

    write: str
    fault: Fault
    namespace: str

    @property
    def rule(self) -> Rule:
        return _RULES[self.write](self.fault, self.namespace)


def _rule(verb: str, plural: str, subresource: str = "") -> Callable[[Fault, str], Rule]:
    return lambda fault, namespace: Rule(fault, verb, plural, subresource, namespace)


_RULES: Final[Mapping[str, Callable[[Fault, str], Rule]]] = {
    "binding": lambda fault, namespace: bindings(fault, namespace=namespace),
    "condition": _rule("patch", "pods", "status"),
    "nomination": _rule("patch", "pods", "status"),
    "eviction": _rule("delete", "pods"),
    "event": _rule("create", "events"),
    "gang": lambda fault, namespace: bindings(fault, namespace=namespace),
    "PodGroup": _rule("patch", "podgroups"),
    "quota": _rule("patch", "elasticquotas"),
    "Reservation": lambda fault, namespace: Rule(fault, "patch", "reservations", "status", "*", f"{namespace}-*"),
    DELETED: lambda fault, namespace: bindings(fault, namespace=namespace),
    RESIZED: lambda fault, namespace: bindings(fault, namespace=namespace),
    WITHOUT_NODE: lambda fault, namespace: bindings(fault, namespace=namespace),
}
CELLS: Final = tuple(
    Cell(write, fault, f"{write.lower()}-{number}") for write in _RULES for number, fault in enumerate(FAULTS.values())
)


class Matrix:
    """What is in the cells, and every node that a pod was ever seen on."""

    def __init__(self, client: KubeClient, watched: Watched) -> None:
        self.client = client
        self.nodes: dict[str, set[str]] = {}
        self._watched = watched
        watched.hear(PODS, self._note)

    def _note(self, each: Pod) -> None:
        if each.spec.node_name:
            self.nodes.setdefault(each.metadata.uid, set()).add(each.spec.node_name)

    def pods(self, namespace: str) -> list[Pod]:
        return [each for each in self._watched.list(PODS) if each.metadata.namespace == namespace]

    def are_bound(self, namespace: str, count: int) -> bool:
        return sum(bool(each.spec.node_name) for each in self.pods(namespace)) >= count

    async def until(self, holds: Callable[[], object], seconds: float) -> bool:
        return await self._watched.until(holds, seconds)

    async def fill(self, cell: Cell) -> None:
        namespace = cell.namespace
        await self.client.create(NAMESPACES, {"metadata": {"name": namespace}})
        if cell.write in ("nomination", "eviction"):
            await self._full_node(namespace)
            return
        if cell.write == "Reservation":
            document = reservation_runs.reservation(f"{namespace}-r", cpu="100m", memory="64Mi")
            await self.client.create(RESERVATIONS, document)
            return
        documents = [pod(f"p{number}") for number in range(PODS_OF_A_CELL)]
        if cell.write == WITHOUT_NODE:
            await self._own_node(namespace)
            for document in documents:
                document["spec"] |= _only_on(namespace)
        if cell.write == "condition":
            documents = [pod(f"p{number}", cpu=_TOO_MUCH) for number in range(PODS_OF_A_CELL)]
        if cell.write in ("gang", "PodGroup"):
            group = {"metadata": {"name": "g"}, "spec": {"minMember": PODS_OF_A_CELL, "scheduleTimeoutSeconds": 600}}
            await self.client.create(POD_GROUPS, group, namespace)
            for document in documents:
                document["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
        if cell.write == "quota":
            quota = quota_runs.quota(namespace, {}, {"cpu": "10", "memory": "10Gi"}, namespace=namespace)
            await self.client.create(ELASTIC_QUOTAS, quota, namespace)
            for document in documents:
                document["metadata"]["labels"] = {f"{quota_runs.PREFIX}/name": namespace}
        for document in documents:
            await self.client.create(PODS, document, namespace)

    async def _own_node(self, namespace: str) -> None:
        resources = {"cpu": f"{SLOTS * 100}m", "memory": "64Gi", "pods": "110"}
        await self.client.create(
            NODES,
            {
                "metadata": {"name": namespace, "labels": {"only": namespace}},
                "spec": {"taints": [{"key": "only", "effect": "NoSchedule"}]},
                "status": {"capacity": resources, "allocatable": resources},
            },
        )

    async def _full_node(self, namespace: str) -> None:
        """Full of a pod that has to leave for one of a higher priority."""
        await self._own_node(namespace)
        victim = pod("victim", cpu=f"{SLOTS * 100}m")
        victim["spec"] |= {"nodeName": namespace, **_LEAVE}
        await self.client.create(PODS, victim, namespace)
        document = pod("p0", cpu=f"{SLOTS * 100}m")
        document["spec"] |= {"priorityClassName": "system-cluster-critical", **_only_on(namespace)}
        await self.client.create(PODS, document, namespace)

    async def happen(self, cell: Cell) -> None:
        """What happens while the Bindings fail."""
        if cell.write == DELETED:
            for each in self.pods(cell.namespace):
                await self.client.delete(PODS, each.metadata.name, cell.namespace, grace_period_seconds=0)
        if cell.write == WITHOUT_NODE:
            await self.client.delete(NODES, cell.namespace)
        if cell.write == RESIZED:
            requests = {"cpu": "50m", "memory": "64Mi"}
            patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
            for each in self.pods(cell.namespace):
                if each.spec.node_name:
                    await self.client.patch(
                        PODS, each.metadata.name, patch, PatchType.STRATEGIC, cell.namespace, subresource="resize"
                    )

    def is_placed(self, cell: Cell) -> bool:
        """Whether everything that ought to be bound is, and what cannot be bound says so."""
        if cell.write == "Reservation":
            found = self._watched.get(RESERVATIONS, f"{cell.namespace}-r")
            return found is not None and found.status.phase == "Available" and bool(found.status.node_name)
        if cell.write in (DELETED, WITHOUT_NODE):
            return True
        pods = [each for each in self.pods(cell.namespace) if each.metadata.name != "victim"]
        if cell.write == "condition":
            conditions = [scheduled_condition(each) for each in pods]
            return all(each is not None and each.status == "False" for each in conditions)
        return bool(pods) and all(each.spec.node_name for each in pods)

    def free_slots(self) -> int:
        """At least, of the nodes that are for everybody, according to the API."""
        taken = [each for each in self._watched.list(PODS) if each.spec.node_name.startswith("node-")]
        reserved = [each for each in self._watched.list(RESERVATIONS) if each.status.node_name.startswith("node-")]
        return NODE_COUNT * SLOTS - len(taken) - len(reserved)

    def check(self) -> None:
        """No pod was ever on two nodes, and no node has more than it can hold."""
        assert all(len(nodes) == 1 for nodes in self.nodes.values())
        used: Counter[str] = Counter()
        for each in self._watched.list(PODS):
            used[each.spec.node_name] += pod_requests(each)["cpu"]
        for reservation in self._watched.list(RESERVATIONS):
            used[reservation.status.node_name] += _RESERVED
        del used[""]
        assert max(used.values()) <= SLOTS * _RESERVED


def _only_on(namespace: str) -> dict[str, Any]:
    return {"nodeSelector": {"only": namespace}, "tolerations": [{"key": "only", "operator": "Exists"}]}


@asynccontextmanager
async def matrix_on(plane: ControlPlane) -> AsyncIterator[Matrix]:
    async with (
        connected(plane) as client,
        watching(client, (PODS, ""), (RESERVATIONS, ""), (POD_GROUPS, ""), (ELASTIC_QUOTAS, "")) as watched,
    ):
        await client.create(NAMESPACES, {"metadata": {"name": "filler"}})
        yield Matrix(client, watched)


@pytest.fixture
def cluster(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster") as plane:
        yield plane


@contextmanager
def scheduler(plane: ControlPlane, kubeconfig: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """With the chart's profile."""
    profiles = yaml.safe_load(shipped_file("scheduler.yaml").read_text())["profiles"]
    (profile,) = [each for each in profiles if each["schedulerName"] == "koord-scheduler"]
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=kubeconfig, profile=profile)
    with our_scheduler(plane, configuration, folder / "scheduler.log") as process:
        yield process


@pytest.mark.parametrize("who_goes_on", ["the same scheduler", "another one"])
def test_whatever_fails_nothing_is_bound_twice_and_nothing_stays_behind(
    who_goes_on: str, cluster: ControlPlane, tmp_path: Path
) -> None:
    async def story() -> None:
        rules = {cell: cell.rule for cell in CELLS}
        faults = Faults(*rules.values())
        certificates = cluster.kubeconfig.parent / "certificates"
        async with connected(cluster) as client:
            await populate(client, NODE_COUNT, 0)
        async with (
            matrix_on(cluster) as matrix,
            relay(faults, cluster.kubeconfig, certificates, tmp_path) as kubeconfig,
        ):
            await together(lambda n: matrix.fill(CELLS[n]), len(CELLS))
            with scheduler(cluster, kubeconfig, tmp_path) as process:
                await until_all_have_failed(rules)
                await together(lambda n: matrix.happen(CELLS[n]), len(CELLS))
                await together(lambda n: matrix.client.create(PODS, pod(f"good-{n:03}"), "default"), GOOD)
                assert await matrix.until(lambda: matrix.are_bound("default", GOOD), _BOUND_SECONDS)
                if who_goes_on == "the same scheduler":
                    faults.rules.clear()
                    await ends_well(matrix)
                else:
                    process.kill()
            if who_goes_on == "another one":
                faults.rules.clear()
                with scheduler(cluster, kubeconfig, tmp_path):
                    await ends_well(matrix)

    asyncio.run(story())


@pytest.mark.slow
def test_what_fails_costs_the_others_a_fifth_of_their_throughput_at_most(cluster: ControlPlane, tmp_path: Path) -> None:
    """In pods that are bound a second, while every cell of the matrix fails, and after the last fault; in one cluster,
    through one relay. A time is the median of several batches, each of which is there whole before it is scheduled."""

    async def story() -> dict[str, float]:
        faults = Faults(*(cell.rule for cell in CELLS))
        rules = dict(zip(CELLS, faults.rules, strict=True))
        certificates = cluster.kubeconfig.parent / "certificates"
        async with connected(cluster) as client:
            await populate(client, NODE_COUNT, 0)
        async with (
            matrix_on(cluster) as matrix,
            relay(faults, cluster.kubeconfig, certificates, tmp_path) as kubeconfig,
        ):
            await together(lambda n: matrix.fill(CELLS[n]), len(CELLS))
            with scheduler(cluster, kubeconfig, tmp_path) as process:
                await until_all_have_failed(rules)
                await batch_seconds(matrix, process)
                seconds = {"failing": median([await batch_seconds(matrix, process) for _ in range(_BATCHES)])}
                # As many rules as before: the relay looks at each of them, whether it applies or not.
                faults.rules[:] = [replace(rule, namespace="nobody") for rule in faults.rules]
                assert await matrix.until(lambda: all(map(matrix.is_placed, CELLS)), _BOUND_SECONDS)
                seconds["none"] = median([await batch_seconds(matrix, process) for _ in range(_BATCHES)])
        return seconds

    seconds = asyncio.run(story())
    assert seconds["failing"] <= 1.25 * seconds["none"], seconds


async def batch_seconds(matrix: Matrix, process: subprocess.Popen[bytes]) -> float:
    """From when koord-scheduler may look at pods that fit until the last of them is seen bound; they leave then."""
    process.send_signal(signal.SIGSTOP)
    await together(lambda n: matrix.client.create(PODS, pod(f"good-{n:03}"), "default"), GOOD_BATCH)
    process.send_signal(signal.SIGCONT)
    begin = asyncio.get_running_loop().time()
    assert await matrix.until(lambda: matrix.are_bound("default", GOOD_BATCH), _BOUND_SECONDS)
    seconds = asyncio.get_running_loop().time() - begin
    names = [each.metadata.name for each in matrix.pods("default")]
    await together(lambda n: matrix.client.delete(PODS, names[n], "default", grace_period_seconds=0), len(names))
    assert await matrix.until(lambda: not matrix.pods("default"), _BOUND_SECONDS)
    return seconds


async def until_all_have_failed(rules: Mapping[Cell, Rule]) -> None:
    end = asyncio.get_running_loop().time() + _MET_SECONDS
    while unmet := [cell.namespace for cell, rule in rules.items() if not rule.hits]:
        assert asyncio.get_running_loop().time() < end, f"nothing was written in {unmet}"
        await asyncio.sleep(0.2)


async def ends_well(matrix: Matrix) -> None:
    """Everything is placed, and then every free slot is taken."""
    # Something that has those tried again that fit nowhere.
    await matrix.client.create(NODES, {"metadata": {"name": "another"}})
    await matrix.until(lambda: all(map(matrix.is_placed, CELLS)), _BOUND_SECONDS)
    assert [cell.namespace for cell in CELLS if not matrix.is_placed(cell)] == []
    free = matrix.free_slots()
    await together(lambda n: matrix.client.create(PODS, pod(f"filler-{n:03}"), "filler"), free + 1)
    assert await matrix.until(lambda: matrix.are_bound("filler", free), _BOUND_SECONDS), "a slot is taken by nobody"
    matrix.check()
