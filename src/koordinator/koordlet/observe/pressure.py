"""Pressure stall information of pods and containers: for what share of the time their tasks waited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import FileError, OddRowError
from koordinator.node.pressure import RESOURCES, Pressure

_NAMES: Final = {"cpu": "cpu", "memory": "mem", "io": "io"}
"""The original's names of the resources, by the kernel's."""
_LABELS: Final = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")


@dataclass(frozen=True, slots=True)
class PodPressure:
    """By the kernel's names of the resources; of a pod itself where ``container`` is None."""

    pod: NodePod
    container: PodContainer | None
    pressures: Mapping[str, Pressure]

    def rows(self) -> Rows:
        """One for each average that the kernel gives."""
        metadata = self.pod.pod.metadata
        owner = (metadata.uid, metadata.name, metadata.namespace)
        if self.container is not None:
            owner = (self.container.id, self.container.name, *owner)  # type: ignore[assignment]
        for resource, pressure in self.pressures.items():
            is_full_known = "true" if pressure.full is not None else "false"
            for degree, stall in (("some", pressure.some), ("full", pressure.full)):
                if stall is None:
                    continue
                for precision, value in (("avg10", stall.avg10), ("avg60", stall.avg60), ("avg300", stall.avg300)):
                    yield (*owner, _NAMES[resource], precision, degree, is_full_known), value


@dataclass(slots=True)
class PressureRound:
    """What could be read; ``errors`` by file says of what could not why."""

    pressures: list[PodPressure] = field(default_factory=list)
    errors: dict[str, FileError] = field(default_factory=dict)
    odd_rows: list[OddRowError] = field(default_factory=list)

    def rows(self, *, of_containers: bool) -> Rows:
        for pressure in self.pressures:
            if (pressure.container is not None) is of_containers:
                yield from pressure.rows()


class PressureCollector:
    """Reads the enabled sources once; ``latest`` is what the metrics show."""

    def __init__(self, reader: CgroupReader, metrics: AgentMetrics) -> None:
        self._reader = reader
        self.latest = PressureRound()
        owner = ("pod_uid", "pod_name", "pod_namespace")
        metrics.latest(
            "container_psi",
            "Container psi collected by koordlet",
            ("container_id", "container_name", *owner, *_LABELS),
            lambda: self.latest.rows(of_containers=True),
            external=True,
        )
        metrics.latest(
            "pod_psi",
            "Pod psi collected by koordlet",
            (*owner, *_LABELS),
            lambda: self.latest.rows(of_containers=False),
            external=True,
        )

    def collect(self, pods: Iterable[NodePod]) -> PressureRound:
        """One round. A pod or container of which one resource cannot be read is left out."""
        result = PressureRound()
        for pod in pods:
            owners: Sequence[PodContainer | None] = (None, *pod.containers)
            for container in owners:
                folder = pod.cgroup if container is None else container.cgroup
                try:
                    pressures = {
                        resource: self._reader.pressure(folder, resource, result.odd_rows.append)
                        for resource in RESOURCES
                    }
                except FileError as error:
                    result.errors[error.path] = error
                    continue
                result.pressures.append(PodPressure(pod, container, pressures))
        self.latest = result
        return result
