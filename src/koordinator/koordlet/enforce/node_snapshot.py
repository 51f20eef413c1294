"""Takes the snapshots that strategies decide on: out of the states, the metric cache and a few files of the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from koordinator.api.qos import KubernetesQoS
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.policy import EnforcedPolicy
from koordinator.koordlet.enforce.strategies.snapshot import (
    STATIC,
    BestEffortCgroups,
    BestEffortFolders,
    ContainerUsage,
    PodUsage,
    Snapshot,
    reserved_cpus,
)
from koordinator.koordlet.observe.recent_usage import Present, RecentUsage
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth, KubeletBandwidths
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.node.block_devices import BlockDevices
from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.errors import FileError
from koordinator.node.kernel_files import CPU_QUOTA, Target


@dataclass(slots=True)
class SnapshotSources:
    """Where the parts of a snapshot are."""

    states: StatesInformer
    policy: EnforcedPolicy
    usage: RecentUsage
    layout: CgroupLayout
    executor: Executor
    bandwidths: KubeletBandwidths
    topology: Callable[[], CPUTopology | None]
    block_devices: Callable[[], BlockDevices | None] = lambda: None
    normalization_ratio: Callable[[], float | None] = lambda: None
    """How many plain cores a core is worth."""
    reader: CgroupReader = field(init=False, repr=False)
    _made_of: tuple[Sequence[NodePod], int] = field(init=False, repr=False, default=((), 0))
    _pods: tuple[PodUsage, ...] = field(init=False, repr=False, default=())
    _folders: BestEffortFolders | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.reader = CgroupReader(self.layout, os.sysconf("SC_PAGESIZE"))

    @property
    def pods(self) -> tuple[PodUsage, ...]:
        """Those that have not finished, and what they use; made once for all strategies between two rounds of
        measuring."""
        listed, rounds = self.states.pods, self.usage.table.rounds
        if self._made_of[0] is not listed or self._made_of[1] != rounds or self.usage.is_due:
            self._made_of, present = (listed, rounds), self.usage.present()
            self._pods = tuple([self._usage_of(pod, present) for pod in listed if not pod.has_finished])
        return self._pods

    def _usage_of(self, pod: NodePod, present: Present) -> PodUsage:
        row = self.usage.table.pods.get(pod.uid)
        rows = row.containers if row is not None else {}
        containers = {
            each.id: ContainerUsage(present.cpu(inner := rows.get(each.id)), present.throttled(inner))
            for each in pod.containers
        }
        return PodUsage(pod, present.cpu(row), present.memory(row), containers)

    def cpus_of(self, folder: str) -> frozenset[int] | None:
        """That the cgroup may use; None where the kernel shows none: it has no cpuset, or the controller is off
        there."""
        try:
            return self.reader.cpuset(folder) or None
        except FileError:
            return None

    def bandwidths_of(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Bandwidth]]:
        """What the kubelet gives each folder, by the UID of its pod."""
        pods = [usage.pod for usage in snapshot.pods]
        found = self.bandwidths.of_each(pods)
        return {pod.uid: bandwidths for pod, bandwidths in zip(pods, found, strict=True)}

    def best_effort(self) -> BestEffortCgroups | None:
        """Their folders are the same object as the last time while nothing has changed."""
        found = self._best_effort_folders()
        if found != self._folders:
            self._folders = found
        if self._folders is None:
            return None
        quota = self.executor.present(Target(CPU_QUOTA, self._folders.root))
        return BestEffortCgroups(
            self._folders,
            quota=quota if isinstance(quota, int) else None,
            cpuset=self.cpus_of(self._folders.root),
            available=self.cpus_of(self.layout.kubepods),
        )

    def _best_effort_folders(self) -> BestEffortFolders | None:
        """Those that exist, whichever program created them: a pod may have its cgroup before the kubelet lists it."""
        layout, files = self.layout, set[str]()
        root = layout.qos(KubernetesQoS.BEST_EFFORT)
        folder = layout.folder("cpu", root)
        if not os.path.isdir(folder):
            return None
        pods = tuple([f"{root}/{name}" for name in _subfolders(folder, files)])
        containers = tuple([f"{pod}/{name}" for pod in pods for name in _subfolders(layout.folder("cpu", pod), files)])
        is_v1 = layout.version is CgroupVersion.V1
        inner = [below for each in containers for below in self.reader.folders_below(each, "cpuset")] if is_v1 else []
        return BestEffortFolders(root, pods, containers, tuple(inner))


def take_snapshot(sources: SnapshotSources, *, with_best_effort: bool = False) -> Snapshot:
    """Now. What cannot be read is None, and so are the folders of BestEffort pods unless they are needed: to go over
    them takes longer than all the rest."""
    policy, present, table = sources.policy.spec, sources.usage.present(), sources.usage.table
    applications = policy.host_applications if policy is not None else []
    cores = {each.name: present.cpu(table.host_applications.get(each.name)) for each in applications}
    node = table.node if table.node.at >= present.since else None
    states = sources.states
    reported = states.topology
    return Snapshot(
        node=states.node,
        policy=policy,
        pods=sources.pods,
        node_cpu=node.cpu if node is not None else None,
        node_memory=float(node.memory.usage) if node is not None else None,
        huge_pages=float(node.memory.huge_pages) if node is not None else 0.0,
        host_applications={name: value for name, value in cores.items() if value is not None},
        topology=sources.topology() if reported is not None or not _is_kubelet_static(states) else None,
        best_effort=sources.best_effort() if with_best_effort else None,
        cpu_manager_policy=reported.kubelet.policy if reported is not None else "",
        kept_cpus=reported.kept_cpus if reported is not None else reserved_cpus(states.node),
        kubelet_cpus=reported.kubelet_cpus if reported is not None else frozenset(),
    )


def _is_kubelet_static(states: StatesInformer) -> bool:
    """Whether there are CPUs that nobody may be put on before it is known which ones."""
    configuration = states.kubelet_configuration
    return configuration is not None and configuration.document.get("cpuManagerPolicy") == STATIC


def tasks_of(reader: CgroupReader, folders: Iterable[str]) -> frozenset[int]:
    """The threads of containers, of which each may have ended since it was listed."""
    found: set[int] = set()
    for folder in folders:
        with suppress(FileError):
            found.update(reader.tasks(folder))
    return frozenset(found)


def _subfolders(folder: str, files: set[str]) -> list[str]:
    """``files`` are the names of files that were met: all cgroups have the same ones, some sixty."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if (name := entry.name) not in files:
                    (found.append if entry.is_dir(follow_symlinks=False) else files.add)(name)
    except OSError:
        # It went between two listings, as pods do.
        return []
    return sorted(found)
