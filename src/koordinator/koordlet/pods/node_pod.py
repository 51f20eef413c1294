"""A pod as the agent sees it: the kubelet's object, what follows from it, and where the kernel has its cgroups.

Nothing else works out any of these, and each is worked out once: the object is made anew when the pod has changed. The
folders are those that are there, as far as they were found: runtimes name them differently, and some put what runs in a
container one level deeper. Where nothing was found yet, they are those that the kubelet and the runtime are expected to
make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, TypeVar, TypeVarTuple

from koordinator.api.pod import ContainerStatus, Pod, is_finished, is_static, lasting_containers
from koordinator.api.priority import PriorityClass, priority_class_with_default, priority_value_with_default
from koordinator.api.qos import KubernetesQoS, QoSClass, kubernetes_qos, qos_class_raw, qos_class_with_default
from koordinator.api.resource_names import CPU
from koordinator.koordlet.pods.cpu_allocation import NOTHING as NO_CPUS
from koordinator.koordlet.pods.cpu_allocation import CPUAllocation, cpu_allocation
from koordinator.model.pod_grants import NOTHING, PodGrant, pod_grant
from koordinator.model.pod_requests import Amounts, pod_limits, pod_requests
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, ContainerIDError, parse_container_id

T = TypeVar("T")
Given = TypeVarTuple("Given")
Look = Callable[[str], Sequence[str] | None]
"""The names of the folders in a relative folder; None if it is not there."""

_MONITOR: Final = "conmon"
"""CRI-O has a monitor beside each container, in a cgroup of its own whose name has the container's ID in it."""
_INNER: Final = "container"
"""The folder that crun makes in the scope of a container, for its processes and with its limits a second time."""


class Picture:
    """Something that never changes, with what others have worked out of it."""

    def derived(self, make: Callable[[Self, *Given], T], *given: *Given) -> T:
        """``make(self, *given)``, worked out anew only when ``given`` is not what it was the last time: for what
        follows from this and from things that seldom change, such as the policy. ``make`` is a function of a module: of
        each, one result is kept, and ends with this object."""
        known = self._derived.get(make)
        if known is not None and known[0] == given:
            return known[1]  # type: ignore[no-any-return]
        result = make(self, *given)
        self._derived[make] = given, result
        return result

    @cached_property
    def _derived(self) -> dict[Callable[..., Any], tuple[tuple[Any, ...], Any]]:
        """By function: what it was given last, and its result."""
        return {}


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container that the runtime has made. ``id`` is as the pod's status has it: ``containerd://4b3c…``."""

    name: str
    id: str
    cgroup: str
    has_ended: bool = False
    inner: str = ""
    """The folder below in which the runtime keeps the limits, too; empty where there is none."""


@dataclass(frozen=True)
class NodePod(Picture):
    """A pod of this node. Folders are relative."""

    pod: Pod
    uid: str
    cgroup: str
    containers: tuple[PodContainer, ...]
    """Those of ``spec.containers`` that the runtime has made."""
    has_finished: bool = False
    """Succeeded or Failed: its cgroups are gone, or about to go."""
    init_containers: tuple[PodContainer, ...] = ()
    """Those that the runtime has made, sidecars included."""
    ephemeral_containers: tuple[PodContainer, ...] = ()
    grant: PodGrant = NOTHING
    """What the kubelet gives its cgroups."""
    allocation: CPUAllocation = NO_CPUS
    """What the scheduler has given to it alone."""
    sandbox: str = ""
    """The folder of its sandbox; empty where it was not found."""
    is_found: bool = False
    """Whether the kernel has a folder for it and for each container that runs."""

    @cached_property
    def running(self) -> tuple[PodContainer, ...]:
        """All that have not ended, of whatever kind: what is enforced for a pod holds for each of them."""
        made = (*self.containers, *self.init_containers, *self.ephemeral_containers)
        return tuple(each for each in made if not each.has_ended)

    @property
    def is_running(self) -> bool:
        """As the kubelet says."""
        return self.pod.status.phase == "Running"

    @cached_property
    def qos(self) -> QoSClass:
        """As its label says; NONE if it has none."""
        return qos_class_raw(self.pod)

    @cached_property
    def qos_with_default(self) -> QoSClass:
        """As its label says, else what its Kubernetes class stands for."""
        return qos_class_with_default(self.pod)

    @cached_property
    def kubernetes_qos(self) -> str:
        return kubernetes_qos(self.pod)

    @cached_property
    def is_best_effort(self) -> bool:
        """Whether CPU suppress counts it among what it holds down: by its label, or by its Kubernetes class."""
        return self.qos is QoSClass.BE or self.kubernetes_qos == KubernetesQoS.BEST_EFFORT

    @cached_property
    def priority_class(self) -> PriorityClass:
        """Its own, else the one that goes with its quality of service."""
        return priority_class_with_default(self.pod)

    @cached_property
    def priority(self) -> int:
        """Its own, else the default of its class."""
        return priority_value_with_default(self.pod)

    @cached_property
    def is_static(self) -> bool:
        """Whether the kubelet has it from elsewhere than the API server."""
        return is_static(self.pod)

    @property
    def is_terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        """Whether it runs or is about to, as the kubelet says."""
        return self.pod.status.phase in ("Pending", "Running")

    @cached_property
    def requests(self) -> Amounts:
        """Of the whole pod, as ``pod_requests`` has them: exact."""
        return pod_requests(self.pod)

    @cached_property
    def limits(self) -> Amounts:
        """Of the whole pod, as ``pod_limits`` has them: exact."""
        return pod_limits(self.pod)

    @cached_property
    def containers_request(self) -> Mapping[str, int]:
        """What containers and sidecars request by resource: milli-CPU, else whole units. A negative amount counts as
        none."""
        found: dict[str, int] = {}
        for container in lasting_containers(self.pod):
            for name, amount in container.resources.requests.items():
                unit = 10**6 if name == CPU else 10**9
                found[name] = found.get(name, 0) + max(-(-amount.nanos // unit), 0)
        return found


def inner_folders(pods: Iterable[NodePod]) -> dict[str, str]:
    """By the folder of a container: the one below in which the runtime keeps its limits, too."""
    return {each.cgroup: each.inner for pod in pods for each in pod.running if each.inner}


def node_pods(pods: Iterable[Pod], layout: CgroupLayout, look: Look = lambda _: None) -> tuple[NodePod, ...]:
    """Kubelet's pods, each with the folders that ``look`` shows."""
    return tuple(node_pod(pod, layout, look) for pod in pods)


def node_pod(pod: Pod, layout: CgroupLayout, look: Look, sandbox: str = "") -> NodePod:
    """A container without an ID has not been made yet; one with an ID of no runtime is left out. ``sandbox`` is what
    was found to be its folder before."""
    cgroup = layout.pod(pod.metadata.uid, kubernetes_qos(pod))
    there = look(cgroup)
    finder = _Folders(layout, cgroup, there or (), look)
    status = pod.status
    containers = tuple(finder.containers(status.container_statuses))
    init = tuple(finder.containers(status.init_container_statuses))
    ephemeral = tuple(finder.containers(status.ephemeral_container_statuses))
    has_finished = is_finished(pod)
    return NodePod(
        pod,
        pod.metadata.uid,
        cgroup,
        containers,
        has_finished,
        init,
        ephemeral,
        pod_grant(pod),
        cpu_allocation(pod.metadata.annotations),
        finder.sandbox(sandbox),
        has_finished or (there is not None and finder.has_found_all),
    )


class _Folders:
    """Those of one pod, by the IDs in their names."""

    def __init__(self, layout: CgroupLayout, cgroup: str, names: Sequence[str], look: Look) -> None:
        self._layout = layout
        self._cgroup = cgroup
        self._names = [name for name in names if _MONITOR not in name]
        self._look = look
        self._identifiers: list[str] = []
        self.has_found_all = True
        """Whether each container that runs has a folder."""

    def containers(self, statuses: Iterable[ContainerStatus]) -> Iterator[PodContainer]:
        for status in statuses:
            if not status.container_id:
                continue
            try:
                container_id = parse_container_id(status.container_id)
            except ContainerIDError:
                continue
            self._identifiers.append(container_id.id)
            name = next((name for name in self._names if container_id.id in name), "")
            has_ended = status.state.terminated is not None
            self.has_found_all &= bool(name) or has_ended
            folder = f"{self._cgroup}/{name or self._layout.container_name(container_id)}"
            yield PodContainer(status.name, status.container_id, folder, has_ended, self._inner(folder, name))

    def _inner(self, folder: str, name: str) -> str:
        # It is there with the systemd driver alone: elsewhere, what has that name is a container's own affair.
        if not name or self._layout.driver is not CgroupDriver.SYSTEMD:
            return ""
        return f"{folder}/{_INNER}" if _INNER in (self._look(folder) or ()) else ""

    def sandbox(self, before: str) -> str:
        """The one folder that is none of the containers'; of several, which restarts may leave, that which was it
        ``before``. Empty if it is not known."""
        if not self._identifiers:
            return ""
        left = [
            f"{self._cgroup}/{name}"
            for name in self._names
            if not any(identifier in name for identifier in self._identifiers)
        ]
        return left[0] if len(left) == 1 else before if before in left else ""
