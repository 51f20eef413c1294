"""core/v1 Pod with what only the kubelet of a simulated node reads, of all programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import WireStruct
from koordinator.api.pod import Container, ContainerState, ContainerStatus, Pod, PodSpec, PodStatus
from koordinator.api.timestamps import Time


class ResizePolicy(WireStruct):
    resource_name: str = ""
    restart_policy: str = ""


class SimulatedContainer(Container):
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    resize_policy: Sequence[ResizePolicy] = ()


class SimulatedPodSpec(PodSpec):
    containers: Sequence[SimulatedContainer] = ()
    init_containers: Sequence[SimulatedContainer] = ()
    ephemeral_containers: Sequence[Container] = ()


class ContainerStateRunning(WireStruct):
    started_at: Time | None = None


class SimulatedContainerState(ContainerState):
    running: ContainerStateRunning | None = None


class SimulatedContainerStatus(ContainerStatus):
    state: SimulatedContainerState = SimulatedContainerState()


class SimulatedPodStatus(PodStatus):
    container_statuses: Sequence[SimulatedContainerStatus] = ()
    init_container_statuses: Sequence[SimulatedContainerStatus] = ()
    ephemeral_container_statuses: Sequence[SimulatedContainerStatus] = ()


class SimulatedPod(Pod):
    spec: SimulatedPodSpec = SimulatedPodSpec()
    status: SimulatedPodStatus = SimulatedPodStatus()


SIMULATED_PODS: Final = Kind("", "v1", "pods", "Pod", SimulatedPod)
