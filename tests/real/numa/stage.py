"""Scenarios of NUMA topologies, played side by side on one cluster: each has nodes, pods and Reservations of its own.

The steps of all scenarios are taken in lockstep, one of each at a time; what a step creates is decided about before the
next one. So the outcome of a scenario does not depend on speed, nor on the others.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS, RESERVATIONS, Kind
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition

SCENARIO: Final = "scenario"
"""The label of nodes by which pods select those of their scenario."""
_DECIDED: Final = 40.0
_QUIET: Final = 2.5
_ELSEWHERE: Final = re.compile(r"^\d+ node\(s\) didn't match Pod's node affinity/selector\.?$")
_WRITTEN: Final = (annotation_keys.RESOURCE_STATUS, annotation_keys.RESOURCE_SPEC)


@dataclass(frozen=True)
class Machine:
    """A node with so many sockets, NUMA nodes a socket, cores a NUMA node and threads a core. The threads of a core are
    neighbours. ``annotations`` and ``labels`` are those of the Node, ``topology`` are annotations of its
    NodeResourceTopology in place of or beside the CPUs, None for one that is not there."""

    name: str = "a"
    sockets: int = 1
    numa_nodes: int = 2
    cores: int = 4
    threads: int = 2
    memory: str = "16Gi"
    """Of each NUMA node."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] | None = field(default_factory=dict)
    """None: there is no NodeResourceTopology."""
    policies: Sequence[str] = ()
    has_zones: bool = True
    ratio: float = 1.0
    """By what its CPU is multiplied."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """More resources of each NUMA node."""


@dataclass(frozen=True)
class Pod:
    """``spec`` and ``numa`` are the annotations resource-spec and numa-topology-spec, or texts in their place."""

    name: str
    cpu: str = "2"
    memory: str = "1Gi"
    qos: str = "LSR"
    spec: Mapping[str, str] | str | None = None
    numa: Mapping[str, str] | str | None = None
    node: str = ""
    """The only node that it selects."""
    app: str = "other"
    affinity: Mapping[str, Any] | None = None
    """Of Reservations."""
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    """Further requests."""


@dataclass(frozen=True)
class Reservation:
    """For pods with the label app=web; ``pod`` is its template."""

    pod: Pod
    policy: str = ""
    once: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """A pod."""

    name: str


@dataclass(frozen=True)
class Change:
    """A merge patch of the metadata of a Node, or of its NodeResourceTopology."""

    name: str
    metadata: Mapping[str, Any]
    of_topology: bool = False


@dataclass(frozen=True)
class Bound:
    """A pod that is on the node already, whoever has put it there."""

    pod: Pod
    node: str = "a"


Step = Machine | Pod | Reservation | Delete | Change | Bound
Scenario = Sequence[Step]


@dataclass(frozen=True)
class Outcome:
    """``pods``: name -> (node, why it has none, its annotations). ``reservations``: name -> the same."""

    pods: Mapping[str, tuple[str, str, Mapping[str, str]]]
    reservations: Mapping[str, tuple[str, str, Mapping[str, str]]]


class Stage:
    """``client`` of the cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def play(self, scenarios: Mapping[str, Scenario]) -> dict[str, Outcome]:
        """Take all steps of all scenarios; what has become of each."""
        for number in range(max(map(len, scenarios.values()), default=0)):
            steps = [(name, steps[number]) for name, steps in scenarios.items() if number < len(steps)]
            await asyncio.gather(*[self._take(scenario, step) for scenario, step in steps])
            # What follows from a deletion or a change is heard of by watches, and nothing shows that it has been.
            await asyncio.sleep(1.2 if number else 2.0)
        await self._quiet()
        return {name: await self.outcome(name) for name in scenarios}

    async def _take(self, scenario: str, step: Step) -> None:
        match step:
            case Machine():
                await self._add(scenario, step)
            case Pod():
                await self._client.create(PODS, _pod(scenario, step), "default")
                await self._until_decided(f"{scenario}-{step.name}")
            case Reservation():
                await self._client.create(RESERVATIONS, _reservation(scenario, step))
                await self._until_reserved(f"{scenario}-{step.pod.name}")
            case Bound():
                document = _pod(scenario, step.pod)
                document["spec"]["nodeName"] = f"{scenario}-{step.node}"
                await self._client.create(PODS, document, "default")
            case Delete():
                await self._client.delete(PODS, f"{scenario}-{step.name}", "default", grace_period_seconds=0)
            case Change():
                kind: Kind[Any] = NODE_RESOURCE_TOPOLOGIES if step.of_topology else NODES
                patch = {"metadata": _texts(step.metadata)}
                await self._client.patch(kind, f"{scenario}-{step.name}", patch, PatchType.MERGE)

    async def _add(self, scenario: str, machine: Machine) -> None:
        name = f"{scenario}-{machine.name}"
        if machine.topology is not None:
            await self._client.create(NODE_RESOURCE_TOPOLOGIES, _topology(name, machine))
        count = machine.sockets * machine.numa_nodes
        cpus = count * machine.cores * machine.threads
        amounts = {"cpu": f"{int(cpus * machine.ratio * 1000)}m", "memory": f"{count * int(machine.memory[:-2])}Gi"}
        amounts.update({key: str(count * int(value)) for key, value in machine.devices.items()})
        resources = {**amounts, "pods": "110"}
        annotations: dict[str, Any] = dict(machine.annotations)
        if machine.ratio != 1:
            annotations.setdefault(annotation_keys.RESOURCE_AMPLIFICATION_RATIO, {"cpu": machine.ratio})
        labels = {**machine.labels, SCENARIO: scenario, "kubernetes.io/hostname": name}
        metadata = {"name": name, "labels": labels, **_texts({"annotations": annotations})}
        await self._client.create(
            NODES, {"metadata": metadata, "status": {"capacity": resources, "allocatable": resources}}
        )

    async def _until_decided(self, name: str) -> None:
        end = asyncio.get_running_loop().time() + _DECIDED
        while asyncio.get_running_loop().time() < end:
            pod = await self._client.get(PODS, name, "default")
            condition = scheduled_condition(pod)
            if pod.spec.node_name or (condition is not None and condition.status == "False"):
                return
            await asyncio.sleep(0.05)

    async def _until_reserved(self, name: str) -> None:
        end = asyncio.get_running_loop().time() + _DECIDED
        while asyncio.get_running_loop().time() < end:
            found = await self._client.get(RESERVATIONS, name)
            if found.status.node_name or any(each.status == "False" for each in found.status.conditions):
                return
            await asyncio.sleep(0.05)

    async def _quiet(self) -> None:
        last: Any = None
        end = asyncio.get_running_loop().time() + _DECIDED
        while asyncio.get_running_loop().time() < end:
            pods = (await self._client.list(PODS, "default")).items
            found = sorted((pod.metadata.name, pod.spec.node_name) for pod in pods)
            if found == last:
                return
            last = found
            await asyncio.sleep(_QUIET)

    async def outcome(self, scenario: str) -> Outcome:
        """What has become of the scenario by now."""
        prefix = f"{scenario}-"
        pods = {}
        for pod in (await self._client.list(PODS, "default")).items:
            if pod.metadata.labels.get(SCENARIO) == scenario:
                condition = scheduled_condition(pod)
                message = condition.message if condition is not None and not pod.spec.node_name else ""
                node = pod.spec.node_name.removeprefix(prefix)
                name = pod.metadata.name.removeprefix(prefix)
                pods[name] = node, without_others(message), _written(pod.metadata.annotations)
        reservations = {}
        for each in (await self._client.list(RESERVATIONS)).items:
            if each.metadata.labels.get(SCENARIO) == scenario:
                messages = [known.message for known in each.status.conditions if known.status == "False"]
                node = each.status.node_name.removeprefix(prefix)
                name = each.metadata.name.removeprefix(prefix)
                message = without_others(messages[0]) if messages and not node else ""
                reservations[name] = node, message, _written(each.metadata.annotations)
        return Outcome(pods, reservations)


def without_others(message: str) -> str:
    """A message without the nodes of other scenarios and what is said of preemption."""
    text, _, _ = message.partition(" preemption: ")
    head, found, reasons = text.partition(" nodes are available: ")
    if not found:
        return message
    own = [each.rstrip(".") for each in _items(reasons) if not _ELSEWHERE.match(each)]
    return f"{'' if head.startswith('0/') else head}{', '.join(sorted(own))}"


def _items(reasons: str) -> Iterable[str]:
    return re.split(r", (?=\d+ )", reasons)


def _written(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: annotations[key] for key in _WRITTEN if key in annotations}


def _texts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """With annotations as texts."""
    annotations = metadata.get("annotations", {})
    texts = {
        key: value if value is None or isinstance(value, str) else json.dumps(value)
        for key, value in annotations.items()
    }
    return {**metadata, "annotations": texts}


def _topology(name: str, machine: Machine) -> dict[str, Any]:
    assert machine.topology is not None, "the caller has looked"
    annotations: dict[str, Any] = {annotation_keys.CPU_TOPOLOGY: {"detail": _cpus(machine)}, **machine.topology}
    per_node = machine.cores * machine.threads
    resources = {"cpu": str(per_node), "memory": machine.memory, **machine.devices}
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": key, "capacity": value, "allocatable": value, "available": value}
                for key, value in resources.items()
            ],
        }
        for number in range(machine.sockets * machine.numa_nodes)
    ]
    known = {key: value for key, value in annotations.items() if value is not None}
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.name,
        "metadata": {"name": name, **_texts({"annotations": known})},
        "topologyPolicies": list(machine.policies),
        "zones": zones if machine.has_zones else [],
    }


def _cpus(machine: Machine) -> list[dict[str, int]]:
    found = []
    for number in range(machine.sockets * machine.numa_nodes * machine.cores * machine.threads):
        core = number // machine.threads
        node = core // machine.cores
        found.append({"id": number, "core": core, "node": node, "socket": node // machine.numa_nodes})
    return found


def _text(value: Mapping[str, str] | str) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _pod(scenario: str, pod: Pod) -> dict[str, Any]:
    annotations: dict[str, Any] = dict(pod.annotations)
    if pod.spec is not None:
        annotations[annotation_keys.RESOURCE_SPEC] = _text(pod.spec)
    if pod.numa is not None:
        annotations[annotation_keys.NUMA_TOPOLOGY_SPEC] = _text(pod.numa)
    if pod.affinity is not None:
        annotations[annotation_keys.RESERVATION_AFFINITY] = json.dumps(pod.affinity)
    labels = {"app": pod.app, SCENARIO: scenario, **pod.labels}
    if pod.qos:
        labels["koordinator.sh/qosClass"] = pod.qos
    amounts = {"cpu": pod.cpu, "memory": pod.memory, **pod.more}
    requests = {key: value for key, value in amounts.items() if value}
    selector = {SCENARIO: scenario}
    if pod.node:
        selector["kubernetes.io/hostname"] = f"{scenario}-{pod.node}"
    spec: dict[str, Any] = {
        "schedulerName": "koord-scheduler",
        "nodeSelector": selector,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}],
    }
    if pod.priority is not None:
        spec["priorityClassName"] = f"p{pod.priority}"
    metadata = {"name": f"{scenario}-{pod.name}", "labels": labels, **_texts({"annotations": annotations})}
    return {"metadata": metadata, "spec": spec}


def _reservation(scenario: str, reservation: Reservation) -> dict[str, Any]:
    template = _pod(scenario, reservation.pod)
    metadata = template["metadata"]
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.name,
        "metadata": {"name": metadata["name"], "labels": {SCENARIO: scenario, **reservation.labels}},
        "spec": {
            "template": {
                "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
                "spec": template["spec"],
            },
            "owners": [{"labelSelector": {"matchLabels": {"app": "web", SCENARIO: scenario}}}],
            "allocateOnce": reservation.once,
            "ttl": "0s",
            **({"allocatePolicy": reservation.policy} if reservation.policy else {}),
            **reservation.spec,
        },
    }
