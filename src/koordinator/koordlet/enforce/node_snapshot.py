"""Takes the snapshots that strategies decide on: out of the states, the metric cache and a few files of the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from koordinator.api.node import Node
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import KubernetesQoS
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.policy import EnforcedPolicy
from koordinator.koordlet.enforce.strategies import block_io, memory_qos, returned_cpus
from koordinator.koordlet.enforce.strategies.block_io import Claim, Disks
from koordinator.koordlet.enforce.strategies.class_resctrl import GROUP_NAMES, Resctrl
from koordinator.koordlet.enforce.strategies.cpu_burst import NOT_SHARING
from koordinator.koordlet.enforce.strategies.eviction import BestEffortCPU
from koordinator.koordlet.enforce.strategies.returned_cpus import HotPlug
from koordinator.koordlet.enforce.strategies.snapshot import (
    STATIC,
    BestEffortCgroups,
    BestEffortFolders,
    ContainerUsage,
    PodUsage,
    Snapshot,
    reserved_cpus,
)
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.recent_usage import Present, RecentUsage
from koordinator.koordlet.pods.kubelet_bandwidths import KubeletBandwidths
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.node import resctrl
from koordinator.node.block_devices import BlockDevices
from koordinator.node.cgroup_layout import CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.errors import FileError
from koordinator.node.host import Host
from koordinator.node.kernel_files import CPU_QUOTA, Target

_LONGEST_BURST_WINDOW = 10.0
"""Seconds."""


class _PodUsages:
    """What pods use, made once for all strategies between two rounds of measuring."""

    def __init__(self, usage: RecentUsage) -> None:
        self._usage = usage
        self._of: tuple[Sequence[NodePod], int] = (), 0
        self._made: tuple[PodUsage, ...] = ()

    def of(self, pods: Sequence[NodePod]) -> tuple[PodUsage, ...]:
        """Of those that have not finished."""
        rounds = self._usage.table.rounds
        if self._of[0] is not pods or self._of[1] != rounds or self._usage.is_due:
            self._of = pods, rounds
            present = self._usage.present()
            self._made = tuple([self._pod(pod, present) for pod in pods if not pod.has_finished])
        return self._made

    def _pod(self, pod: NodePod, present: Present) -> PodUsage:
        row = self._usage.table.pods.get(pod.uid)
        rows = row.containers if row is not None else {}
        containers = {
            each.id: ContainerUsage(present.cpu(inner := rows.get(each.id)), present.throttled(inner))
            for each in pod.containers
        }
        return PodUsage(pod, present.cpu(row), present.memory(row), containers)


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
    _pod_usages: _PodUsages = field(init=False, repr=False)
    _folders: BestEffortFolders | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._pod_usages = _PodUsages(self.usage)

    @property
    def pods(self) -> tuple[PodUsage, ...]:
        """Those that have not finished, and what they use."""
        return self._pod_usages.of(self.states.pods)

    def best_effort(self) -> BestEffortCgroups | None:
        """Their folders are the same object as the last time while nothing has changed."""
        found = _best_effort_folders(self.layout)
        if found != self._folders:
            self._folders = found
        return None if self._folders is None else _best_effort(self.layout, self.executor, self._folders)


def take_snapshot(sources: SnapshotSources, *, with_best_effort: bool = False) -> Snapshot:
    """Now. What cannot be read is None, and so are the folders of BestEffort pods unless they are needed: to go over
    them takes longer than all the rest."""
    policy, present, table = sources.policy.spec, sources.usage.present(), sources.usage.table
    applications = policy.host_applications if policy is not None else []
    cores = {each.name: present.cpu(table.host_applications.get(each.name)) for each in applications}
    node = table.node if table.node.at >= present.since else None
    reported = sources.states.topology
    return Snapshot(
        node=sources.states.node,
        policy=policy,
        pods=sources.pods,
        node_cpu=node.cpu if node is not None else None,
        node_memory=float(node.memory.usage) if node is not None else None,
        huge_pages=float(node.memory.huge_pages) if node is not None else 0.0,
        host_applications={name: value for name, value in cores.items() if value is not None},
        topology=sources.topology() if reported is not None or not _is_kubelet_static(sources) else None,
        best_effort=sources.best_effort() if with_best_effort else None,
        cpu_manager_policy=reported.kubelet.policy if reported is not None else "",
        kept_cpus=reported.kept_cpus if reported is not None else _reserved(sources.states.node),
        kubelet_cpus=reported.kubelet_cpus if reported is not None else frozenset(),
    )


def _is_kubelet_static(sources: SnapshotSources) -> bool:
    """Whether there are CPUs that nobody may be put on before it is known which ones."""
    configuration = sources.states.kubelet_configuration
    return configuration is not None and configuration.document.get("cpuManagerPolicy") == STATIC


def _reserved(node: Node | None) -> frozenset[int]:
    """An amount of CPU is a set of CPUs only by the topology of the node."""
    return reserved_cpus(node) if node is not None else frozenset()


def _best_effort_folders(layout: CgroupLayout) -> BestEffortFolders | None:
    """The folders that exist, whichever program created them: a pod may have its cgroup before the kubelet lists it."""
    root = layout.qos(KubernetesQoS.BEST_EFFORT)
    folder = layout.folder("cpu", root)
    if not os.path.isdir(folder):
        return None
    files: set[str] = set()
    pods = tuple([f"{root}/{name}" for name in _subfolders(folder, files)])
    containers = tuple([f"{pod}/{name}" for pod in pods for name in _subfolders(layout.folder("cpu", pod), files)])
    reader, is_v1 = CgroupReader(layout, os.sysconf("SC_PAGESIZE")), layout.version is CgroupVersion.V1
    inner = [below for each in containers for below in reader.folders_below(each, "cpuset")] if is_v1 else []
    return BestEffortFolders(root, pods, containers, tuple(inner))


def _best_effort(layout: CgroupLayout, executor: Executor, folders: BestEffortFolders) -> BestEffortCgroups:
    quota, reader = executor.present(Target(CPU_QUOTA, folders.root)), CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    return BestEffortCgroups(
        folders,
        quota=quota if isinstance(quota, int) else None,
        cpuset=_cpus(reader, folders.root),
        available=_cpus(reader, layout.kubepods),
    )


def read_hot_plug(layout: CgroupLayout, before: HotPlug, now: float) -> HotPlug:
    """Which CPUs of all pods have gone offline or returned; as before where the kernel does not show it."""
    if layout.version is not CgroupVersion.V1:
        return before
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    kubepods, online = _cpus(reader, layout.kubepods), _cpus(reader, "")
    return before if kubepods is None or online is None else returned_cpus.observe(before, kubepods, online, now)


def read_kubelet_memory(sources: SnapshotSources, snapshot: Snapshot) -> dict[Target, int] | None:
    """What a kubelet with the gate MemoryQoS has given, as ``memory_qos.decide`` wants it; None for one without."""
    configuration = sources.states.kubelet_configuration
    if configuration is None or not configuration.manages_memory or sources.layout.version is not CgroupVersion.V2:
        return None
    executor = sources.executor
    classes, others = memory_qos.targets_of_kubelet(snapshot, sources.layout)
    found = {target: executor.kept(target) for target in (*classes, *others)}
    found |= {target: executor.present(target) for target in classes if found[target] is None}
    return {target: value for target, value in found.items() if isinstance(value, int)}


def read_cpusets(layout: CgroupLayout, folders: Iterable[str]) -> dict[str, frozenset[int]]:
    """The CPUs of those of the folders that have any."""
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    found = ((folder, _cpus(reader, folder)) for folder in folders)
    return {folder: cpus for folder, cpus in found if cpus is not None}


def _cpus(reader: CgroupReader, folder: str) -> frozenset[int] | None:
    """That the cgroup may use; None where the kernel shows none: it has no cpuset, or the controller is off there."""
    try:
        return reader.cpuset(folder) or None
    except FileError:
        return None


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


def node_cpu_average(usage: RecentUsage, policy: NodeSLOSpec | None) -> float | None:
    """Cores of the node over the window of the policy's evictions."""
    return usage.average(kinds.NODE_CPU_USAGE, _window(usage, policy))


def shared_cpu_average(usage: RecentUsage, snapshot: Snapshot, interval: float) -> float | None:
    """Cores that all but LSE, LSR and BE pods use, on the mean of five rounds of ``interval`` seconds, ten seconds at
    most: one quiet second must not let everybody burst. None where the node was not measured."""
    window = max(min(5 * interval, _LONGEST_BURST_WINDOW), usage.interval)
    used = usage.average(kinds.NODE_CPU_USAGE, window)
    if used is None:
        return None
    others = [each.pod.uid for each in snapshot.pods if each.pod.qos in NOT_SHARING]
    return used - sum(usage.averages(kinds.POD_CPU_USAGE, window, others))


def best_effort_cpu(usage: RecentUsage, policy: NodeSLOSpec | None) -> BestEffortCPU | None:
    """What best-effort pods use, request and may use, in milli-CPU; None where one of the figures is not known."""
    row, window = usage.table.best_effort, _window(usage, policy)
    used, requested, limit = found = [
        usage.samples(kinds.NODE_BE, window, be_resource="cpu", be_allocation=allocation)
        for allocation in ("usage", "request", "real-limit")
    ]
    if not all(found) or row.at < usage.present().since:
        return None
    is_complete = min(map(len, found)) * usage.interval >= window / 3
    return BestEffortCPU(
        used.average(),
        requested.average(),
        limit.average(),
        row.usage,
        row.request,
        row.real_limit,
        is_complete,
    )


def _window(usage: RecentUsage, policy: NodeSLOSpec | None) -> float:
    threshold = policy.resource_used_threshold_with_be if policy is not None else None
    seconds = threshold.cpu_evict_time_window_seconds if threshold is not None else None
    return max(usage.interval, float(seconds or 0))


def read_resctrl(host: Host, layout: CgroupLayout, snapshot: Snapshot) -> Resctrl | None:
    """What there is of caches and bandwidth to share out, and the tasks of the pods; None where there is none."""
    allocation = resctrl.read_allocation(host)
    if allocation is None:
        return None
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    tasks: dict[str, frozenset[int]] = {}
    for usage in snapshot.pods:
        found: set[int] = set()
        for container in usage.pod.running:
            # It may have ended since the kubelet listed it.
            with suppress(FileError):
                found.update(reader.tasks(container.cgroup))
        tasks[usage.pod.uid] = frozenset(found)
    groups = GROUP_NAMES & allocation.groups.keys()
    return Resctrl(allocation.ways_mask, allocation.caches, allocation.vendor, tasks, groups)


def read_disks(
    host: Host, sources: SnapshotSources, folders: Sequence[str], volume_names: Mapping[Claim, str]
) -> Disks:
    """What is known of the disks now, and what the files of block I/O in ``folders`` show."""
    shown = {
        folder: {file: sources.executor.present_devices(file, folder) for file in block_io.files_of(folder)}
        for folder in folders
    }
    return Disks(sources.block_devices(), host.var_lib_kubelet, shown, volume_names)
