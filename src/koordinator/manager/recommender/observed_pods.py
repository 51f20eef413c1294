"""What the recommender reads of pods: the resources of their containers, which of these were killed for memory, and how
a resize in place goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import FINISHED_PHASES, ResourceList, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.api.recommendation import APPLIED
from koordinator.api.resource_names import CPU, EXTENDED_CPUS, EXTENDED_MEMORIES, MEMORY
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet

_OOM_KILLED: Final = "OOMKilled"
_ALWAYS: Final = "Always"
_RESTARTED: Final = "RestartContainer"
_KEPT_ANNOTATIONS: Final = (APPLIED, CONFIG_MIRROR)
_MILLI: Final = 1000
_NANO: Final = 10**9
_BY_NAMESPACE: Final = "namespace"


class _ResizePolicy(WireStruct):
    resource_name: str = ""
    restart_policy: str = ""


class ObservedContainer(WireStruct):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: Sequence[_ResizePolicy] = ()
    restart_policy: str | None = None

    def restarts_for(self, resources: Iterable[str]) -> bool:
        """Whether the container is restarted when any of these is resized."""
        return any(each.restart_policy == _RESTARTED and each.resource_name in resources for each in self.resize_policy)

    @property
    def cpu_request(self) -> float:
        """In cores, of the pod's own tier: mid, batch and free CPU are counted in thousandths. 0 without a request."""
        requests = self.resources.requests
        if CPU in requests:
            return requests[CPU].nanos / _NANO
        milli = _first(requests, EXTENDED_CPUS)
        return milli.nanos / _NANO / _MILLI if milli else 0.0

    @property
    def memory_request(self) -> float:
        """In bytes; 0 without a request."""
        requests = self.resources.requests
        amount = _first(requests, (MEMORY, *EXTENDED_MEMORIES))
        return amount.nanos / _NANO if amount else 0.0


def _first(requests: ResourceList, names: Sequence[str]) -> Quantity | None:
    """The one that is not zero: a pod requests resources of one class."""
    return next(filter(None, map(requests.get, names)), None)


class _Terminated(WireStruct):
    reason: str = ""
    finished_at: datetime | None = None


class _State(WireStruct):
    terminated: _Terminated | None = None


class _ContainerStatus(WireStruct):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()
    last_state: _State = _State()


class _Condition(WireStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Spec(WireStruct):
    node_name: str = ""
    resources: ResourceRequirements | None = None
    containers: Sequence[ObservedContainer] = ()
    init_containers: Sequence[ObservedContainer] = ()


class _Status(WireStruct):
    phase: str = ""
    conditions: Sequence[_Condition] = ()
    container_statuses: Sequence[_ContainerStatus] = ()
    init_container_statuses: Sequence[_ContainerStatus] = ()


class ObservedPod(Object):
    """The tenth of a pod that the recommender reads."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def containers(self) -> Sequence[ObservedContainer]:
        """Those that run as long as the pod does: the containers, and the init containers that are sidecars."""
        sidecars = [each for each in self.spec.init_containers if each.restart_policy == _ALWAYS]
        return (*self.spec.containers, *sidecars)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in FINISHED_PHASES

    @property
    def restarts(self) -> dict[str, int]:
        """How often its containers have been restarted."""
        statuses = (*self.status.container_statuses, *self.status.init_container_statuses)
        return {each.name: each.restart_count for each in statuses}

    def condition(self, kind: str) -> _Condition | None:
        """The condition of that type if it is true."""
        return next((each for each in self.status.conditions if each.type == kind and each.status == "True"), None)


OBSERVED_PODS: Final = Kind(PODS.group, PODS.version, PODS.plural, PODS.name, ObservedPod)


class Kill(NamedTuple):
    """The kernel killed a container for memory at a time; None if the kubelet reported none."""

    container: str
    at: datetime | None


def new_kills(old: ObservedPod, new: ObservedPod) -> set[Kill]:
    """The kills that ``new`` reports and ``old`` does not."""
    return set(_kills(new)) - set(_kills(old))


def _kills(pod: ObservedPod) -> Iterator[Kill]:
    """A kill is first in the container's state and then, once the container is restarted, in its last state."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        for state in (status.state, status.last_state):
            if state.terminated is not None and state.terminated.reason == _OOM_KILLED:
                yield Kill(status.name, state.terminated.finished_at)


def observed_pods(informers: InformerSet, namespace: str) -> Informer[ObservedPod]:
    """The informer of all pods that have a node; empty ``namespace``: those of all namespaces."""
    return informers.informer(
        OBSERVED_PODS,
        namespace=namespace,
        field_selector="spec.nodeName!=",
        indexes={_BY_NAMESPACE: _namespace},
        transform=_trimmed,
    )


def pods_in(informer: Informer[ObservedPod], namespace: str) -> Sequence[ObservedPod]:
    return informer.by_index(_BY_NAMESPACE, namespace)


def _trimmed(pod: ObservedPod) -> ObservedPod:
    """Annotations often are the largest part of a pod, and few of them are read here."""
    found = pod.metadata.annotations
    kept = {name: found[name] for name in _KEPT_ANNOTATIONS if name in found}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))


def _namespace(pod: ObservedPod) -> tuple[str, ...]:
    return (pod.metadata.namespace,)
