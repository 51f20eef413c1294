"""A pod as the agent sees it: kubelet's object, and where its cgroups are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from koordinator.api.pod import ContainerStatus, Pod, is_finished
from koordinator.api.qos import kubernetes_qos
from koordinator.koordlet.metric_cache.kinds import MetricKind, Series
from koordinator.model.pod_grants import NOTHING, PodGrant, pod_grant
from koordinator.node.cgroup_layout import CgroupLayout, ContainerIDError, parse_container_id


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container that the runtime has made. ``id`` is as the pod's status has it: ``containerd://4b3c…``."""

    name: str
    id: str
    cgroup: str
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod of this node, as the kubelet last listed it, with the relative folders of its cgroups."""

    pod: Pod
    uid: str
    cgroup: str
    containers: tuple[PodContainer, ...]
    has_finished: bool = False
    """Succeeded or Failed: its cgroups are gone, or about to go."""
    init_containers: tuple[PodContainer, ...] = ()
    """Those that the runtime has made, sidecars included."""
    grant: PodGrant = NOTHING
    """What the kubelet gives its cgroups."""
    _series: dict[tuple[MetricKind, str], Series] = field(default_factory=dict, compare=False, repr=False)

    def series(self, kind: MetricKind) -> Series:
        """The pod's series of a kind with the label pod_uid."""
        return self._cached(kind, "pod_uid", self.uid)

    def container_series(self, kind: MetricKind, container: PodContainer) -> Series:
        """A container's series of a kind with the label container_id."""
        return self._cached(kind, "container_id", container.id)

    def _cached(self, kind: MetricKind, label: str, value: str) -> Series:
        # They are needed every second, and making one costs more than finding it.
        series = self._series.get((kind, value))
        if series is None:
            series = self._series[kind, value] = kind.series(**{label: value})
        return series


def node_pods(pods: Iterable[Pod], layout: CgroupLayout) -> tuple[NodePod, ...]:
    """Kubelet's pods. A container without an ID has not been made yet; one with an ID of no runtime is left out."""
    return tuple(_node_pod(pod, layout) for pod in pods)


def _node_pod(pod: Pod, layout: CgroupLayout) -> NodePod:
    cgroup = layout.pod(pod.metadata.uid, kubernetes_qos(pod))
    return NodePod(
        pod,
        pod.metadata.uid,
        cgroup,
        tuple(_containers(pod.status.container_statuses, cgroup, layout)),
        is_finished(pod),
        tuple(_containers(pod.status.init_container_statuses, cgroup, layout)),
        pod_grant(pod),
    )


def _containers(statuses: Iterable[ContainerStatus], cgroup: str, layout: CgroupLayout) -> Iterator[PodContainer]:
    for status in statuses:
        if not status.container_id:
            continue
        try:
            container_id = parse_container_id(status.container_id)
        except ContainerIDError:
            continue
        folder = layout.container(cgroup, container_id)
        yield PodContainer(status.name, status.container_id, folder, status.state.terminated is not None)
