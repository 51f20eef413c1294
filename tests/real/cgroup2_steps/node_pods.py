"""The node of the table of steps: its pods of every class, and what kubelet writes into their cgroups."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
GIB = 1 << 30
MIB = 1 << 20
NODE_CPUS = 4
NODE_MEMORY = 2 * GIB
NO_QUOTA = "max 100000"


@dataclass(frozen=True)
class Amounts:
    """CPU in milli-CPU and memory in bytes; None is unset. Those of a batch container are batch resources."""

    cpu_request: int | None = None
    cpu_limit: int | None = None
    memory_request: int | None = None
    memory_limit: int | None = None


@dataclass(frozen=True)
class ContainerCase:
    name: str
    amounts: Amounts
    is_sidecar: bool = False
    """Whether it is an init container that is restarted."""


@dataclass
class PodCase:
    """``qos`` is the label, empty for none; ``kubernetes_qos`` what kubelet says."""

    name: str
    qos: str
    kubernetes_qos: str
    containers: tuple[ContainerCase, ...]
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        return self.qos == "BE"

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    @property
    def folder(self) -> str:
        middle = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}[self.kubernetes_qos]
        return f"kubepods/{middle}pod{self.uid}"

    def container_folder(self, container: ContainerCase) -> str:
        return f"{self.folder}/{self.name}-{container.name}"

    def document(self) -> Document:
        """As kubelet tells of it."""
        sidecars = [each for each in self.containers if each.is_sidecar]
        others = [each for each in self.containers if not each.is_sidecar]
        labels = {"koordinator.sh/qosClass": self.qos} if self.qos else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "uid": self.uid,
                "labels": labels,
                "annotations": dict(self.annotations),
            },
            "spec": {
                "nodeName": "node-1",
                "containers": [self._spec(each) for each in others],
                "initContainers": [{**self._spec(each), "restartPolicy": "Always"} for each in sidecars],
            },
            "status": {
                "phase": "Running",
                "qosClass": self.kubernetes_qos,
                "containerStatuses": [self._status(each) for each in others],
                "initContainerStatuses": [self._status(each) for each in sidecars],
            },
        }

    def _spec(self, container: ContainerCase) -> Document:
        amounts = container.amounts
        cpu, memory, unit = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "")
        if not self.is_batch:
            cpu, memory, unit = "cpu", "memory", "m"
        resources: Document = {"requests": {}, "limits": {}}
        for kind, cores, size in (
            ("requests", amounts.cpu_request, amounts.memory_request),
            ("limits", amounts.cpu_limit, amounts.memory_limit),
        ):
            if cores is not None:
                resources[kind][cpu] = f"{cores}{unit}"
            if size is not None:
                resources[kind][memory] = str(size)
        return {"name": container.name, "image": "i", "resources": resources}

    def _status(self, container: ContainerCase) -> Document:
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        identifier = f"containerd://{self.name}-{container.name}"
        return {"name": container.name, "containerID": identifier, "state": state, "ready": True}


def pods() -> list[PodCase]:
    own_cpus = "scheduling.koordinator.sh/resource-status"
    whole = Amounts(1000, 1000, GIB, GIB)
    return [
        PodCase("ls", "LS", "Burstable", (ContainerCase("main", Amounts(500, 1000, 512 * MIB, GIB)),)),
        PodCase(
            "open",
            "LS",
            "Burstable",
            (
                ContainerCase("limited", Amounts(250, 500, 100 * MIB, 300 * MIB)),
                ContainerCase("unlimited", Amounts(cpu_request=100, memory_request=64 * MIB + 1)),
            ),
        ),
        PodCase("lsr", "LSR", "Guaranteed", (ContainerCase("main", whole),), {own_cpus: json.dumps({"cpuset": "3"})}),
        PodCase("lse", "LSE", "Guaranteed", (ContainerCase("main", whole),), {own_cpus: json.dumps({"cpuset": "2"})}),
        PodCase("plain", "", "Burstable", (ContainerCase("main", Amounts(300, 700, 200 * MIB, 400 * MIB)),)),
        PodCase("guaranteed", "", "Guaranteed", (ContainerCase("main", Amounts(250, 250, 128 * MIB, 128 * MIB)),)),
        PodCase("loose", "", "BestEffort", (ContainerCase("main", Amounts()),)),
        PodCase("system", "SYSTEM", "Burstable", (ContainerCase("main", Amounts(100, 300, 64 * MIB, 128 * MIB)),)),
        PodCase("be", "BE", "BestEffort", (ContainerCase("main", Amounts(500, 500, GIB, GIB)),)),
        PodCase(
            "be-two",
            "BE",
            "BestEffort",
            (
                ContainerCase("one", Amounts(1500, 2000, 512 * MIB, 700 * MIB)),
                ContainerCase("two", Amounts(3, 5, 128 * MIB + 5, 256 * MIB)),
                ContainerCase("sidecar", Amounts(200, 300, 64 * MIB, 64 * MIB), is_sidecar=True),
            ),
        ),
        PodCase(
            "be-open",
            "BE",
            "BestEffort",
            (
                ContainerCase("limited", Amounts(400, 600, 256 * MIB, 256 * MIB)),
                ContainerCase("unlimited", Amounts(cpu_request=100, memory_request=32 * MIB)),
            ),
        ),
    ]


LATE_POD = PodCase("late", "BE", "BestEffort", (ContainerCase("main", Amounts(800, 1200, 300 * MIB, 600 * MIB)),))
"""A pod that comes when the agent runs already."""

FILES = {
    "cpu.weight": "100",
    "cpu.max": NO_QUOTA,
    "cpu.max.burst": "0",
    "cpu.idle": "0",
    "memory.max": "max",
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.oom.group": "0",
    "io.max": "",
}
"""What the kernel shows in a new cgroup."""
DISK, DISK_NUMBER = "ubda", "98:0"
"""Of the virtual machine."""


def folders(pods_: list[PodCase]) -> Iterator[str]:
    """Parents first."""
    yield from ("kubepods", "kubepods/burstable", "kubepods/besteffort")
    for pod in pods_:
        yield pod.folder
        yield from map(pod.container_folder, pod.containers)


def kubelet_writes(pod: PodCase) -> Iterator[tuple[str, str]]:
    """Path and text of what kubelet gives a pod and its containers: limits of Kubernetes' own resources."""
    native = [] if pod.is_batch else [(each, each.amounts) for each in pod.containers]
    limits = [amounts.cpu_limit for _, amounts in native]
    if limits and all(limits):
        yield f"{pod.folder}/cpu.max", f"{sum(limit or 0 for limit in limits) * 100} 100000"
    for container, amounts in native:
        folder = pod.container_folder(container)
        if amounts.cpu_limit:
            yield f"{folder}/cpu.max", f"{amounts.cpu_limit * 100} 100000"
        if amounts.memory_limit:
            yield f"{folder}/memory.max", str(amounts.memory_limit)
    if pod.kubernetes_qos == "BestEffort":
        # The fewest shares.
        yield f"{pod.folder}/cpu.weight", "1"
        for each in pod.containers:
            yield f"{pod.container_folder(each)}/cpu.weight", "1"
