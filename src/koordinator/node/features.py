"""Which of the kernel features that koordlet can use this machine has, and what depends on each.

The table is for people (``koord doctor``) and for metrics. Nothing is changed on the machine, nothing needs root; what
only root could see is ``Undetermined``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.node import connection_delays, core_scheduling, kidled, nvml, perf_events, resctrl
from koordinator.node.cgroup_layout import HYBRID, CgroupDriver, CgroupVersion, detect_version, find_kubepods
from koordinator.node.cpu_topology import read_cpu_topology
from koordinator.node.errors import FileError, OddRowError, Unavailable, file_error
from koordinator.node.host import Host, exists, list_folder, read_text
from koordinator.node.inotify import FolderWatcher, InotifyError
from koordinator.node.memory import read_numa_memory
from koordinator.node.network_counters import read_network_counters
from koordinator.node.pressure import pressure_of_machine

_ANOLIS: Final = "a kernel of Anolis OS or Alibaba Cloud Linux"


@dataclass(frozen=True, slots=True)
class Works:
    """The feature is here; ``detail`` says how much of it."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Undetermined:
    """Whether the feature is here cannot be said: ``reason``, and what would have to be ``needs``."""

    reason: str
    needs: str


FeatureState = Works | Unavailable | Undetermined


@dataclass(frozen=True, slots=True)
class Feature:
    """One line of the table; ``used_by`` names koordlet's feature gates, QoS strategies and collectors."""

    name: str
    used_by: tuple[str, ...]
    state: FeatureState


@dataclass(frozen=True, slots=True)
class Machine:
    """What the features depend on, and the features themselves.

    ``cgroup_version``, ``cgroup_driver`` and ``kubepods``, the relative folder of all pods, are None where they cannot
    be seen: no hierarchy is mounted, or kubelet has not run yet.
    """

    kernel: str
    architecture: str
    cgroup_version: CgroupVersion | None
    cgroup_driver: CgroupDriver | None
    kubepods: str | None
    is_root: bool
    features: tuple[Feature, ...]


def probe_machine(host: Host, wakes_gpus: bool = False) -> Machine:
    """Look at everything once. Never raises: what cannot be looked at says so in its line.

    With ``wakes_gpus`` NVIDIA's library is initialised; without it only what is installed is looked at.
    """
    try:
        version = detect_version(host)
    except FileError:
        version = None
    release = os.uname()
    kubepods = find_kubepods(host, version) if version else None
    return Machine(
        kernel=_kernel_release(host) or release.release,
        architecture=release.machine,
        cgroup_version=version,
        cgroup_driver=kubepods[0] if kubepods else None,
        kubepods=kubepods[1] if kubepods else None,
        is_root=os.geteuid() == 0,
        features=tuple(_probe_all(host, version, wakes_gpus)),
    )


def _probe_all(host: Host, version: CgroupVersion | None, wakes_gpus: bool) -> Iterable[Feature]:
    cgroups = _Cgroups(host, version)
    for name, used_by, probe in (*_cgroup_features(cgroups), *_machine_features(host, wakes_gpus)):
        try:
            state = probe()
        except FileError as error:
            state = Undetermined(str(error), "a file that can be read, and is in the kernel's format")
        yield Feature(name, used_by, state)


_Row = tuple[str, tuple[str, ...], Callable[[], FeatureState]]


def _cgroup_features(cgroups: _Cgroups) -> list[_Row]:
    v2 = "cgroup version 2"
    return [
        (f"cgroup controller {name}", used_by, lambda name=name: cgroups.controller(name))
        for name, used_by in (
            ("cpu", ("all collectors", "BECPUSuppress", "CPUBurst", "BatchResource")),
            ("cpuset", ("BECPUSuppress (cpuset policy)", "CPUSetAllocator")),
            ("memory", ("all collectors", "BEMemoryEvict", "CgroupReconcile")),
        )
    ] + [
        (
            "CPU burst",
            ("CPUBurst (kernel burst)",),
            lambda: cgroups.file("cpu", "cpu.cfs_burst_us", "cpu.max.burst", "Linux 5.14 or Anolis OS"),
        ),
        ("cpu.idle", ("CoreSched (schedIdle)",), lambda: cgroups.file("cpu", "cpu.idle", "cpu.idle", "Linux 5.15")),
        (
            "group identity (BVT)",
            ("GroupIdentity",),
            lambda: cgroups.file("cpu", "cpu.bvt_warp_ns", "cpu.bvt_warp_ns", _ANOLIS),
        ),
        (
            "memory protection (min, low, high)",
            ("CgroupReconcile",),
            lambda: cgroups.file("memory", "memory.low", "memory.low", f"{v2}, or {_ANOLIS}"),
        ),
        (
            "memory watermarks",
            ("CgroupReconcile",),
            lambda: cgroups.file("memory", "memory.wmark_ratio", "memory.wmark_ratio", _ANOLIS),
        ),
        (
            "out-of-memory kills by group",
            ("CgroupReconcile",),
            lambda: cgroups.file("memory", "memory.oom.group", "memory.oom.group", f"{v2} (Linux 4.19), or {_ANOLIS}"),
        ),
        (
            "memory by NUMA node",
            ("NUMA usage of pods",),
            lambda: cgroups.file(
                "memory", "memory.numa_stat", "memory.numa_stat", "CONFIG_NUMA; Linux 5.8 on version 2"
            ),
        ),
        (
            "pressure of cgroups (PSI)",
            ("PSICollector",),
            cgroups.pressure,
        ),
        (
            "block I/O limits",
            ("BlkIOReconcile",),
            lambda: cgroups.file(
                "blkio",
                "blkio.throttle.read_bps_device",
                "io.max",
                "the controller blkio or io, CONFIG_BLK_DEV_THROTTLING=y",
            ),
        ),
        (
            "block I/O weights (iocost)",
            ("BlkIOReconcile",),
            lambda: cgroups.file(
                "blkio", "blkio.cost.weight", "io.weight", f"{v2} with CONFIG_BLK_CGROUP_IOCOST=y, or {_ANOLIS}"
            ),
        ),
        (
            "network classes",
            ("TCNetworkQoS (pods in the network of the node)",),
            lambda: cgroups.file("net_cls", "net_cls.classid", None, "the cgroup version 1 controller net_cls"),
        ),
    ]


def _machine_features(host: Host, wakes_gpus: bool) -> list[_Row]:
    return [
        ("CPU topology", ("NodeTopologyReport", "CPUSetAllocator", "BECPUSuppress"), lambda: _topology(host)),
        ("NUMA memory", ("NodeTopologyReport", "NUMA usage"), lambda: _numa(host)),
        ("pressure of the machine (PSI)", ("koord doctor",), lambda: _pressure(host)),
        ("core scheduling", ("CoreSched",), lambda: _core_scheduling(host)),
        ("resctrl allocation", ("RdtResctrl", "Resctrl"), lambda: resctrl.probe_allocation(host) or Works()),
        ("resctrl monitoring", ("ResctrlCollector",), lambda: resctrl.probe_monitoring(host) or Works()),
        ("CPU performance counters", ("CPICollector",), lambda: perf_events.probe(host) or Works()),
        ("cold pages (kidled)", ("ColdPageCollector",), lambda: _kidled(host)),
        ("inotify", ("pods noticed at once",), _inotify),
        (
            "NRI of containerd",
            ("runtime hooks in NRI mode",),
            lambda: probe_socket(f"{host.var_run}/nri/nri.sock", _NRI),
        ),
        ("traffic of network namespaces", ("InterferenceDetection",), lambda: _network_counters(host)),
        ("delay of TCP connections", ("InterferenceDetection",), lambda: connection_delays.probe() or Works()),
        ("traffic control", ("TCNetworkQoS",), lambda: probe_traffic_control(host)),
        ("Terway's folder", ("TerwayQoS",), lambda: probe_terway(host)),
        (
            "NVIDIA management library",
            ("Accelerators",),
            lambda: probe_gpus(host) if wakes_gpus else nvml.probe(host) or Works(nvml.LIBRARY),
        ),
        ("RDMA devices", ("RDMADevices",), lambda: _rdma(host)),
    ]


_NRI: Final = "containerd 1.7 or newer with NRI enabled (the default from 2.0 on)"


class _Cgroups:
    """Looks for controllers, and for files in a cgroup that is not the root."""

    def __init__(self, host: Host, version: CgroupVersion | None) -> None:
        self._host = host
        self._version = version

    def controller(self, name: str) -> FeatureState:
        if self._version is None:
            return self._nothing_mounted()
        if self._version is CgroupVersion.V1:
            if exists(f"{self._host.cgroup}/{name}"):
                return Works("version 1")
            return Unavailable(f"{self._host.cgroup}/{name} is not mounted", f"the cgroup controller {name}")
        controllers = read_text(f"{self._host.cgroup}/cgroup.controllers").split()
        if name in controllers:
            return Works("version 2")
        return Unavailable(
            f"{self._host.cgroup}/cgroup.controllers does not name {name}", f"the cgroup controller {name}"
        )

    def file(self, controller: str, v1_name: str, v2_name: str | None, needs: str) -> FeatureState:
        """Whether the kernel gives cgroups a file; None for a version 2 that has none."""
        if self._version is None:
            return self._nothing_mounted()
        if self._version is CgroupVersion.V1:
            parent, name = f"{self._host.cgroup}/{controller}", v1_name
        elif v2_name is None:
            return Unavailable("cgroup version 2 has no such file", needs)
        else:
            parent, name = self._host.cgroup, v2_name
        if not exists(parent):
            return Unavailable(f"{parent} is not mounted", needs)
        folder = self._sample(parent)
        if exists(f"{folder}/{name}"):
            return Works(name)
        if folder == parent and self._version is CgroupVersion.V2:
            # The root of version 2 lacks the files of limits on every kernel.
            return Undetermined(f"{parent} has no cgroup to look into", "a machine on which kubelet or systemd runs")
        return Unavailable(f"{folder} has no {name}", needs)

    def pressure(self) -> FeatureState:
        """On version 1 also of the hierarchy of version 2 that may be beside it."""
        needs = f"cgroup version 2 with CONFIG_PSI=y, or {_ANOLIS}"
        state = self.file("cpuacct", "cpu.pressure", "cpu.pressure", needs)
        beside = f"{self._host.cgroup}/{HYBRID}"
        if isinstance(state, Unavailable) and self._version is CgroupVersion.V1 and exists(beside):
            path = f"{self._sample(beside)}/cpu.pressure"
            return Works(path) if exists(path) else state
        return state

    def _sample(self, parent: str) -> str:
        """A cgroup below the root: the pods' if kubelet has made it, else any, else the root itself."""
        names = [name for name in list_folder(parent) if os.path.isdir(f"{parent}/{name}")]
        names.sort(key=lambda name: not name.startswith("kubepods"))
        return f"{parent}/{names[0]}" if names else parent

    def _nothing_mounted(self) -> Unavailable:
        return Unavailable(f"{self._host.cgroup} does not exist", "a mounted cgroup hierarchy")


def _topology(host: Host) -> FeatureState:
    odd: list[OddRowError] = []
    topology = read_cpu_topology(host, odd.append)
    return Works(
        f"CPUs: {len(topology.cpus)}, cores: {len(topology.by_core)}, sockets: {len(topology.by_socket)}, "
        f"NUMA nodes: {len(topology.by_numa_node)}, L3 caches: {len(topology.by_l3)}{_not_understood(odd)}"
    )


def _numa(host: Host) -> FeatureState:
    odd: list[OddRowError] = []
    nodes = read_numa_memory(host, odd.append)
    return Works(f"NUMA nodes: {len(nodes)}{_not_understood(odd)}")


def _not_understood(odd: Sequence[OddRowError]) -> str:
    return f"; not understood: {odd[0]}" if odd else ""


def _pressure(host: Host) -> FeatureState:
    odd: list[OddRowError] = []
    pressure = pressure_of_machine(host, odd.append)
    if isinstance(pressure, Unavailable):
        return pressure
    shown = ", ".join(f"{resource} {stall.some.avg10:.0f} %" for resource, stall in pressure.items())
    return Works(shown + _not_understood(odd))


def _core_scheduling(host: Host) -> FeatureState:
    found = core_scheduling.probe(host)
    return found if isinstance(found, Unavailable) else Works(found)


def _network_counters(host: Host) -> FeatureState:
    counted = read_network_counters(host, "self", lambda _: None)
    return Works(f"TCP segments sent: {counted.segments}, again: {counted.retransmitted}")


def _kidled(host: Host) -> FeatureState:
    response = kidled.settings(host)
    return response if isinstance(response, Unavailable) else Works()


def _inotify() -> FeatureState:
    try:
        FolderWatcher().close()
    except InotifyError as error:
        return Unavailable(str(error), "CONFIG_INOTIFY_USER=y, and a limit that is not reached")
    return Works()


def probe_socket(path: str, needs: str) -> FeatureState:
    """Whether there is something at ``path`` to which this user may connect; not whether anybody listens."""
    try:
        os.stat(path)
    except PermissionError as error:
        return Undetermined(str(file_error(path, error)), "root")
    except OSError as error:
        return Unavailable(str(file_error(path, error)), needs)
    if os.access(path, os.W_OK):
        return Works(path)
    return Undetermined(f"{path} may not be written by this user", "root")


def probe_terway(host: Host) -> Works | Unavailable:
    """Whether there is a folder in which Terway's daemon looks for settings."""
    if exists(host.var_lib_terway):
        return Works(host.var_lib_terway)
    needs = "the network plugin Terway, and its folder /var/lib/terway mounted into koordlet's pod"
    return Unavailable(f"{host.var_lib_terway} does not exist", needs)


def probe_traffic_control(
    host: Host,
    find: Callable[[str], object] = importlib.util.find_spec,
    which: Callable[[str], str | None] = shutil.which,
) -> FeatureState:
    """What can be seen of it without a call that would make the kernel load modules: HTB shows only in use."""
    schedulers, routes = f"{host.proc}/net/psched", f"{host.proc}/net/route"
    if not exists(schedulers):
        return Unavailable(
            f"{schedulers} does not exist", "CONFIG_NET_SCHED=y, CONFIG_NET_SCH_HTB and CONFIG_NET_CLS_U32"
        )
    if find("pyroute2") is None:
        return Unavailable("pyroute2 is not installed", "pip install 'koordinator[network]'")
    if which("iptables") is None:
        return Unavailable("iptables is not installed", "the program iptables, and CONFIG_IP_SET_HASH_IP")
    rows = [line.split() for line in read_text(routes).splitlines()[1:]]
    device = next((row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"), None)
    if device is None:
        return Unavailable(f"{routes} has no default route", "an IPv4 default route")
    return Works(f"device {device}")


def probe_gpus(
    host: Host,
    find_missing: Callable[[Host], Unavailable | None] = nvml.probe,
    open_library: Callable[[Host], nvml.NVML | Unavailable] = nvml.open_nvml,
) -> Works | Unavailable:
    """The GPUs that koordlet would measure. Initialises the library, which can take seconds."""
    library = find_missing(host) or open_library(host)
    if isinstance(library, Unavailable):
        return library
    try:
        models = Counter(gpu.model for gpu in library.gpus)
        if not models:
            return Unavailable("NVML names no GPU that responds", "an NVIDIA GPU that this program can see")
        named = ", ".join(f"{count} {model}" for model, count in models.items())
        return Works(f"{named}, driver {library.driver_version}")
    finally:
        library.close()


def _rdma(host: Host) -> FeatureState:
    folder = f"{host.sys}/class/infiniband"
    devices = list_folder(folder) if exists(folder) else []
    if devices:
        return Works(", ".join(devices))
    return Unavailable(f"{folder} names no device", "a network card with RDMA, and its driver")


def _kernel_release(host: Host) -> str:
    try:
        return read_text(f"{host.proc}/sys/kernel/osrelease")
    except FileError:
        return ""
